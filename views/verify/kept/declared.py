"""The state of a declared log in DuckDB, brought forward by the records appended since.

A whole read takes each record of the log. Here the rows are stored, with the place of each key's
record (`views.verify.kept.statements`), and only newer records are read. Whether that gives the
same as a whole read is judged by `not_the_same` and the functions after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, UnavailableLogError, VerdictError
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.schema import SchemaPin
from changelog.runtime.process.memory import return_freed
from views.verify.kept.judgement import ALLOWANCE_MS, BROKERS_CLOCK, COMPACTED, Cleaning, now_ms
from views.verify.kept.statements import KeptStatements
from views.verify.log.declared import DeclaredReader, declared_facts, load_statements
from views.verify.log.registry import WriterSchemas
from views.verify.log.tables import TableState
from views.verify.records.read import (
    appended_ends,
    beginnings,
    messages,
    require_stable,
    topic_settings,
)
from views.verify.values.types import quoted


class KeptLog:
    """The state of one declared log in a database, brought forward by the records appended since.

    `schemas`: has the Avro schemas. `pin`: the version of its schema that rows are read as; None of
    a log without a registry. `base`: name of the table of the rows; the names of the other tables
    begin with it.

    Attributes:
        records: how many were read last.
        touched: how many keys they named, those without a row before and after included.

    Raises:
        CorruptRecordError: the schema is not of the declared form.
        UnavailableLogError: the registry does not answer.
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        kafka: KafkaConnection,
        schemas: WriterSchemas,
        log: DeclaredLog,
        *,
        pin: SchemaPin | None,
        base: str,
    ) -> None:
        self._database, self._kafka, self._log = database, kafka, log
        self._reader = DeclaredReader(log, schemas, 0 if pin is None else pin.value)
        self._kept = KeptStatements(database, self._reader, base)
        self._statements = f"{base}_statements"
        self._last: DeclaredStanding | None = None
        self.records = self.touched = 0

    def begin(self, frontier: Frontier, asked_ms: int | None = None) -> TableState:
        """Read the log whole, up to its ends in a frontier.

        `asked_ms`: our clock before the ends were asked for; None if that is not known.

        Raises:
            VerdictError: a record may have been missed, or the state cannot be brought forward.
            CorruptRecordError: a record cannot be read, or nothing says which of two is newer.
            LogError: the topic is not the one of the frontier.
            UnavailableLogError: the brokers do not answer.
        """
        self._last, begun_ms = None, now_ms()
        before, _ = self._standing(frontier, asked_ms)
        starts = tuple(map(min, before.begins, before.ends))
        counts = self._read_statements(starts, before.ends)
        now, appended = self._standing(frontier, asked_ms)
        ended_ms = now_ms()
        self._require("; ".join(not_the_same(before, now)))
        self._require(
            not_exact_whole(before, now, appended=appended, begun_ms=begun_ms, ended_ms=ended_ms)
        )
        state = self._kept.begin(self._statements)
        self._taken(now, counts)
        self.touched = 0
        return_freed()
        return state

    def advance(self, frontier: Frontier, asked_ms: int | None = None) -> TableState:
        """Bring the state to the log's ends in a later frontier; an error leaves it as it was.

        `asked_ms`: our clock before the ends were asked for; None if that is not known.

        Raises VerdictError: the result might differ from that of a whole read;
        UnavailableLogError: the brokers do not answer.
        """
        before = self._last
        if before is None:
            raise VerdictError(f'topic "{self._log.topic}": nothing is held of it')
        with _refusing():
            topic_id = frontier.topic_ids.get(self._log.topic, before.topic_id)
            self._require("; ".join(_not_ahead(before, topic_id, self._ends(frontier))))
            now, _ = self._standing(frontier, asked_ms)
            self._require("; ".join(not_the_same(before, now)))
            if now.ends == before.ends:
                self._taken(now, [])
                self.touched = 0
                return self._kept.state
            # In a partition that had no record of the log yet, it may begin behind the old end.
            starts = tuple(
                min(max(was, begin), end)
                for was, begin, end in zip(before.ends, now.begins, now.ends, strict=True)
            )
            counts = self._read_statements(starts, now.ends)
            now, _ = self._standing(frontier, asked_ms)
            ended_ms = now_ms()
            self._require("; ".join(not_the_same(before, now)))
            lacks = "; ".join(lacking(starts, now.ends, counts))
            if lacks and (why := may_lack(before, now, ended_ms=ended_ms)):
                self._require(f"{lacks}; {why}")
            state, touched = self._kept.advance(self._statements)
        self._taken(now, counts)
        self.touched = touched
        return state

    @property
    def state(self) -> TableState:
        """Return the state as it is."""
        return self._kept.state

    def _ends(self, frontier: Frontier) -> tuple[int, ...]:
        if self._log.topic not in frontier.ends:
            raise VerdictError(
                f'topic "{self._log.topic}": the frontier does not say where it ends'
            )
        return frontier.ends[self._log.topic]

    def _standing(
        self, frontier: Frontier, asked_ms: int | None
    ) -> tuple[DeclaredStanding, tuple[int, ...]]:
        """Return the log's present identity and settings, and the present end of each partition."""
        topic, log = self._log.topic, self._log
        ends = self._ends(frontier)
        facts = declared_facts(self._kafka, frontier, log)
        leaders = appended_ends(self._kafka, topic, len(ends))
        standing = DeclaredStanding(
            topic_id=facts.topic_id,
            starts=facts.starts,
            begins=beginnings(frontier, topic, facts.starts),
            ends=ends,
            epochs=tuple(epoch for _, epoch in leaders),
            asked_ms=asked_ms,
            cleaning=Cleaning.of(topic_settings(self._kafka, topic)),
        )
        return standing, tuple(end for end, _ in leaders)

    def _read_statements(self, starts: tuple[int, ...], ends: tuple[int, ...]) -> list[int]:
        """Load the statements of records; returns the number of records of each partition."""
        topic = self._log.topic
        require_stable(self._kafka, {topic: ends})
        records = messages(self._kafka, topic, dict(enumerate(starts)), dict(enumerate(ends)))
        counts = load_statements(self._database, self._statements, self._reader, records, None)
        return [counts[number] for number in range(len(ends))]

    def _taken(self, now: DeclaredStanding, counts: list[int]) -> None:
        self._database.execute(f"DROP TABLE IF EXISTS {quoted(self._statements)}")
        self._last, self.records = now, sum(counts)

    def _require(self, why: str | None) -> None:
        if why:
            raise VerdictError(f'topic "{self._log.topic}": {why}')


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn a failed precondition into an error that says the state cannot be brought forward."""
    try:
        yield
    except (VerdictError, UnavailableLogError):
        raise
    except LogError as error:
        raise VerdictError(str(error.args[0]), hint=error.hint) from error


# A state is the result of all records before its ends. As long as the leader stays the same, its
# log only grows, so this state with the records up to later ends gives the state at these, if none
# of the records was missed. That is certain where every offset gave a record. Offsets without a
# record are those of aborted transactions and of transaction markers; or of records deleted from
# the start, which moves the log's start; or, on a compacted topic, of records that the cleaner
# removed, one of which may have been the last of its key before the new ends. The cleaner leaves a
# record alone for `min.compaction.lag.ms`, by the broker's clock if the topic's timestamps are the
# broker's; so nothing appended since the old ends were asked for was removed, if that is not longer
# ago. A whole read of a compacted topic is exact by the same rule, or if nothing was appended
# since; and if it ends before any tombstone that it passes may be removed.
@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredStanding:
    """The offsets, leaders and settings of a declared log when it was read to some ends."""

    topic_id: str  # Kafka's id of its topic
    starts: tuple[int, ...]  # per partition the first offset that was there
    begins: tuple[int, ...]  # per partition the first one that is part of the log
    ends: tuple[int, ...]  # per partition where the read ended
    epochs: tuple[int, ...]  # per partition the epoch of its leader; -1 if it is not known
    asked_ms: int | None  # our clock before the ends were asked for; None if that is not known
    cleaning: Cleaning  # the settings of its cleaner


def _not_ahead(before: DeclaredStanding, topic_id: str, ends: Sequence[int]) -> Iterator[str]:
    """Yield the reasons why a topic's ends cannot be later ends of the same log; asks no broker."""
    if before.topic_id != topic_id:
        yield f"its id changed from {before.topic_id} to {topic_id}"
    if len(before.ends) != len(ends):
        yield f"it has {len(ends)} partitions and had {len(before.ends)}"
        return
    for number, (was, end) in enumerate(zip(before.ends, ends, strict=True)):
        if end < was:
            yield f"partition {number} is read to offset {end}, and was to {was}"


