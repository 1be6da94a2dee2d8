"""What lies on the topics behind the last frontier: read back at start, so that none is resent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from changelog.contract.connection import KafkaConnection
from changelog.contract.errors import LogError
from changelog.contract.frontier import Frontier
from changelog.contract.position import Position
from changelog.sink.frontier import FrontierLog
from changelog.sink.scan import OffsetRange, headers_of, left_of, scan


@dataclass(frozen=True, slots=True)
class Written:
    """What the topics hold behind the last frontier.

    Attributes:
        positions: per topic and partition the greatest position; partitions without a record
            are left out.
        last_epoch: the greatest epoch seen, the frontier's included; 0 when there is none.
    """

    positions: dict[str, dict[int, Position]]
    last_epoch: int


def last_positions(
    kafka: KafkaConnection,
    frontiers: FrontierLog,
    frontier: Frontier | None,
    topics: Sequence[str],
    expiring: Collection[str] = (),
) -> Written:
    """Read the headers of every record behind the frontier's ends, or of all without one.

    Records of the `expiring` topics may have been removed by the brokers' retention: what of
    them is left is read.

    A topic that the frontier does not know, or knew under another id, is read from its start.

    Raises:
        CorruptRecordError: a record has not the headers of the log; names its place.
        LogError: a topic ends before the frontier does: the broker lost records.
        UnavailableLogError: the broker does not answer.
    """
    ranges = _behind(frontiers, frontier, topics)
    ranges = left_of(kafka, ranges, expiring)
    positions: dict[str, dict[int, Position]] = {}
    for record in scan(kafka, ranges):
        position = headers_of(record).position
        by_partition = positions.setdefault(record.topic() or "", {})
        partition = record.partition() or 0
        if partition not in by_partition or position > by_partition[partition]:
            by_partition[partition] = position
    epochs = [each.epoch for found in positions.values() for each in found.values()]
    known = frontier.epoch if frontier is not None else 0
    return Written(positions, max([known, *epochs]))


def _behind(
    frontiers: FrontierLog, frontier: Frontier | None, topics: Sequence[str]
) -> list[OffsetRange]:
    ranges = []
    for topic, ends in frontiers.ends(topics).items():
        known: Sequence[int] = ()
        if frontier is not None and frontier.topic_ids.get(topic) == frontiers.topic_id(topic):
            known = frontier.ends.get(topic, ())
        starts = [*known, *[0] * (len(ends) - len(known))]
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if end < start:
                raise LogError(
                    f'topic "{topic}", partition {partition} ends at {end}, '
                    f"the last frontier at {start}: the broker lost records",
                    hint="delete the topic and drop the slot with `changelog slot drop`; the "
                    "next start takes a fresh snapshot",
                )
            ranges.append(OffsetRange(topic, partition, start, end))
    return ranges
