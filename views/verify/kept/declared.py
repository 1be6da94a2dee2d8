"""The state of a declared log in DuckDB, brought forward by the records appended since.

A whole reading reads each record of the log. Here the rows stay, and with them of each key where it
stands (`views.verify.kept.statements`); of the log only what came since is read. Whether that
leads to what a whole reading would give is judged by `views.verify.kept.appended`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, UnavailableLogError, VerdictError
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.schema import SchemaPin
from views.verify.kept.appended import (
    Standing,
    lacking,
    may_lack,
    not_ahead,
    not_exact_whole,
    not_the_same,
)
from views.verify.kept.judgement import Cleaning
from views.verify.kept.statements import KeptStatements
from views.verify.log.declared import DeclaredReader, declared_facts, take_said
from views.verify.log.registry import Schemas
from views.verify.log.tables import TableState
from views.verify.processes.memory import let_go
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

    Args:
        database: holds the state.
        kafka: the brokers.
        schemas: where Avro schemas come from.
        log: as declared.
        pin: the version of its schema that rows are read as; None of a log without a registry.
        base: name of the table that holds the rows; those of other tables begin with it.

    Attributes:
        records: how many were read last.
        touched: how many keys these told of, also of those that had no row and have none.

    Raises:
        CorruptRecordError: the schema is not of the declared form.
        UnavailableLogError: the registry does not answer.
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        kafka: KafkaConnection,
        schemas: Schemas,
        log: DeclaredLog,
        *,
        pin: SchemaPin | None,
        base: str,
    ) -> None:
        self._database, self._kafka, self._log = database, kafka, log
        self._reader = DeclaredReader(log, schemas, 0 if pin is None else pin.value)
        self._kept = KeptStatements(database, self._reader, base)
        self._said = f"{base}_said"
        self._stood: Standing | None = None
        self.records = self.touched = 0

    def begin(self, frontier: Frontier, asked_ms: int | None = None) -> TableState:
        """Read the log whole, up to its ends in a frontier.

        Args:
            frontier: has them.
            asked_ms: our clock before they were asked for; None where nobody knows.

        Raises:
            VerdictError: what was read may not be all, or cannot be brought forward.
            CorruptRecordError: a record cannot be read, or nothing says which of two is newer.
            LogError: the topic is not the one of the frontier.
            UnavailableLogError: the brokers do not answer.
        """
        self._stood, begun_ms = None, _now_ms()
        before, _ = self._standing(frontier, asked_ms)
        starts = tuple(map(min, before.begins, before.ends))
        counts = self._read(starts, before.ends)
        now, appended = self._standing(frontier, asked_ms)
        ended_ms = _now_ms()
        self._require("; ".join(not_the_same(before, now)))
        self._require(
            not_exact_whole(before, now, appended=appended, begun_ms=begun_ms, ended_ms=ended_ms)
        )
        state = self._kept.begin(self._said)
        self._taken(now, counts)
        self.touched = 0
        let_go()
        return state

    def advance(self, frontier: Frontier, asked_ms: int | None = None) -> TableState:
        """Bring the state to the log's ends in a later frontier; it is left as it was by an error.

        Args:
            frontier: has them.
            asked_ms: our clock before they were asked for; None where nobody knows.

        Raises:
            VerdictError: what is held, with what came since, may not be what a whole reading gives.
            UnavailableLogError: the brokers do not answer.
        """
        before = self._stood
        if before is None:
            raise VerdictError(f'topic "{self._log.topic}": nothing is held of it')
        with _refusing():
            topic_id = frontier.topic_ids.get(self._log.topic, before.topic_id)
            self._require("; ".join(not_ahead(before, topic_id, self._ends(frontier))))
            now, _ = self._standing(frontier, asked_ms)
            self._require("; ".join(not_the_same(before, now)))
            if now.ends == before.ends:
                self._taken(now, [])
                self.touched = 0
                return self._kept.state
            # Of a partition of which nothing was part yet, the log may begin behind the old end.
            starts = tuple(
                min(max(was, begin), end)
                for was, begin, end in zip(before.ends, now.begins, now.ends, strict=True)
            )
            counts = self._read(starts, now.ends)
            now, _ = self._standing(frontier, asked_ms)
            ended_ms = _now_ms()
            self._require("; ".join(not_the_same(before, now)))
            lacks = "; ".join(lacking(starts, now.ends, counts))
            if lacks and (why := may_lack(before, now, ended_ms=ended_ms)):
                self._require(f"{lacks}; {why}")
            state, touched = self._kept.advance(self._said)
        self._taken(now, counts)
        self.touched = touched
        return state

    @property
    def state(self) -> TableState:
        """Return the state as it is."""
        return self._kept.state

    def _ends(self, frontier: Frontier) -> tuple[int, ...]:
        if self._log.topic not in frontier.ends:
            raise VerdictError(f'topic "{self._log.topic}": nobody says where it ends')
        return frontier.ends[self._log.topic]

    def _standing(
        self, frontier: Frontier, asked_ms: int | None
    ) -> tuple[Standing, tuple[int, ...]]:
        """Return the log's present identity and settings, and the present end of each partition."""
        topic, log = self._log.topic, self._log
        ends = self._ends(frontier)
        facts = declared_facts(self._kafka, frontier, log)
        leaders = appended_ends(self._kafka, topic, len(ends))
        standing = Standing(
            topic_id=facts.topic_id,
            starts=facts.starts,
            begins=beginnings(frontier, topic, facts.starts),
            ends=ends,
            epochs=tuple(epoch for _, epoch in leaders),
            asked_ms=asked_ms,
            cleaning=Cleaning.of(topic_settings(self._kafka, topic)),
        )
        return standing, tuple(end for end, _ in leaders)

    def _read(self, starts: tuple[int, ...], ends: tuple[int, ...]) -> list[int]:
        """Read what records say; returns how many there were in each partition."""
        topic = self._log.topic
        require_stable(self._kafka, topic, ends)
        records = messages(self._kafka, topic, dict(enumerate(starts)), dict(enumerate(ends)))
        counts = take_said(self._database, self._said, self._reader, records, None)
        return [counts[number] for number in range(len(ends))]

    def _taken(self, now: Standing, counts: list[int]) -> None:
        self._database.execute(f"DROP TABLE IF EXISTS {quoted(self._said)}")
        self._stood, self.records = now, sum(counts)

    def _require(self, why: str | None) -> None:
        if why:
            raise VerdictError(f'topic "{self._log.topic}": {why}')


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn a failed precondition into an error that says the state cannot be brought forward.

    Raises:
        VerdictError: something is not.
    """
    try:
        yield
    except (VerdictError, UnavailableLogError):
        raise
    except LogError as error:
        raise VerdictError(str(error.args[0]), hint=error.hint) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
