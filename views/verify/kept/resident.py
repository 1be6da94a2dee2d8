"""States that a follower's process keeps and brings from frontier to frontier.

A follower proves some keys every second or two. The proved states stay in a database of their own,
and only the newer records of each topic are read, by the verifier's own reader; so the cost of a
proof depends on what changed. The rules are those of states that are stored in files
(`views.verify.kept.judgement`); if one is broken, the follower begins again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Self

import duckdb
import pyarrow as pa

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import VerdictError
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from changelog.kafka.clients import KeptKafka
from changelog.runtime.closed_database import return_freed
from views.verify.kept.declared import KeptLog
from views.verify.kept.judgement import (
    Cleaning,
    Proved,
    SchemaReading,
    cannot_be_kept,
    not_exact,
    now_ms,
    obstacles,
    too_late,
)
from views.verify.kept.rows import OWN_COLUMNS, TouchedRows
from views.verify.log.registry import WriterSchemas
from views.verify.log.states import FrontierTables, Taken
from views.verify.log.tables import (
    KEY_COLUMN,
    OFFSET_COLUMN,
    PARTITION_COLUMN,
    TableState,
    create_view,
    decoded_tables,
    inexact_in,
)
from views.verify.processes.scratch import MEMORY_LIMIT, answers, insert, lent, scratch, together
from views.verify.processes.stages import StageTimes
from views.verify.records.read import settings_of, unmoved
from views.verify.values.types import quoted

_REPLACED_BYTES = 32 << 20
"""Of decoded rows that replace others in one step."""


class ResidentStates:
    """The states of some tables at the frontier of a follower; a context manager.

    `pins`: by topic the versions of schemas to read by. `declared`: the tables that are logs of
    other programs. `work_directory`: the folder for the database, None for the system's temporary
    one. `memory_limit`: DuckDB's, in its own notation.

    Attributes:
        frontier: of the states.
    """

    database: duckdb.DuckDBPyConnection  # holds them

    def __init__(
        self,
        kafka: KafkaConnection,
        registry: RegistryConnection,
        *,
        pins: Mapping[str, SchemaPin],
        declared: Sequence[DeclaredLog] = (),
        work_directory: Path | None = None,
        memory_limit: str = MEMORY_LIMIT,
    ) -> None:
        self._kafka, self._registry, self._pins = KeptKafka.of(kafka), registry, pins
        self._schemas = WriterSchemas(registry)
        self._declared = {log.table: log for log in declared}
        self._place, self._memory_limit = work_directory, memory_limit
        self._held = ExitStack()
        self._tables: dict[TableName, Taken] = {}
        self._proved: dict[TableName, Proved] = {}
        self._logs: dict[TableName, KeptLog] = {}
        self._touched: dict[TableName, int] = {}
        self._answers = False
        self._uses_all_cores = True
        self.stages = StageTimes()  # how long each stage took

    def __enter__(self) -> Self:
        """Open the database."""
        self.database = self._held.enter_context(scratch(self._place, self._memory_limit))
        self._held.callback(self._kafka.close)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the database."""
        self._held.close()

    def begin(
        self,
        record: FrontierRecord,
        tables: Sequence[TableName],
        captured: Sequence[FrontierRecord] = (),
        *,
        asked_ms: int | None = None,
    ) -> None:
        """Read the states of tables from the start of their topics.

        `record`: the frontier, which may name several logs. `captured`: the frontiers of its parts,
        if it does. `asked_ms`: our clock before the ends of declared logs were asked for.

        Raises VerdictError: a state cannot be brought from frontier to frontier here, or the log
        has lost records of it; ChangelogError: the log or the registry cannot be read.
        """
        self.frontier = record.frontier
        log = self._log(record)
        topics = self._topics(tables, record)
        settings = settings_of(self._kafka, topics.values())
        for number, table in enumerate(tables):
            if table in self._declared:
                self._begin_declared(table, f"resident_{number}", asked_ms)
                continue
            proved, begun_ms = self._case(log, topics[table], record, captured, settings), now_ms()
            with self.stages.of("read"):
                folded = log.fold(table)
            with self.stages.of("fold and decode"):
                state = log.load(folded, keyed=True)
            _require_keyed(state)
            why = not_exact(proved, begun_ms=begun_ms, ended_ms=now_ms(), whole=True)
            if why is not None:
                raise VerdictError(f"topic {proved.topic}: {why}")
            own = f"resident_{number}"
            self.database.execute(f"ALTER TABLE {quoted(state.base)} RENAME TO {quoted(own)}")
            state = replace(state, base=own)
            create_view(self.database, state)
            self._tables[table] = Taken(state=state, records=folded.records)
            self._proved[table] = proved

    def advance(
        self,
        record: FrontierRecord,
        captured: Sequence[FrontierRecord] = (),
        *,
        asked_ms: int | None = None,
    ) -> None:
        """Bring the states to a later frontier; see `begin`.

        Raises:
            VerdictError: the present states do not lead there.
            ChangelogError: the log or the registry cannot be read; the states are unusable then.
        """
        self._require_database()
        log = self._log(record)
        self._touched = dict.fromkeys(self._tables, 0)
        for table in self._logs:
            self._advance_declared(table, record.frontier, asked_ms)
        topics = self._topics(self._tables, record)
        begun_ms, settings = now_ms(), settings_of(self._kafka, topics.values())
        proved = {
            table: self._case(log, topic, record, captured, settings)
            for table, topic in topics.items()
        }
        with unmoved(self._kafka, record.frontier, [*dict.fromkeys(topics.values())]) as facts:
            for table, topic in topics.items():
                reasons = obstacles(
                    self._proved[table],
                    proved[table].frontier,
                    reading=proved[table].reading,
                    cleaning=proved[table].cleaning,
                    starts=facts[topic].starts,
                    now_ms=now_ms(),
                )
                if why := "; ".join(reasons):
                    raise VerdictError(f"topic {topic}: {why}")
            for table, topic in topics.items():
                before = self._proved[table]
                if before.frontier.ends[topic] != proved[table].frontier.ends[topic]:
                    taken = self._tables[table]
                    self._tables[table] = self._advanced(log, table, taken, before)
        ended_ms = now_ms()
        for table, topic in topics.items():
            late = too_late(self._proved[table], proved[table].cleaning, ended_ms)
            late = late or not_exact(
                proved[table], begun_ms=begun_ms, ended_ms=ended_ms, whole=False
            )
            if late is not None:
                raise VerdictError(f"topic {topic}: {late}")
        self._proved |= proved
        self.frontier = record.frontier

    def state(self, table: TableName) -> TableState:
        """Return the state of a table.

        Raises VerdictError: an error inside DuckDB has ended the database.
        """
        if not self._answers:
            self._require_database()
            self._answers = True
        return self._tables[table].state

    def use_all_cores(self, *, is_much: bool) -> None:
        """Have the next queries use all cores where there is much to do, else one.

        A second core makes a query of some milliseconds no faster, and costs a sixth more CPU.
        """
        if is_much != self._uses_all_cores:
            # An error inside DuckDB has ended it then, which is for whoever asks it next.
            with suppress(duckdb.Error):
                self.database.execute("RESET threads" if is_much else "SET threads = 1")
            self._uses_all_cores = is_much

    def return_freed(self) -> None:
        """Return to the system what the database has freed."""
        return_freed(self.database, self._memory_limit)

    def restore(self) -> None:
        """Ask, before the next verification, whether the database has ended with this one.

        States that were lost with it are read again in a later round.
        """
        self._answers = False

    def _require_database(self) -> None:
        if not answers(self.database):
            raise VerdictError("an error inside DuckDB has ended the database of the proofs")

    def taken(self, table: TableName) -> Taken | None:
        """Return a table's state and how it was obtained, or None if it has not been read."""
        return self._tables.get(table)

    def touched(self, table: TableName) -> int:
        """Return the number of keys of a table that changed on the way to the frontier."""
        return self._touched[table]

    def differing(self, table: TableName, places: pa.Table) -> int:
        """Return the number of records that only this state has, or only another reader's.

        `places`: partition and offset of the record of each row, as another reader has them.
        """
        here = (
            f'SELECT {PARTITION_COLUMN}::BIGINT AS part, {OFFSET_COLUMN}::BIGINT AS "offset"'
            f" FROM {quoted(self._tables[table].state.base)}"
        )
        there = 'SELECT "partition" AS part, "offset" FROM places'
        query = f"SELECT count(*) FROM (({here} EXCEPT {there}) UNION ALL ({there} EXCEPT {here}))"
        with lent(self.database, "places", places):
            return int(self.database.execute(query).fetchall()[0][0])

    def is_declared(self, table: TableName) -> bool:
        """Tell whether a table is the log of another program."""
        return table in self._declared

    @staticmethod
    def left_out(_table: TableName) -> int:
        """Return 0: a record that cannot be read ends the proof."""
        return 0

    @staticmethod
    def forget(_tables: Collection[TableName]) -> None:
        """Do nothing: a mismatch ends the follower, and these states with it."""

    def _begin_declared(self, table: TableName, base: str, asked_ms: int | None) -> None:
        log, pin = self._declared[table], self._pins.get(self._declared[table].topic)
        kept = KeptLog(self.database, self._kafka, self._schemas, log, pin=pin, base=base)
        with self.stages.of("read"):
            state = kept.begin(self.frontier, asked_ms)
        self._logs[table] = kept
        self._tables[table] = Taken(state=state, records=kept.records)

    def _advance_declared(self, table: TableName, frontier: Frontier, asked_ms: int | None) -> None:
        kept, before = self._logs[table], self._tables[table]
        with self.stages.of("read"):
            state = kept.advance(frontier, asked_ms)
        self._touched[table] = kept.touched
        self._tables[table] = replace(before, state=state, records=kept.records)

    def _advanced(
        self, log: FrontierTables, table: TableName, taken: Taken, before: Proved
    ) -> Taken:
        with self.stages.of("read"):
            folded = log.fold(table, behind=before.frontier)
        form = log.form(folded, keyed=True)
        _require_keyed(form)
        assert folded.decoder is not None  # noqa: S101 - else it has no form
        state = replace(form, base=taken.state.base, inexact=taken.state.inexact)
        touched, count = TouchedRows(folded.survivors), 0
        decoded = decoded_tables(state, folded.decoder, touched)
        with self.stages.of("fold, decode and replace"):
            for rows in chain(together(decoded, _REPLACED_BYTES), [None]):
                # Of all records that were read by now; those of rows are decoded after their keys.
                count += self._remove(state.base, touched)
                if rows is not None:
                    insert(self.database, state.base, rows)
                    state = replace(state, inexact=state.inexact | inexact_in(state, rows))
        self._touched[table] = count
        if state != taken.state:
            create_view(self.database, state)
        since = {"lsn": str(before.frontier.lsn), "begun": ""}
        return Taken(state=state, records=folded.records, since=since)

    def _remove(self, base: str, touched: TouchedRows) -> int:
        """Remove the rows of the touched keys; return how many keys there were."""
        chunks = [chunk for array in touched.taken() for chunk in array.chunks]
        keys = pa.table({KEY_COLUMN: pa.chunked_array(chunks, pa.binary())})
        if keys.num_rows:
            gone = f"{KEY_COLUMN} IN (SELECT {KEY_COLUMN} FROM touched)"
            with lent(self.database, "touched", keys):
                self.database.execute(f"DELETE FROM {quoted(base)} WHERE {gone}")
        return int(keys.num_rows)

    def _log(self, record: FrontierRecord) -> FrontierTables:
        return FrontierTables(
            self.database,
            self._kafka,
            self._registry,
            record.frontier,
            pins=self._pins,
            work_directory=self._place,
            schemas=self._schemas,
        )

    def _topics(self, tables: Iterable[TableName], record: FrontierRecord) -> dict[TableName, str]:
        """Return the topics of captured tables."""
        topics = {}
        for table in tables:
            if table in self._declared:
                continue
            topic = record.frontier.topic_of(table)
            if topic is None or topic not in self._pins:
                raise VerdictError(f"table {table} is not captured any more")
            topics[table] = topic
        return topics

    def _case(
        self,
        log: FrontierTables,
        topic: str,
        record: FrontierRecord,
        captured: Sequence[FrontierRecord],
        settings: Mapping[str, Mapping[str, str]],
    ) -> Proved:
        """Return the description of a table's state at a frontier, for use once it is read."""
        own = record.frontier.of(topic)
        parts = (cut.appended_ms for cut in captured if cut.frontier is own)
        if why := "; ".join(cannot_be_kept(own, topic)):
            raise VerdictError(f"topic {topic}: {why}")
        pin = self._pins[topic]
        text = log.schema_text(pin.value)
        return Proved(
            topic=topic,
            frontier=own,
            appended_ms=next(parts, record.appended_ms),
            cleaning=Cleaning.of(settings[topic]),
            reading=SchemaReading.by(pin, text),
        )


def _require_keyed(state: TableState) -> None:
    if not state.is_keyed or OWN_COLUMNS & {column.column.lower() for column in state.columns}:
        raise VerdictError(f"rows of {state.table} are not read by column, so none can be replaced")
