"""At a start, reads the records after the last frontier, so that none is sent twice."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, LogError
from changelog.contract.base.headers import Op, RecordHeaders
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import BackfillRecord, TableBackfill
from changelog.contract.log.frontier import Frontier
from changelog.kafka.cluster import Cluster
from changelog.kafka.scan import OffsetRange, headers_of, scan
from changelog.sink.frontier import FrontierLog

log = logging.getLogger("changelog.sink")
MAX_SEQUENCE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class WrittenRecords:
    """Records on the topics after the last frontier."""

    # per topic and partition the greatest position that need not be written again; partitions
    # without a record are left out
    positions: dict[str, dict[int, Position]]
    last_epoch: int  # the greatest epoch seen, the frontier's included; 0 when there is none
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # where the topics end
    # per topic how many records there are that capture did not write, or that are older than the
    # frontier or than a record before them: those were written by somebody whom capture had thought
    # dead, or copied from the log
    foreign: Mapping[str, int] = field(default_factory=dict)
    # per epoch the greatest commit LSN of a record
    reached: Mapping[int, Lsn] = field(default_factory=dict)

    def passed_at(self, epoch: int) -> Lsn:
        """Return the first LSN past every record of an epoch; 0 when there is none."""
        return Lsn(self.reached[epoch] + 1 if epoch in self.reached else 0)


@dataclass(frozen=True, slots=True)
class KnownPlace:
    """A place up to which the content of a topic is known."""

    topic_id: str  # Kafka's id of the topic that it was
    ends: tuple[int, ...]  # per partition the end offset there
    # all streamed records up to it lie before `ends`; None when nothing is known beyond what the
    # frontier says
    position: Position | None = None


def known_places(
    frontier: Frontier | None, backfill: BackfillRecord | None
) -> dict[str, KnownPlace]:
    """Return up to where topics are known, by the frontier and by the backfills that go on."""
    places = {}
    if frontier is not None:
        places = {
            topic: KnownPlace(frontier.topic_ids[topic], ends)
            for topic, ends in frontier.ends.items()
            if topic in frontier.topic_ids
        }
    newer = backfill is not None and (frontier is None or backfill.epoch >= frontier.epoch)
    if backfill is not None and newer:
        last = Position(backfill.epoch, Lsn(max(0, backfill.lsn - 1)), MAX_SEQUENCE)
        for topic, table in backfill.tables.items():
            is_new = frontier is None or backfill.epoch > frontier.epoch or topic not in places
            if table.ends and is_new:
                places[topic] = KnownPlace(table.topic_id, table.ends, last)
    return places


def read_after_frontier(
    kafka: KafkaConnection,
    frontiers: FrontierLog,
    frontier: Frontier | None,
    topics: Sequence[str],
    *,
    backfill: BackfillRecord | None = None,
    wal_end: Callable[[], Lsn] | None = None,
) -> WrittenRecords:
    """Read the headers of every record after the frontier's ends, or of all without a frontier.

    Records that the brokers' retention or somebody else removed are passed over.

    A topic whose table is still being copied is read from the ends that the backfill recorded. A
    topic that neither frontier nor backfill has, or has under another id, is read from its start.
    A topic with keys that ends before the frontier's ends is not read and no error here:
    `changelog.capture.start.lost_records` finds it, and a fresh copy of its table repairs it.

    A record that capture cannot have written is counted as foreign and is no error: its table is
    copied again, at a start and in a running capture (`changelog.capture.write.topic_watch`).
    `wal_end` asks the server for the end of its WAL, which no record can have passed; None after a
    failover, when the log may hold what the server has lost.

    Raises LogError: another topic ends before what is known of it: the broker lost records;
    UnavailableLogError: the broker does not answer.
    """
    places = known_places(frontier, backfill)
    ends = frontiers.ends(topics)
    repaired_by_copy = set()
    if frontier is not None:
        repaired_by_copy = {topic for topic in frontier.tables if frontier.scope_of(topic).keyed}
    ranges, positions = _ranges_after_frontier(frontiers, places, ends, repaired_by_copy)
    ranges = _without_removed(kafka, ranges)
    ids = {topic: frontiers.topic_id(topic) for topic in ends}
    findings = _Findings(frontier, backfill, _dead_before(backfill, ids), positions, wal_end)
    for record in scan(kafka, ranges):
        findings.take(record)
    foreign = {topic: count for topic, count in findings.foreign.items() if count}
    return WrittenRecords(positions, findings.last_epoch(), ends, foreign, findings.reached)


class _Findings:
    """Collects the records after the last frontier, one by one."""

    def __init__(
        self,
        frontier: Frontier | None,
        backfill: BackfillRecord | None,
        dead_before: Mapping[str, tuple[int, ...]],
        positions: dict[str, dict[int, Position]],
        wal_end: Callable[[], Lsn] | None,
    ) -> None:
        self._frontier, self._backfill = frontier, backfill
        self._dead_before = dead_before
        self._wal_end = wal_end
        self._positions = positions
        self._limit: Position | None = None
        epochs = [record.epoch for record in (frontier, backfill) if record is not None]
        self._newest = max(epochs, default=None)
        self.foreign: Counter[str] = Counter()
        self.reached: dict[int, Lsn] = {}
        for of_topic in positions.values():
            for position in of_topic.values():
                self._reach(position)

    def last_epoch(self) -> int:
        """Return the greatest epoch that is known; 0 when there is none."""
        return max([*self.reached, self._newest or 0])

    def take(self, record: Message) -> None:
        """Look at the headers of one record."""
        topic, partition = record.topic() or "", record.partition() or 0
        first_live_offsets = self._dead_before.get(topic, ())
        is_dead = (
            partition < len(first_live_offsets)
            and (record.offset() or 0) < first_live_offsets[partition]
        )
        try:
            headers = headers_of(record)
            why = self._why_foreign(record, headers)
        except CorruptRecordError as error:
            headers, why = None, str(error.args[0])
        if why and not is_dead:
            if not self.foreign[topic]:
                log.warning("%s", why)
            self.foreign[topic] += 1
        if headers is None or self._is_ahead(headers.position):
            return
        self._reach(headers.position)
        if is_dead:
            return
        by_partition = self._positions.setdefault(topic, {})
        if partition not in by_partition or headers.position > by_partition[partition]:
            by_partition[partition] = headers.position

    def _is_copied_anew(self, record: Message) -> bool:
        """Tell whether a record is of a table whose copy has not started: the copy replaces it.

        An attempt that ended before it recorded the start of the copy may have sent changes, which
        the next attempt sends again from an earlier position. The copy replaces them all.
        """
        is_in_frontier = self._frontier is not None and record.topic() in self._frontier.tables
        backfill = self._backfill_of(record)
        return not is_in_frontier and (backfill is None or backfill.since is None)

    def _why_foreign(self, record: Message, headers: RecordHeaders) -> str:
        place = (
            f'topic "{record.topic()}", partition {record.partition()}, offset {record.offset()}'
        )
        if self._is_ahead(headers.position):
            return f"{place}: capture has not reached its position {headers.position} yet"
        if self._is_of_a_copy(record, headers.position):
            return ""
        if self._is_before_the_frontier(record, headers.position):
            return f"{place}: its position {headers.position} is older than the last frontier"
        if self._is_out_of_order(record, headers) and not self._is_copied_anew(record):
            return f"{place}: its position {headers.position} is older than one before it"
        return ""

    def _is_of_a_copy(self, record: Message, position: Position) -> bool:
        """Tell whether a record is the tombstone of a key that died with a fresh copy.

        These are written at the end of the copy, at the position of its start.
        """
        starts = [
            self._frontier.since.get(record.topic() or "") if self._frontier else None,
            backfill.since if (backfill := self._backfill_of(record)) else None,
        ]
        return record.value() is None and position in starts

    def _backfill_of(self, record: Message) -> TableBackfill | None:
        return self._backfill.tables.get(record.topic() or "") if self._backfill else None

    def _is_before_the_frontier(self, record: Message, position: Position) -> bool:
        """Tell whether a record after a frontier's ends has a position before the frontier.

        Copied rows too: they have the position of their fence, which no frontier has passed yet
        when they are written.
        """
        frontier = self._frontier
        if frontier is None or record.topic() not in frontier.tables:
            return False
        return position < Position(frontier.epoch, frontier.lsn, 0)

    def _is_out_of_order(self, record: Message, headers: RecordHeaders) -> bool:
        """Tell whether a record follows a newer one in its partition.

        The sequence of a copied row does not count: several workers write a copy, in no order.
        """
        before = self._positions.get(record.topic() or "", {}).get(record.partition() or 0)
        if before is None:
            return False
        if headers.op is Op.READ:
            before = before._replace(sequence=0)
        return headers.position < before

    def _is_ahead(self, position: Position) -> bool:
        """Tell whether capture has not been where a record claims to come from."""
        if self._newest is None:
            return False
        if position.epoch != self._newest or self._wal_end is None:
            # No epoch is written before the topic of frontiers says that it begins.
            return position.epoch > self._newest
        if self._limit is None or position > self._limit:
            self._limit = Position(position.epoch, self._wal_end(), MAX_SEQUENCE)
        return position > self._limit

    def _reach(self, position: Position) -> None:
        reached = self.reached.get(position.epoch, position.commit_lsn)
        self.reached[position.epoch] = max(reached, position.commit_lsn)


def _dead_before(
    backfill: BackfillRecord | None, ids: Mapping[str, str]
) -> dict[str, tuple[int, ...]]:
    """Return per topic that is being copied the offsets before which all is dead."""
    copies = backfill.tables if backfill is not None else {}
    return {
        topic: copy.alive_from
        for topic, copy in copies.items()
        if copy.since is not None and ids.get(topic) == copy.topic_id
    }


def _ranges_after_frontier(
    frontiers: FrontierLog,
    places: Mapping[str, KnownPlace],
    ends_of: Mapping[str, tuple[int, ...]],
    repaired_by_copy: Collection[str],
) -> tuple[list[OffsetRange], dict[str, dict[int, Position]]]:
    """Return the ranges to read, and the positions that are known per topic and partition.

    Raises LogError: a topic that no copy repairs ends before what is known of it.
    """
    ranges = []
    positions: dict[str, dict[int, Position]] = {}
    for topic, ends in ends_of.items():
        place = places.get(topic)
        known_ends: Sequence[int] = ()
        if place is not None and place.topic_id == frontiers.topic_id(topic):
            known_ends = place.ends
            if place.position is not None:
                positions[topic] = dict.fromkeys(range(len(known_ends)), place.position)
        starts = [*known_ends, *[0] * (len(ends) - len(known_ends))]
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if end < start and topic in repaired_by_copy and places[topic].position is None:
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


def _without_removed(kafka: KafkaConnection, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return ranges without the records that were removed from the start of their topics."""
    cut = [(part.topic, part.partition) for part in ranges if 0 < part.start < part.end]
    bounds_of = Cluster(kafka).bounds(cut)
    starts = {at: bounds.start for at, bounds in bounds_of.items()}
    return [
        part._replace(start=max(part.start, starts.get((part.topic, part.partition), 0)))
        for part in ranges
    ]
