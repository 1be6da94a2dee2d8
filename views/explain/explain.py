"""Traces each field of a row to records on the log, and to the records that they superseded.

The verifier's code finds the rows: it reads the log to the newest frontier, folds it in DuckDB, and
runs the query for the rows' places, which `views.explain.provenance` derives from the view's SQL.
So nothing is built, and Spark is not started. Whatever cannot be traced is named, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import duckdb

from changelog.contract.base.errors import ChangelogError, ViewError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.form import Output
from changelog.contract.rows.relation import TableName
from replay.base.config import OnBadRecord
from views.base.config import RebuildSettings
from views.explain.explanation import Contribution, Contributions, Explanation, RecordOnLog
from views.explain.provenance import FieldOrigin, RowLineage, UntraceableError, columns_of, trace
from views.meaning.view import as_meant
from views.project.history import refuse_history
from views.project.spec import ViewSpec
from views.rebuild.plan.plan import Plan, pins_now, planned
from views.verify.log.states import Folded, FrontierTables
from views.verify.log.tables import (
    OFFSET_COLUMN,
    PARTITION_COLUMN,
    TableState,
    create_view,
    exact_values,
)
from views.verify.processes.scratch import MEMORY_LIMIT, first_row, scratch
from views.verify.sql.translate import MACROS, UnverifiableError, translate
from views.verify.values.names import folded
from views.verify.values.types import Type, duckdb_type, logged_type, quoted

MOST_RECORDS = 1_000
"""Records of a table that are shown, with their total number; each takes some milliseconds."""
MOST_SUPERSEDED = 100
"""Superseded records of a record that are shown, with their total number."""


class NoSuchRowError(ChangelogError):
    """The view has no row with the given key."""


def parse_key(spec: ViewSpec, text: str) -> dict[str, str]:
    """Parse the key of a row: its value, or for several columns a JSON array or object.

    Raises ViewError: it is not a key of the view.
    """
    if len(spec.key) == 1 and not text.lstrip().startswith("{"):
        return {spec.key[0]: text}
    try:
        key = _by_column(spec, json.loads(text, parse_float=str, parse_int=str))
    except ValueError:
        key = None
    if key is None:
        raise ViewError(
            f'{text!r} is not a key of view "{spec.name}"',
            hint=f"its key is {', '.join(spec.key)}: give a JSON array of the values, such as "
            f"'{json.dumps(['…'] * len(spec.key), ensure_ascii=False)}'",
        )
    return key


def key_of(spec: ViewSpec, key: object) -> dict[str, str]:
    """Return the texts of a key: a value, several in the key's order, or a mapping by column.

    Raises ViewError: it is not a key of the view.
    """
    texts = _by_column(spec, key if isinstance(key, Mapping | list | tuple) else [key])
    if texts is None:
        raise ViewError(
            f'{key!r} is not a key of view "{spec.name}"',
            hint=f"its key is {', '.join(spec.key)}, without a null",
        )
    return texts


def _by_column(spec: ViewSpec, values: object) -> dict[str, str] | None:
    """Return the text of each column's value, or None if one is missing or null."""
    if isinstance(values, list | tuple) and len(values) == len(spec.key):
        values = dict(zip(spec.key, values, strict=True))
    if not isinstance(values, Mapping) or set(values) != set(spec.key) or None in values.values():
        return None
    return {name: _text(values[name]) for name in spec.key}


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return json.dumps(value, ensure_ascii=False)
        case bytes():
            return "\\x" + value.hex()
        case _:
            return str(value)


def explain(spec: ViewSpec, key: dict[str, str], settings: RebuildSettings) -> Explanation:
    """Trace the row of a view with a key, at the newest frontier.

    `key` has the text of each column's value, as `parse_key` and `key_of` return it.

    Raises:
        NoSuchRowError: the view has no row with this key.
        ViewError: the view reads a table that is not captured or has no key, or another log.
        VerdictError: the log can no longer give the exact state.
        LogError: the log cannot be read.
    """
    refuse_history(
        spec, "its rows are not traced", "`Log.table(…).history(key)` has the records of a key"
    )
    plan = planned([spec], settings)
    plan.cut.verdict.require()
    project = settings.project
    with scratch(None, MEMORY_LIMIT) as database:
        if plan.logs or plan.others:
            raise ViewError(
                f'view "{spec.name}" reads logs of other programs or captures, whose records '
                "cannot be traced",
                hint="--explain works for views of the project's own tables",
            )
        for table in spec.tables:
            if not plan.record.frontier.scope_of(plan.cut.topics[table]).keyed:
                raise ViewError(
                    f'view "{spec.name}" reads {table}, which has no primary key: its records '
                    "cannot be told apart",
                    hint="--explain works for views of tables with a key",
                )
        log = FrontierTables(
            database,
            project.kafka,
            project.registry,
            plan.record.frontier,
            pins=pins_now(plan, settings),
            quarantines=settings.on_bad_record is OnBadRecord.QUARANTINE,
            keeps_records=True,
        )
        tracing = _Tracing(database, spec, key, plan)
        for table in spec.tables:
            tracing.add(log, table)
        with exact_values():
            return tracing.explanation()