def not_the_same(before: DeclaredStanding, now: DeclaredStanding) -> Iterator[str]:
    """Yield the reasons why the log read before is not a prefix of the log as it is now."""
    if reasons := [*_not_ahead(before, now.topic_id, now.ends)]:
        yield from reasons
        return
    for number, was in enumerate(before.ends):
        start, epoch = now.starts[number], now.epochs[number]
        begun, begins = min(before.begins[number], was), min(now.begins[number], was)
        if start > was:
            yield f"partition {number} starts at offset {start}, behind {was}, where it was read to"
        elif begins != begun:
            yield f"partition {number} begins at offset {begins}, and did at {begun}"
        if epoch < 0:
            yield f"the leader of partition {number} is not known"
        elif epoch != before.epochs[number]:
            yield f"partition {number} has got another leader"


def may_lack(before: DeclaredStanding, now: DeclaredStanding, *, ended_ms: int) -> str | None:
    """Return the reason why records between two ends may have been cleaned away, or None.

    `before`: the log at the old ends. `now`: the log after the read.
    """
    if not (_is_cleaned(before.cleaning) or _is_cleaned(now.cleaning)):
        return None
    why = _uncovered((before.cleaning, now.cleaning), before.asked_ms, ended_ms)
    return None if why is None else f"offsets have no record, and {why}"


