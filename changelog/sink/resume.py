"""What lies on the topics behind the last frontier: read back at start, so that none is resent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from changelog.contract.connection import KafkaConnection
from changelog.contract.errors import CorruptRecordError
from changelog.contract.frontier import Frontier
from changelog.contract.headers import decode_headers
from changelog.contract.position import Position
from changelog.sink.frontier import FrontierLog
from changelog.sink.scan import scan


@dataclass(frozen=True, slots=True)
class Written:
    """What the topics hold behind the last frontier.

    Attributes:
        positions: per topic and partition the greatest position; partitions without a record
            are left out.
        last_epoch: the greatest epoch seen, 0 when there is no record.
    """

    positions: dict[str, dict[int, Position]]
    last_epoch: int


def last_positions(
    kafka: KafkaConnection,
    frontiers: FrontierLog,
    frontier: Frontier | None,
    topics: Sequence[str],
) -> Written:
    """Read the headers of every record behind the frontier's ends, or of all without one.

    Raises:
        CorruptRecordError: a record has not the headers of the log; names its place.
        UnavailableLogError: the broker does not answer.
    """
    starts = frontier.ends if frontier is not None else {}
    positions: dict[str, dict[int, Position]] = {}
    last_epoch = frontier.epoch if frontier is not None else 0
    for topic, ends in frontiers.ends(topics).items():
        begin = starts.get(topic, (0,) * len(ends))
        for partition, end in enumerate(ends):
            start = begin[partition] if partition < len(begin) else 0
            greatest = _greatest(kafka, topic, partition, start, end)
            if greatest is not None:
                positions.setdefault(topic, {})[partition] = greatest
                last_epoch = max(last_epoch, greatest.epoch)
    return Written(positions, last_epoch)


def _greatest(
    kafka: KafkaConnection, topic: str, partition: int, start: int, end: int
) -> Position | None:
    greatest: Position | None = None
    for message in scan(kafka, topic, partition, start, end):
        try:
            headers = decode_headers(message.headers())
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f'topic "{topic}", partition {partition}, offset {message.offset()}: {error}',
                hint="another program writes to this topic; the log needs it for itself",
            ) from error
        if greatest is None or headers.position > greatest:
            greatest = headers.position
    return greatest