class _Tracing:
    """The states of a view's tables with their records, and the queries that trace a row."""

    def __init__(
        self, database: duckdb.DuckDBPyConnection, spec: ViewSpec, key: dict[str, str], plan: Plan
    ) -> None:
        self._database, self._spec, self._key, self._plan = database, spec, key, plan
        self._states: dict[TableName, TableState] = {}
        self._folded: dict[TableName, Folded] = {}

    def add(self, log: FrontierTables, table: TableName) -> None:
        """Read a table, with the partition and offset of each row as columns."""
        folded = log.fold(table)
        state = log.load(folded)
        create_view(self._database, state, with_places=True)
        self._states[table], self._folded[table] = state, folded

    def explanation(self) -> Explanation:
        """Trace the row."""
        if self._spec.sql is None:
            return self._of_function()
        columns = {table: [c.column for c in s.columns] for table, s in self._states.items()}
        with suppress(ViewError):  # a view that is refused by now was built from its SQL as it is
            self._spec = as_meant(
                self._spec,
                {t: {c.column: c.type for c in s.seen} for t, s in self._states.items()},
                {table: state.key for table, state in self._states.items()},
            )
        sql = self._spec.sql or ""
        try:
            row_lineage = trace(sql, columns, self._spec.key)
            places = self._places(row_lineage)
        except (UntraceableError, UnverifiableError) as error:
            fields = columns_of(sql, columns)
            return self._made(self._row(), fields, self._untraced(), (str(error),))
        row = self._row()
        if not places:
            raise self._missing()
        sources = tuple(
            self._contributions(
                source.alias, source.table, [(p, o) for p, o in places[number] if p is not None]
            )
            for number, source in enumerate(row_lineage.sources)
        )
        return self._made(row, row_lineage.fields, sources, row_lineage.notes)

    def _missing(self) -> NoSuchRowError:
        key = ", ".join(f"{name} = {value}" for name, value in self._key.items())
        lsn = self._plan.record.frontier.lsn
        return NoSuchRowError(
            f'view "{self._spec.name}" has no row with the key {key} at LSN {lsn}',
            hint="write the key's values as PostgreSQL writes them",
        )

    def _made(
        self,
        row: Mapping[str, str | None] | None,
        fields: Mapping[str, FieldOrigin],
        sources: tuple[Contributions, ...],
        notes: tuple[str, ...],
    ) -> Explanation:
        return Explanation(
            view=self._spec.name,
            key=self._key,
            plan=self._plan,
            row=row,
            fields=fields,
            sources=sources,
            notes=notes,
        )

    def _of_function(self) -> Explanation:
        """Return the records that themselves have the key, since a function cannot be traced."""
        sources = []
        for table, state in self._states.items():
            if not set(state.key) <= set(self._key):
                sources.append(self._untraced_source(table))
                continue
            rows = self._database.execute(
                f"SELECT {PARTITION_COLUMN}, {OFFSET_COLUMN} FROM {quoted(state.base)} "
                f"WHERE {_is_key(state.key, _types_of(state))}",
                [self._key[name] for name in state.key],
            ).fetchall()
            sources.append(self._contributions(table.table, table, rows))
        if all(source.count == 0 for source in sources):
            raise self._missing()
        note = "a function builds this view, so only records that have the row's key are shown"
        return self._made(None, {}, tuple(sources), (note,))

    def _types(self, *, with_places: bool) -> dict[TableName, dict[str, Type]]:
        place_types = {PARTITION_COLUMN: Type("int"), OFFSET_COLUMN: Type("bigint")}
        return {
            table: {
                **{c.column: logged_type(c.type) for c in state.seen},
                **(place_types if with_places else {}),
            }
            for table, state in self._states.items()
        }

    def _places(self, row_lineage: RowLineage) -> list[list[tuple[int | None, int | None]]]:
        """Return the places of each source's rows, without duplicates; empty if there is no row."""
        sql = translate(row_lineage.places, self._types(with_places=True)).sql
        self._prepare()
        keys = [f"k{number}" for number in range(len(self._spec.key))]
        is_key = _is_key(keys, self._described(sql))
        table = "explained"
        self._database.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM ({sql}) WHERE {is_key}",
            list(self._key.values()),
        )
        if first_row(self._database, f"SELECT 1 FROM {table} LIMIT 1") is None:
            return []
        return [
            self._database.execute(
                f"SELECT DISTINCT p{number}, o{number} FROM {table} ORDER BY p{number}, o{number}"
            ).fetchall()
            for number in range(len(row_lineage.sources))
        ]

    def _row(self) -> dict[str, str | None] | None:
        """Compute the row, or return None if DuckDB cannot.

        Raises NoSuchRowError: the view has no such row.
        """
        try:
            translation = translate(self._spec.sql or "", self._types(with_places=False))
        except UnverifiableError:
            return None
        self._prepare()
        names = ", ".join(quoted(name) for name in translation.names)
        query = f"SELECT * FROM ({translation.sql}) AS q({names})"
        try:
            is_key = _is_key([folded(name) for name in self._spec.key], self._described(query))
            row = first_row(
                self._database,
                f"SELECT COLUMNS(*)::VARCHAR FROM ({query}) WHERE {is_key}",
                list(self._key.values()),
            )
        except duckdb.InvalidInputException:  # raised for a value that DuckDB cannot represent
            raise
        except duckdb.Error:
            return None
        if row is None:
            raise self._missing()
        return dict(zip(translation.names, row, strict=True))

    def _described(self, query: str) -> dict[str, str]:
        """Return the DuckDB types of a query's columns, by name."""
        rows = self._database.execute(f"DESCRIBE {query}").fetchall()
        return {str(row[0]): str(row[1]) for row in rows}

    def _prepare(self) -> None:
        for macro in MACROS:
            self._database.execute(macro)

    def _untraced(self) -> tuple[Contributions, ...]:
        return tuple(map(self._untraced_source, self._states))

    def _untraced_source(self, table: TableName) -> Contributions:
        return Contributions(alias=table.table, table=table, topic=self._states[table].topic)

    def _contributions(
        self, alias: str, table: TableName, places: Sequence[tuple[Any, Any]]
    ) -> Contributions:
        return Contributions(
            alias=alias,
            table=table,
            topic=self._states[table].topic,
            records=tuple(self._contribution(table, *place) for place in places[:MOST_RECORDS]),
            count=len(places),
        )

    def _contribution(self, table: TableName, partition: int, offset: int) -> Contribution:
        state, raw = self._states[table], quoted(self._folded[table].raw or "")
        names = ", ".join(f"{quoted(name)}::VARCHAR" for name in state.key)
        key = first_row(
            self._database,
            f"SELECT {names} FROM {quoted(state.base)} "
            f"WHERE {PARTITION_COLUMN} = ? AND {OFFSET_COLUMN} = ?",
            [partition, offset],
        )
        record = self._records(table, "part = ? AND off = ?", [partition, offset], 1)[0]
        older = (
            f"key = (SELECT key FROM {raw} WHERE part = ? AND off = ?) "
            "AND NOT (part = ? AND off = ?)"
        )
        place = [partition, offset, partition, offset]
        count = first_row(self._database, f"SELECT count(*) FROM {raw} WHERE {older}", place)
        return Contribution(
            place=record,
            key=dict(zip(state.key, key or (), strict=False)),
            superseded=tuple(self._records(table, older, place, MOST_SUPERSEDED)),
            superseded_count=int(count[0]) if count else 0,
        )

    def _records(
        self, table: TableName, where: str, values: Sequence[int], most: int
    ) -> list[RecordOnLog]:
        folded = self._folded[table]
        form = self._plan.record.frontier.scope_of(folded.topic).form
        rows = self._database.execute(
            "SELECT part, off, epoch, commit_lsn, sequence, value[1:5] "
            f"FROM {quoted(folded.raw or '')} WHERE {where} "
            f"ORDER BY epoch DESC, commit_lsn DESC, sequence DESC, off DESC LIMIT {most}",
            list(values),
        ).fetchall()
        return [
            RecordOnLog(
                partition=part,
                offset=offset,
                position=Position(epoch, Lsn(lsn), sequence),
                schema_id=None
                if head is None or form.output is Output.JSON
                else int.from_bytes(head[1:5], "big"),
                deleted=head is None,
            )
            for part, offset, epoch, lsn, sequence, head in rows
        ]


def _types_of(state: TableState) -> dict[str, str]:
    return {column.column: duckdb_type(logged_type(column.type)) for column in state.columns}


def _is_key(columns: Sequence[str], types: Mapping[str, str]) -> str:
    """Return the SQL condition that columns have the values of a key, given as texts."""
    return " AND ".join(_is_value(quoted(name), types.get(name, "")) for name in columns)


def _is_value(column: str, kind: str) -> str:
    # Values of these types have several texts: 1.5 and 1.50, [1,2] and [1, 2], +00 and +00:00.
    if kind in {"FLOAT", "DOUBLE"} or kind.endswith("[]") or kind.startswith("TIMESTAMP"):
        return f"{column} IS NOT DISTINCT FROM TRY_CAST(? AS {kind})"
    if kind == "BLOB":
        return f"'\\x' || lower(hex({column})) = ?"
    return f"CAST({column} AS VARCHAR) = ?"