def not_exact_whole(
    before: DeclaredStanding,
    now: DeclaredStanding,
    *,
    appended: Sequence[int],
    begun_ms: int,
    ended_ms: int,
) -> str | None:
    """Return the reason why a whole read of a log may have missed a record, or None.

    `before`: the log before it was read. `now`: the log after it. `appended`: the present end of
    each partition. `begun_ms`: our clock before the read.
    """
    cleanings = (before.cleaning, now.cleaning)
    if not any(map(_is_cleaned, cleanings)):
        return None
    retention_ms = min(cleaning.retention_ms for cleaning in cleanings)
    if ended_ms + ALLOWANCE_MS >= begun_ms + retention_ms * 9 // 10:
        return "reading it took longer than delete.retention.ms allows"
    if tuple(appended) == now.ends:
        return None
    why = _uncovered(cleanings, now.asked_ms, ended_ms)
    return None if why is None else f"records were appended since its ends were taken, and {why}"


def lacking(begins: Sequence[int], ends: Sequence[int], counts: Sequence[int]) -> Iterator[str]:
    """Yield a sentence for each partition in which not every offset gave a record."""
    for number, (begin, end, count) in enumerate(zip(begins, ends, counts, strict=True)):
        if count != end - begin:
            yield f"partition {number} gave {count} records from offset {begin} to {end}"


def _is_cleaned(cleaning: Cleaning) -> bool:
    return COMPACTED in cleaning.policy


def _uncovered(
    cleanings: tuple[Cleaning, Cleaning], asked_ms: int | None, ended_ms: int
) -> str | None:
    """Return the reason why records appended since a time may have been cleaned away, or None."""
    for cleaning in cleanings:
        if cleaning.clock != BROKERS_CLOCK:
            return f"message.timestamp.type is {cleaning.clock}, not {BROKERS_CLOCK}"
    if asked_ms is None:
        return "it is not known when its ends were asked for"
    if ended_ms + ALLOWANCE_MS >= asked_ms + min(cleaning.lag_ms for cleaning in cleanings):
        return "min.compaction.lag.ms has passed since: some may have been cleaned away"
    return None
