"""Take the states of tables from stored ones, and store the states that were proved.

If a stored state cannot be used, the run goes on: the topic is read from its start, and the report
says why.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import duckdb

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.forms.event_record import read_value_schema
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from changelog.native.choice import IS_COMPILED
from views.verify.kept.folder import KeptTopic, kept_root, remove_gone, topic_in
from views.verify.kept.judgement import (
    Cleaning,
    Proved,
    SchemaReading,
    cannot_be_kept,
    not_exact,
    now_ms,
    obstacles,
    too_late,
    unfit,
)
from views.verify.kept.manifest import BrokenError, KeptFile, ProofManifest
from views.verify.kept.rows import OWN_COLUMNS, TouchedRows, joined, mark_gone, write_rows
from views.verify.kept.stored import StoredTopic
from views.verify.log.states import FrontierTables, Taken
from views.verify.log.tables import TableState, create_view
from views.verify.processes.scratch import row_count
from views.verify.processes.stages import StageTimes
from views.verify.records.read import appended_ms, topic_facts, topic_settings, unmoved

log = logging.getLogger("changelog.views")

_MANY_LAYERS = 16
"""So many layers are merged into one."""
_LAYERS_OF_BASE = 5
"""Layers are merged into the base when they have one row for so many of its own."""
_SMALL_ROWS = 10_000
"""A base of fewer rows counts as one of so many."""
_PATTERN = frozenset("*?[")
"""Characters of a pattern in a path for DuckDB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Where states are kept, and whether they are used, begun or both."""

    warehouse: str  # folder or URI
    frontier_topic: str  # the topic of the frontier
    offset: int  # of the frontier there
    goes_on: bool  # whether stored states are used
    begins: bool  # whether proved states are stored also of tables that have none yet


NOWHERE = Keeping(warehouse="", frontier_topic="", offset=0, goes_on=False, begins=False)
"""No state is stored, and none is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A topic whose state may be kept."""

    place: KeptTopic | StoredTopic
    cleaning: Cleaning
    reading: SchemaReading
    begun_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProvedState:
    """A state that may be kept: of the whole topic, or of the keys touched since another state."""

    case: _Case
    state: TableState
    records: int
    ended_ms: int
    before: ProofManifest | None = None
    layer: str = ""
    touched: str = ""


class Keeper:
    """Keeps the states of one frontier; a context manager."""

    def __init__(
        self,
        keeping: Keeping,
        database: duckdb.DuckDBPyConnection,
        log_tables: FrontierTables,
        kafka: KafkaConnection,
        frontier: Frontier,
        *,
        here: Path,
        pins: Mapping[str, SchemaPin],
        stages: StageTimes | None = None,
        never: str = "",
    ) -> None:
        """Store the arguments; reads nothing.

        `frontier`: of the states. `here`: a folder of this machine that the database may read, for
        copies of what is kept in a store. `pins`: by topic the versions of schemas to read by.
        `never`: why no state of this run can be stored; empty if it can.
        """
        self._keeping, self._database, self._log = keeping, database, log_tables
        self._kafka, self._frontier, self._pins = kafka, frontier, pins
        self._stages = stages or StageTimes()
        self._nowhere = _why_not_in(keeping.warehouse)
        self._never = never or self._nowhere
        self._here = here
        self._held = ExitStack()
        self._proved_states: dict[TableName, _ProvedState] = {}

    def take(self, table: TableName) -> Taken:
        """Return the state of a table.

        Raises:
            ViewError: the table is not captured.
            LogError: the topic is not what the frontier says.
            CorruptRecordError: a record breaks the contract.
        """
        case, why = self._case(table)
        if case is not None and self._keeping.goes_on:
            result = self._gone_on(table, case)
            if isinstance(result, Taken):
                return result
            why = result
        with self._stages.of("read"):
            folded = self._log.fold(table)
        with self._stages.of("fold and decode"):
            state = self._log.load(folded, keyed=case is not None)
        if case is not None and state.is_keyed:
            self._proved_states[table] = _ProvedState(
                case=case, state=state, records=folded.records, ended_ms=now_ms()
            )
        note = f"{table} was read from its topic's start: {why}" if self._keeping.goes_on else ""
        if note:
            log.info("%s", note)
        left_out = 0 if folded.quarantine is None else len(folded.quarantine)
        return Taken(state=state, records=folded.records, left_out=left_out, note=note)

    def forget(self, tables: Collection[TableName]) -> None:
        """Forget the kept states of tables that a mismatch puts in doubt.

        Whether the view or the recomputed rows are wrong, the next proof reads their topics from
        the start, even if this run did not use their stored states.
        """
        for table in tables:
            self._proved_states.pop(table, None)
            topic = self._frontier.topic_of(table)
            if self._nowhere or topic is None:
                continue
            try:
                self._topic(topic).forget()
            except OSError as error:
                log.warning("what is kept of %s cannot be forgotten, remove it: %s", table, error)

    def keep(self) -> None:
        """Keep the states that were proved."""
        for table, own_state in self._proved_states.items():
            try:
                if (why := self._kept(own_state)) is not None:
                    log.info("what was proved of %s is not kept: %s", table, why)
            except (OSError, duckdb.Error) as error:
                log.warning("what was proved of %s is not kept: %s", table, error)
        if self._proved_states:
            try:
                remove_gone(self._keeping.warehouse, self._frontier, self._here)
            except OSError as error:
                log.warning("states of tables that are no longer captured stay: %s", error)

    def __enter__(self) -> Self:
        """Lock nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the locks."""
        self._held.close()

    def _case(self, table: TableName) -> tuple[_Case | None, str]:
        """Return the facts for keeping a topic's state, or the reason why it is not kept."""
        topic = self._frontier.topic_of(table)
        pin = self._pins.get(topic or "")
        if self._never or topic is None or pin is None:
            return None, self._never or "no version of its schema is given"
        place = self._topic(topic)
        why = "; ".join(cannot_be_kept(self._frontier, topic))
        try:
            if why or not (self._keeping.begins or place.is_there):
                return None, why or "nothing is kept of it"
        except OSError as error:
            return None, str(error)
        cleaning = Cleaning.of(topic_settings(self._kafka, topic))
        why = "; ".join(unfit(cleaning))
        text = self._log.schema_text(pin.value)
        if OWN_COLUMNS & {column.column.lower() for column in read_value_schema(text).columns}:
            why = "it has a column of a name that the verifier uses"
        try:
            self._held.enter_context(place)
        except OSError as error:
            why = str(error)
        if why:
            return None, why
        reading = SchemaReading.by(pin, text)
        case = _Case(place=place, cleaning=cleaning, reading=reading, begun_ms=now_ms())
        return case, "nothing is kept of it yet"

    def _topic(self, topic: str) -> KeptTopic | StoredTopic:
        return topic_in(self._keeping.warehouse, topic, self._here)

    def _gone_on(self, table: TableName, case: _Case) -> Taken | str:
        """Bring a table's kept state forward; return it, or the reason why it cannot be."""
        try:
            with self._stages.of("kept"):
                manifest = case.place.manifest()
        except (BrokenError, OSError) as error:
            log.warning("what is kept of %s is broken: %s", table, error)
            return f"what is kept of it is broken: {error}"
        if manifest is None:
            return "nothing is kept of it yet"
        proved = manifest.proved
        topic = self._frontier.topic_of(table) or ""
        if proved.topic != topic:
            return f'what is kept in its place is of topic "{proved.topic}"'
        reasons = obstacles(
            proved,
            self._frontier,
            reading=case.reading,
            cleaning=case.cleaning,
            starts=topic_facts(self._kafka, self._frontier, topic).starts,
            now_ms=now_ms(),
        )
        if why := "; ".join(reasons):
            return why
        with self._stages.of("read"), unmoved(self._kafka, self._frontier, [topic]):
            folded = self._log.fold(table, behind=proved.frontier)
        touched = TouchedRows(folded.survivors)
        with self._stages.of("fold and decode"):
            layer = self._log.load(replace(folded, survivors=touched), keyed=True)
        ended_ms = now_ms()
        if late := too_late(proved, case.cleaning, ended_ms):
            return late
        places = [case.place.place(file.name) for file in manifest.files]
        with self._stages.of("kept"):
            mark_gone(self._database, layer, touched.keys)
            state, touched_table = joined(self._database, layer, places[0], places[1:])
        inexact = layer.inexact.union(*(file.inexact for file in manifest.files))
        state = replace(state, inexact=inexact)
        create_view(self._database, state)
        self._proved_states[table] = _ProvedState(
            case=case,
            state=state,
            records=folded.records,
            ended_ms=ended_ms,
            before=manifest,
            layer=layer.base,
            touched=touched_table,
        )
        lsn = str(proved.frontier.lsn)
        note = (
            f"{table} was proved on from LSN {lsn}: {folded.records:,} records read, its topic "
            f"from the start at LSN {manifest.begun}"
        )
        since = {"lsn": lsn, "begun": manifest.begun}
        return Taken(state=state, records=folded.records, note=note, since=since)

    def _kept(self, own_state: _ProvedState) -> str | None:
        """Store a state; returns the reason if it is not stored."""
        case, before, topic = own_state.case, own_state.before, own_state.state.topic
        if before is not None and before.proved.frontier == self._frontier:
            return None
        keeping = self._keeping
        at = appended_ms(self._kafka, keeping.frontier_topic, keeping.offset, self._frontier)
        if at is None:
            return "its frontier is not on its topic any more"
        proved = Proved(
            topic=topic,
            frontier=self._frontier,
            appended_ms=at,
            cleaning=case.cleaning,
            reading=case.reading,
        )
        why = not_exact(
            proved, begun_ms=case.begun_ms, ended_ms=own_state.ended_ms, whole=before is None
        )
        if why is not None:
            return why
        if before is None:
            base, *layers = [self._written(case, own_state.state.base, own_state.state.inexact)]
            records, begun = own_state.records, str(self._frontier.lsn)
        else:
            base, *layers = self._layered(own_state, before)
            records, begun = before.records + own_state.records, before.begun
        manifest = ProofManifest(
            proved=proved, base=base, layers=tuple(layers), records=records, begun=begun
        )
        if not case.place.seal(manifest):
            return "another run has kept one in the meantime"
        case.place.sweep()
        return None

    def _layered(self, own_state: _ProvedState, before: ProofManifest) -> list[KeptFile]:
        """Write a state that went on from another, merging layers if they are many or large."""
        case, inexact = own_state.case, own_state.state.inexact
        new = row_count(self._database, own_state.layer)
        if not new:
            return list(before.files)
        rows = new + sum(layer.rows for layer in before.layers)
        if rows * _LAYERS_OF_BASE > max(before.base.rows, _SMALL_ROWS):
            return [self._written(case, own_state.state.base, inexact)]
        if len(before.layers) >= _MANY_LAYERS:
            return [before.base, self._written(case, own_state.touched, inexact)]
        return [*before.files, self._written(case, own_state.layer, inexact)]

    def _written(self, case: _Case, table: str, inexact: Collection[str]) -> KeptFile:
        name = case.place.new_name()
        rows = write_rows(self._database, table, case.place.place(name))
        return case.place.written(name, rows, inexact)


def _why_not_in(warehouse: str) -> str:
    """Return the reason why a warehouse cannot keep states, or an empty text."""
    if not warehouse:
        return "no warehouse is given"
    if kept_root(warehouse) is not None and _PATTERN & set(warehouse):
        return "the name of the warehouse has a sign of a pattern"
    if not IS_COMPILED:
        return "rows are not read by column without the compiled part"
    return ""
