"""What lies on the topics behind the last frontier: read back at start, so that none is resent."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, LogError
from changelog.contract.base.headers import Op, RecordHeaders
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import BackfillRecord
from changelog.contract.log.frontier import Frontier
from changelog.sink.frontier import FrontierLog
from changelog.sink.scan import OffsetRange, headers_of, left_of, scan

log = logging.getLogger("changelog.sink")
MAX_SEQUENCE = (1 << 64) - 1
_CHANGES = (Op.CREATE, Op.UPDATE, Op.DELETE)


@dataclass(frozen=True, slots=True)
class WrittenRecords:
    """What the topics hold behind the last frontier.

    Attributes:
        positions: per topic and partition the greatest position; partitions without a record
            are left out.
        last_epoch: the greatest epoch seen, the frontier's included; 0 when there is none.
        ends: where the topics end.
        foreign: per topic how many records there are that capture did not write, or that are older
            than the frontier: those somebody wrote whom capture had thought dead.
    """

    positions: dict[str, dict[int, Position]]
    last_epoch: int
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    foreign: Mapping[str, int] = field(default_factory=dict)

    def passed_at(self, epoch: int) -> Lsn:
        """Return the first LSN past every record of an epoch; 0 when there is none."""
        found = (each for by_partition in self.positions.values() for each in by_partition.values())
        return Lsn(max((each.commit_lsn + 1 for each in found if each.epoch == epoch), default=0))


@dataclass(frozen=True, slots=True)
class Known:
    """A place up to which the content of a topic is known.

    Attributes:
        topic_id: Kafka's id of the topic that it was.
        ends: per partition the end offset there.
        position: all streamed records up to it lie before `ends`; None when nothing is known
            beyond what the frontier says.
    """

    topic_id: str
    ends: tuple[int, ...]
    position: Position | None = None


def known_places(frontier: Frontier | None, backfill: BackfillRecord | None) -> dict[str, Known]:
    """Return up to where topics are known, by the frontier and by the backfills that go on."""
    found = {}
    if frontier is not None:
        found = {
            topic: Known(frontier.topic_ids[topic], ends)
            for topic, ends in frontier.ends.items()
            if topic in frontier.topic_ids
        }
    newer = backfill is not None and (frontier is None or backfill.epoch >= frontier.epoch)
    if backfill is not None and newer:
        last = Position(backfill.epoch, Lsn(max(0, backfill.lsn - 1)), MAX_SEQUENCE)
        for topic, table in backfill.tables.items():
            is_new = frontier is None or backfill.epoch > frontier.epoch or topic not in found
            if table.ends and is_new:
                found[topic] = Known(table.topic_id, table.ends, last)
    return found


def last_positions(
    kafka: KafkaConnection,
    frontiers: FrontierLog,
    frontier: Frontier | None,
    topics: Sequence[str],
    *,
    backfill: BackfillRecord | None = None,
) -> WrittenRecords:
    """Read the headers of every record behind the frontier's ends, or of all without one.

    Some may have been removed, by the brokers' retention or by others: what is left is read.

    A topic that is not whole yet is read from where the progress of its backfill was written; one
    that neither knows, or knew under another id, from its start. A topic with keys that ends before
    the frontier does is left to who looks for lost records (`changelog.capture.start`): a fresh
    copy of its table mends it.

    Raises:
        CorruptRecordError: a record has not the headers of the log, and no copy of a table mends
            that; names its place.
        LogError: another topic ends before what is known of it: the broker lost records.
        UnavailableLogError: the broker does not answer.
    """
    known = known_places(frontier, backfill)
    found = frontiers.ends(topics)
    mendable = set()
    if frontier is not None:
        mendable = {topic for topic in frontier.tables if frontier.scope_of(topic).keyed}
    ranges, positions = _behind(frontiers, known, found, mendable)
    ranges = left_of(kafka, ranges)
    foreign: Counter[str] = Counter()
    for record in scan(kafka, ranges):
        try:
            headers = headers_of(record)
        except CorruptRecordError as error:
            # A running capture notices strangers by their number, and copies the table again
            # (`changelog.capture.frontier.sole_writer`); so does a start, and the others go on.
            if record.topic() not in mendable:
                raise
            log.warning("%s; its table is copied again", error.args[0])
            foreign[record.topic() or ""] += 1
            continue
        position = headers.position
        if frontier is not None and _is_foreign(record, headers, frontier, backfill):
            foreign[record.topic() or ""] += 1
        by_partition = positions.setdefault(record.topic() or "", {})
        partition = record.partition() or 0
        if partition not in by_partition or position > by_partition[partition]:
            by_partition[partition] = position
    epochs = [each.epoch for found in positions.values() for each in found.values()]
    epochs += [each.epoch for each in (frontier, backfill) if each is not None]
    return WrittenRecords(positions, max(epochs, default=0), found, foreign)


def _is_foreign(
    record: Message, headers: RecordHeaders, frontier: Frontier, backfill: BackfillRecord | None
) -> bool:
    """Tell whether a change behind a frontier is one of those that must lie before it.

    Tombstones of keys that died with a fresh copy are written late, at the position of its start.
    """
    topic = record.topic() or ""
    if topic not in frontier.tables or headers.op not in _CHANGES:
        return False
    copied = backfill.tables.get(topic) if backfill is not None else None
    starts = {frontier.since.get(topic), copied.since if copied is not None else None}
    if record.value() is None and headers.position in starts:
        return False
    return headers.position < Position(frontier.epoch, frontier.lsn, 0)


def _behind(
    frontiers: FrontierLog,
    known: Mapping[str, Known],
    found: Mapping[str, tuple[int, ...]],
    mendable: Collection[str],
) -> tuple[list[OffsetRange], dict[str, dict[int, Position]]]:
    ranges = []
    positions: dict[str, dict[int, Position]] = {}
    for topic, ends in found.items():
        place = known.get(topic)
        before: Sequence[int] = ()
        if place is not None and place.topic_id == frontiers.topic_id(topic):
            before = place.ends
            if place.position is not None:
                positions[topic] = dict.fromkeys(range(len(before)), place.position)
        starts = [*before, *[0] * (len(ends) - len(before))]
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if end < start and topic in mendable and known[topic].position is None:
                continue
            if end < start:
                raise LogError(
                    f'topic "{topic}", partition {partition} ends at {end}, '
                    f"and ended at {start} before: the broker lost records",
                    hint="delete the topic and drop the slot with `changelog slot drop`; the "
                    "next start takes a fresh snapshot",
                )
            ranges.append(OffsetRange(topic, partition, start, end))
    return ranges, positions
