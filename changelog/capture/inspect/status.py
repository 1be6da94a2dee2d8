"""Status of capture: the slot at the source compared with the last frontier on the log.

Each of the two is told without the other: where one does not answer, what only it knows is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace

from rich.table import Table

from changelog.capture.inspect.missing import matching, missing
from changelog.capture.start.history import behind
from changelog.capture.state.lag import LagClock, Reserve, WalMark, WalRate, reserves
from changelog.capture.state.newcomers import TRIED
from changelog.capture.write.topic_watch import removed, watched
from changelog.config import Project
from changelog.contract.base.errors import (
    LogError,
    RefusedAccessError,
    SlotError,
    UnavailableLogError,
    UnavailableSourceError,
)
from changelog.contract.base.pattern import pasted, quoted
from changelog.contract.log.backfill import BackfillRecord, copies_of
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import KeyIndex, TableName
from changelog.kafka.cluster import describe
from changelog.runtime.options import MAX_FRONTIER_AGE_S
from changelog.runtime.progress.steps import UNSEEN, Steps
from changelog.sink.frontier import FrontierLog
from changelog.sink.lost_schemas import PUT_BACK, lost_schemas
from changelog.sink.topics import altered
from changelog.source.connect.connect import connect
from changelog.source.connect.retention import SlotStatus, SourceState, ask_source, why_lost
from changelog.source.connect.system import in_recovery
from changelog.source.stream.slot import drop_slot, inspect_slot
from changelog.source.tables.catalogue import NO_KEY

APART_S = 1.0
"""Time between the two observations of the source that give the rate of its WAL."""
SOURCE, LOG, REGISTRY = "source", "log", "registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Thresholds above which the status has problems."""

    max_lag_bytes: int | None = None  # WAL between the frontier and its end; None for no limit
    max_frontier_age_s: float = MAX_FRONTIER_AGE_S  # of the last frontier, in seconds
    allow_inactive: bool = False  # a slot that nobody reads is fine: capture runs now and then
    temporary_slot: bool = False  # the slot is there only while capture runs


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStatus:
    """State of source and log at one moment."""

    slot_name: str  # the slot that was asked for
    source: SourceState | None  # the server and the slot; None where it does not answer
    rate: WalRate | None  # how fast the server writes WAL; None where it does not answer
    frontier: FrontierRecord | None  # the last frontier, or None
    # how old the oldest commit that the log lacks can be at most, in seconds; None without a
    # frontier
    lag_s: float | None
    now_ms: int  # when it was asked, milliseconds since 1970
    limits: Limits  # from where on something is wrong
    # how far copies of tables are, and which are excluded; None when there are none
    backfill: BackfillRecord | None = None
    # topics that have lost records or schemas, or got other settings, each with its way out
    removed: tuple[str, ...] = ()
    # the tables that match the settings, each with what stands against capturing it
    matches: Mapping[TableName, str] = field(default_factory=dict)
    # the unique indexes that give tables without a primary key their key
    key_indexes: Mapping[str, KeyIndex] = field(default_factory=dict)
    # why `source`, `log` or `registry` did not answer; empty where all did
    unanswered: Mapping[str, str] = field(default_factory=dict)
    undone: str = ""  # that the server has lost what the log holds; empty where it is not known to

    @property
    def knows_log(self) -> bool:
        """Tell whether the log answered: without it, no frontier is not the same as none."""
        return LOG not in self.unanswered

    @property
    def knows_both(self) -> bool:
        """Tell whether source and log answered."""
        return self.knows_log and SOURCE not in self.unanswered

    @property
    def missing(self) -> dict[str, str]:
        """Return the tables that match and are not captured, with the reason."""
        if not self.knows_both:
            return {}
        frontier = self.frontier.frontier if self.frontier is not None else None
        reasons = missing(self.matches, frontier, self.backfill, self._excluded)
        return {str(table): why for table, why in reasons.items()}

    @property
    def children(self) -> dict[str, list[str]]:
        """Return the captured tables that others inherit from, with these."""
        if self.frontier is None:
            return {}
        children_of = self.frontier.frontier.children
        return {
            str(table): [str(child) for child in children]
            for table, children in children_of.items()
        }

    @property
    def excluded(self) -> dict[str, str]:
        """Return the tables that are excluded until somebody asks for a copy, with the reason.

        One that would share another's topic stands in the frontier alone: progress is by topic.
        """
        return {str(table): why for table, why in self._excluded.items()}

    @property
    def _excluded(self) -> dict[TableName, str]:
        faults = {copy.table: copy.fault for copy in copies_of(self.backfill)}
        last = self.frontier.frontier.excluded if self.frontier is not None else {}
        reasons = {table: why for table, why in {**last, **faults}.items() if why}
        if SOURCE in self.unanswered:
            return reasons
        # One that was dropped or left out since is nobody's problem: the next frontier forgets it.
        return {table: why for table, why in reasons.items() if table in self.matches}

    def _way_back(self, table: TableName, why: str) -> str:
        """Return the way back of an excluded table into the captured ones.

        What a start has found before it made a topic is looked at again and again.
        """
        copies = {copy.table for copy in copies_of(self.backfill) if copy.fault and copy.topic_id}
        if table not in copies and not why.startswith(TRIED):
            return "capture takes it once that is mended"
        command = f"`changelog resnapshot {pasted(quoted(*table))}`"
        return f"once that is mended, and not before, {command} takes it back"

    @property
    def _failing(self) -> dict[TableName, str]:
        """Return the tables of the last frontier with which capture cannot go on."""
        if self.frontier is None:
            return {}
        frontier = self.frontier.frontier
        # Capture may have got the options on its command line that take a table without a key.
        has_way = {
            table
            for topic, table in frontier.tables.items()
            if not frontier.scope_of(topic).keyed or str(table) in self.key_indexes
        }
        return {
            table: obstacle
            for table in frontier.tables.values()
            if (obstacle := self.matches.get(table))
            and not (table in has_way and obstacle == NO_KEY)
        }

    @property
    def frontier_age_s(self) -> float | None:
        """Return the age of the last frontier, in seconds."""
        if self.frontier is None:
            return None
        return (self.now_ms - self.frontier.appended_ms) / 1000

    @property
    def lag_bytes(self) -> int | None:
        """Return the WAL between the last frontier and the end, or None if either is missing.

        The frontier, not the slot: PostgreSQL hears of it a moment later.
        """
        if self.frontier is None or self.source is None:
            return None
        return max(0, self.source.wal_lsn - self.frontier.frontier.lsn)

    @property
    def reserves(self) -> tuple[Reserve, ...]:
        """Return the limits of the WAL that the slot keeps, the nearest first."""
        if self.source is None or self.rate is None:
            return ()
        return reserves(self.source, self.rate)

    @property
    def records(self) -> dict[str, int]:
        """Return the greatest possible number of records of each table's topic up to the frontier.

        By the end offsets of the frontier: rows of snapshots, changes, tombstones, what was sent
        again after a crash. Where transactions are used their marks count too, and records that
        were aborted. Compaction takes records away and leaves this number as it is.
        """
        if self.frontier is None:
            return {}
        frontier = self.frontier.frontier
        return {
            str(table): sum(frontier.ends[topic])
            for topic, table in sorted(frontier.tables.items(), key=lambda pair: pair[1])
            if topic in frontier.ends
        }

    @property
    def uncopied(self) -> tuple[str, ...]:
        """Return the tables whose topics hold only what has changed (`--skip-snapshot`)."""
        if self.frontier is None:
            return ()
        frontier = self.frontier.frontier
        return tuple(
            sorted(
                str(table)
                for topic, table in frontier.tables.items()
                if not frontier.is_copied(topic)
            )
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the problems, a line each; empty if all is well."""
        slot = () if self.source is None else _slot_problems(self.source.slot, self.limits)
        log = self._log_problems() if self.knows_log else ()
        return (*self.unanswered.values(), *slot, *log)

    def _log_problems(self) -> Iterator[str]:
        for table, why in sorted(self._failing.items()):
            yield (
                f"the table {table.said} {why}: no frontier speaks of it from its next change or "
                "the next start of capture on, unless that is mended before"
            )
        for table, why in sorted(self._excluded.items()):
            yield f"the table {table.said} is excluded: {why}; {self._way_back(table, why)}"
        yield from self.removed
        if self.frontier is not None and self.frontier.frontier.paused is not None:
            yield (
                f"signal {self.frontier.frontier.paused} pauses the stream, and the slot keeps "
                "WAL: a row `resume` of changelog.changelog_signal ends that"
            )
        if self.undone:
            yield f"{self.undone}; the next start of capture copies every table"
        age, lag, limits = self.frontier_age_s, self.lag_bytes, self.limits
        if age is None:
            yield "the log has no frontier yet: no snapshot is whole"
            return
        if age > limits.max_frontier_age_s:
            yield f"the last frontier is {age:,.0f} s old, over {limits.max_frontier_age_s:g} s"
        if limits.max_lag_bytes is not None and lag is not None and lag > limits.max_lag_bytes:
            yield f"the log is {lag:,} bytes of WAL behind, over {limits.max_lag_bytes:,}"

    def to_json(self) -> dict[str, object]:
        """Return the status as one JSON object; what is unknown is null."""
        return {
            "ok": not self.problems,
            "problems": list(self.problems),
            "unanswered": dict(self.unanswered),
            "slot": self.slot_name,
            **self._source_json(),
            "lag_bytes": self.lag_bytes,
            "lag_s": self.lag_s,
            "not_captured": self.missing if self.knows_both else None,
            "aside": self.excluded if self.knows_log else None,
            "children": self.children if self.knows_log else None,
            "key_indexes": {name: index.name for name, index in sorted(self.key_indexes.items())}
            if self.knows_log
            else None,
            "frontier": self._frontier_json(),
        }

    def _source_json(self) -> dict[str, object]:
        source = self.source
        slot = source.slot if source else None
        highest = self.rate.highest if self.rate else None
        return {
            "exists": slot is not None if source else None,
            "active": slot.active if slot else None,
            "temporary": slot.temporary if slot else None,
            "plugin": slot.plugin if slot else None,
            "slot_type": slot.slot_type if slot else None,
            "xmin": slot.xmin if slot else None,
            "catalog_xmin": slot.catalog_xmin if slot else None,
            "wal_status": slot.wal_status if slot else None,
            "invalidation_reason": slot.invalidation if slot else None,
            "inactive_since": slot.inactive_since if slot else None,
            "restart_lsn": _text(slot.restart_lsn) if slot else None,
            "confirmed_flush_lsn": _text(slot.confirmed_flush_lsn) if slot else None,
            "wal_lsn": str(source.wal_lsn) if source else None,
            "unacknowledged_bytes": slot.lag_bytes if slot else None,
            "retained_bytes": slot.retained_bytes if slot else None,
            "max_slot_wal_keep_bytes": source.keep_limit_bytes if source else None,
            "disk_free_bytes": source.disk_free_bytes if source else None,
            "wal_bytes_per_s": {
                "now": self.rate.now if self.rate else None,
                "average": self.rate.average if self.rate else None,
                "used": highest[1] if highest else None,
            },
            "reserves": [asdict(reserve) for reserve in self.reserves] if source else None,
        }

    def _frontier_json(self) -> dict[str, object] | None:
        record = self.frontier
        if record is None:
            return None
        return {
            "epoch": record.frontier.epoch,
            "lsn": str(record.frontier.lsn),
            "ts": record.frontier.ts_us,
            "age_s": self.frontier_age_s,
            "tables": sorted(str(table) for table in record.frontier.tables.values()),
            "records": self.records,
            "uncopied": list(self.uncopied),
            "signals": {
                str(number): outcome for number, outcome in record.frontier.signals.items()
            },
            "paused": record.frontier.paused,
        }

    def table(self) -> Table:
        """Return the status for people."""
        table = Table(title=f'slot "{self.slot_name}"', show_header=False)
        for name, text in self._lines():
            table.add_row(name, text)
        return table

    def _lines(self) -> Iterator[tuple[str, str]]:
        record = self.frontier
        if self.source is None:
            yield "slot", "unknown"
        else:
            yield from _slot_lines(self.source.slot)
            yield from self._reserve_lines(self.source)
        if record is not None:
            lag = self.lag_bytes
            behind = None if lag is None else f"{lag:,} bytes, at most {self.lag_s or 0:,.1f} s"
            yield "behind", behind or "unknown"
            yield "frontier", f"{record.frontier.lsn}, epoch {record.frontier.epoch}"
            yield "frontier's age", f"{self.frontier_age_s:,.0f} s"
        else:
            yield "frontier", "none yet" if self.knows_log else "unknown"
        for name, count in self.records.items():
            part = ", changes alone" if name in self.uncopied else ""
            yield name, f"{count:,} offsets written{part}"
        for name, children in self.children.items():
            yield name, f"without the rows of {', '.join(children)}, which inherit from it"
        for name, index in sorted(self.key_indexes.items()):
            yield name, f"its key is that of the unique index {index}"
        if record is not None and record.frontier.signals:
            number, outcome = list(record.frontier.signals.items())[-1]
            yield "last signal", f"{number}: {outcome}"
        for name, why in self.missing.items():
            yield "not captured", f"{name}: {why}"
        for problem in self.problems:
            yield "PROBLEM", problem

    def _reserve_lines(self, source: SourceState) -> Iterator[tuple[str, str]]:
        highest = self.rate.highest if self.rate else None
        if highest:
            yield "WAL written", f"{highest[0]:,.0f} bytes/s ({_RATES[highest[1]]})"
        if source.keep_limit_bytes is None:
            yield "limit", "none: max_slot_wal_keep_size is not set, only the disk ends it"
        for reserve in self.reserves:
            seconds = reserve.seconds_left
            duration = (
                "" if seconds is None else f", {_duration(seconds)} if nothing is acknowledged"
            )
            yield _LIMITS[reserve.limit], f"{max(reserve.bytes_left, 0):,} bytes left{duration}"


_RATES = {"now": "now", "average": "average since its statistics began"}
_LIMITS = {
    "max_slot_wal_keep_size": "until the slot's limit",
    "disk": "until pg_wal's disk is full",
}


def _slot_lines(slot: SlotStatus | None) -> Iterator[tuple[str, str]]:
    if slot is None:
        yield "slot", "missing"
        return
    since = f" since {slot.inactive_since}" if slot.inactive_since else ""
    state = f"active, process {slot.active_pid}" if slot.active else f"idle{since}"
    yield "slot", f"{state}, temporary" if slot.temporary else state
    plugin = f", plugin {slot.plugin}" if slot.plugin else ""
    kept = {"xmin": slot.xmin, "catalog_xmin": slot.catalog_xmin}
    rows = "".join(f", {name} {xid}" for name, xid in kept.items() if xid is not None)
    yield "kind", slot.slot_type + plugin + rows
    reason = f": {slot.invalidation}" if slot.invalidation else ""
    yield "WAL", slot.wal_status + reason
    yield "retained", f"{slot.retained_bytes or 0:,} bytes of WAL"


def _slot_problems(slot: SlotStatus | None, limits: Limits) -> Iterator[str]:
    if slot is None:
        if not limits.temporary_slot:
            yield "there is no slot"
        elif not limits.allow_inactive:
            yield "there is no slot: it is temporary, and capture does not run"
        return
    if slot.wal_status == "lost" or slot.invalidation:
        yield f"the slot is lost: {why_lost(slot.invalidation)}"
    elif slot.wal_status == "unreserved":
        yield "the slot is about to be lost: its WAL goes at the next checkpoint"
    if not slot.active and not limits.allow_inactive:
        yield "no process reads the slot: capture does not run"


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _duration(seconds: float) -> str:
    """Return a time in the largest unit that leaves at least two of it.

    >>> _duration(90), _duration(7200), _duration(1e6)
    ('90 s', '120 min', '11 d')
    """
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtSource:
    """State of the source: the server at two moments, and the tables that match."""

    before: SourceState
    now: SourceState
    matches: Mapping[TableName, str]
    is_standby: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnLog:
    """State of the log."""

    frontier: FrontierRecord | None
    backfill: BackfillRecord | None
    key_indexes: Mapping[str, KeyIndex]
    removed: tuple[str, ...]


def capture_status(
    settings: Project,
    limits: Limits | None = None,
    *,
    apart_s: float = APART_S,
    steps: Steps = UNSEEN,
) -> CaptureStatus:
    """Ask source and log; takes `apart_s` seconds, over which the rate of the WAL is measured.

    Whether brokers answer at all is found out beside the source, and neither is waited for on
    account of the other. The frontier is read last. So of a capture that keeps up it has passed the
    source's first observation, and the lag in time is at most the time since that.

    Raises ConfigurationError: the source does not let us in; RefusedAccessError: the brokers do
    not.
    """
    unanswered: dict[str, str] = {}
    source, log = None, None
    with (
        FrontierLog(settings.kafka, frontier_topic(settings.topic_prefix)) as frontiers,
        ThreadPoolExecutor(1, "status") as beside,
    ):
        met = beside.submit(frontiers.cluster_id, patient=False)
        try:
            source = _at_source(settings, apart_s, steps)
        except UnavailableSourceError as error:
            unanswered[SOURCE] = str(error.args[0])
        try:
            steps.more(1)
            steps.begin("brokers")
            met.result()
            steps.done()
            exists = source is not None and source.now.slot is not None
            log = _on_log(frontiers, settings, steps, unanswered, exists=exists)
        except RefusedAccessError:
            raise
        except UnavailableLogError as error:
            unanswered[LOG] = str(error.args[0])
    return CaptureStatus(
        slot_name=settings.slot,
        source=source.now if source else None,
        rate=WalRate.between(_mark(source.before), source.now) if source else None,
        frontier=log.frontier if log else None,
        lag_s=_lag_s(source, log.frontier) if source and log and log.frontier else None,
        now_ms=time.time_ns() // 1_000_000,
        limits=limits or Limits(),
        backfill=log.backfill if log else None,
        matches=source.matches if source else {},
        removed=log.removed if log else (),
        key_indexes=log.key_indexes if log else {},
        unanswered=unanswered,
        undone=_undone(source, log.frontier) if source and log and log.frontier else "",
    )


def _at_source(settings: Project, apart_s: float, steps: Steps) -> _AtSource:
    steps.more(3)
    steps.begin("source")
    with closing(connect(settings.postgres)) as connection:
        slot = settings.slot
        groups = [group.slot for group in settings.capture.slot_groups]
        before = ask_source(connection, slot, groups)
        steps.done()
        steps.begin("how fast WAL is written")
        time.sleep(apart_s)
        now = ask_source(connection, slot, groups)
        steps.done()
        steps.begin("tables that match")
        matches = matching(connection, settings.capture)
        steps.done()
        is_standby = in_recovery(connection)
        return _AtSource(before=before, now=now, matches=matches, is_standby=is_standby)


def _on_log(
    frontiers: FrontierLog,
    settings: Project,
    steps: Steps,
    unanswered: dict[str, str],
    *,
    exists: bool,
) -> _OnLog:
    slot = settings.slot
    steps.more(3)
    steps.begin("frontier")
    record = frontiers.last(slot)
    standings = frontiers.standings(slot)
    steps.done()
    tables = standings.tables.values() if standings is not None else ()
    steps.begin("copies of tables")
    backfill = frontiers.backfill(slot)
    steps.done()
    steps.begin("topics")
    lost = (*_removed(frontiers, record, slot, exists=exists), *_altered(settings, record))
    steps.done()
    if record is not None:
        steps.more(1)
        steps.begin("schemas")
        lost = (*lost, *_lost_schemas(settings, record.frontier, unanswered))
        steps.done()
    return _OnLog(
        frontier=record,
        backfill=backfill,
        key_indexes={
            str(relation.name): relation.key_index
            for relation in tables
            if relation.key_index is not None
        },
        removed=lost,
    )


def _altered(settings: Project, record: FrontierRecord | None) -> Iterator[str]:
    """Yield the topics of tables whose settings were altered, so that readers refuse them."""
    frontier = record.frontier if record is not None else None
    expected = settings.capture.topics
    for topic, description in describe(settings.kafka, frontier.tables if frontier else ()).items():
        keyed = frontier is not None and frontier.scope_of(topic).keyed
        must = expected if keyed else replace(expected, compacted=False)
        if differences := must.differences(description.settings):
            yield altered(topic, differences)


def _lost_schemas(
    settings: Project, frontier: Frontier, unanswered: dict[str, str]
) -> Iterator[str]:
    """Yield that the registry lacks schemas of topics; note where it does not answer."""
    try:
        lost = lost_schemas(settings.registry, frontier.registered)
    except LogError as error:
        unanswered[REGISTRY] = f"{error.args[0]}: whether it has the log's schemas is not known"
        return
    if lost:
        yield (
            f"the schema registry does not have the schemas of {', '.join(lost)}: what was written "
            f"under them cannot be read; {PUT_BACK}"
        )


def _lag_s(source: _AtSource, record: FrontierRecord) -> float:
    clock = LagClock()
    clock.note(_mark(source.before))
    frontier = record.frontier
    return clock.lag_s(frontier.lsn, frontier.ts_us, _mark(source.now))


def _undone(source: _AtSource, record: FrontierRecord) -> str:
    """Compare the end of the WAL with the frontier; return the problem, or nothing.

    A capture that runs has seen to that at its start, and its frontier may be newer than what was
    asked of the source; a standby may be about to receive what the log holds.
    """
    slot, reached = source.now.slot, record.frontier.lsn
    if slot is None or slot.active or source.is_standby or source.now.wal_lsn >= reached:
        return ""
    return behind(source.now.wal_lsn, reached)


def _mark(source: SourceState) -> WalMark:
    return WalMark(source.now_us, source.wal_lsn)


def _removed(
    frontiers: FrontierLog, record: FrontierRecord | None, slot: str, *, exists: bool
) -> Iterator[str]:
    lost = frontiers.lost(slot) if exists else ""
    if lost:
        yield f"{lost}; start `changelog capture`, it says what to do"
    if record is not None:
        topics = watched(record.frontier)
        places = frontiers.standing(topics)
        starts = {topic: place.starts for topic, place in places.items()}
        ends = {topic: place.ends for topic, place in places.items()}
        for topic in topics:
            error = removed(record.frontier, topic, starts, ends)
            if topic not in places or places[topic].topic_id != record.frontier.topic_ids.get(
                topic
            ):
                fate = "was made anew" if topic in places else "was deleted"
                yield (
                    f'topic "{topic}" {fate}: what it held is lost; start `changelog capture` with '
                    "`--on-incompatible resnapshot`: it copies the table anew"
                )
            elif error is not None:
                yield f"{error.args[0]}; {error.hint}"


def last_frontier(settings: Project) -> FrontierRecord | None:
    """Return the last frontier of the project's slot, or None if there is none.

    Raises UnavailableLogError: the broker does not answer.
    """
    with FrontierLog(settings.kafka, frontier_topic(settings.topic_prefix)) as frontiers:
        return frontiers.last(settings.slot)


def drop_slot_of(settings: Project) -> None:
    """Drop the slots of the project and of its groups of tables.

    Raises SlotError: it is not there, or a process reads it.
    """
    with closing(connect(settings.postgres)) as connection:
        slots = settings.capture.slots
        there = [slot for slot in slots if inspect_slot(connection, slot) is not None]
        if not there:
            names = " and no ".join(f'slot "{slot}"' for slot in slots)
            raise SlotError(f"there is no {names}")
        for slot in there:
            drop_slot(connection, slot)
