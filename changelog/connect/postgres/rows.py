"""Writes rows to a table: appends them, writes them by key, or deletes them.

They go by COPY if that has the same effect: straight into the table, or into a temporary table from
which one statement writes by key. Values that COPY cannot carry go as JSON, which PostgreSQL reads
by the types of the columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from zlib import crc32

from psycopg2 import extensions, sql

from changelog.connect.postgres.tables import SinkTable, names_sql
from changelog.connect.rules.records.events import DeleteRow, InsertRow, MoveRow, Operation
from changelog.connect.rules.records.forms import document, lines, needs_lines, same
from changelog.connect.rules.records.reading import BadRecordError
from changelog.connect.rules.settings import WriteMode

Row = Mapping[str, Any]
_FEW = 20  # fewer rows are faster as JSON, in one statement


def execute(
    cursor: extensions.cursor, table: SinkTable, operations: Sequence[Operation], mode: WriteMode
) -> None:
    """Execute operations.

    Raises BadRecordError: one of them does not fit the table; psycopg2.Error: PostgreSQL refuses.
    """
    if not table.merges and not all(isinstance(operation, InsertRow) for operation in operations):
        # Without ON CONFLICT a statement looks, and the next one writes: nobody may write between.
        cursor.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(table.name))
    if mode is not WriteMode.INSERT:
        _by_key(cursor, table, operations, mode)
        return
    for is_insert, group in groupby(operations, lambda operation: isinstance(operation, InsertRow)):
        if not is_insert:  # with mode insert, updates and deletes are by key all the same
            _by_key(cursor, table, list(group), WriteMode.UPSERT)
            continue
        for names, rows in _runs(
            [operation.row for operation in group if isinstance(operation, InsertRow)]
        ):
            _append(cursor, table, names, rows)


def _by_key(
    cursor: extensions.cursor, table: SinkTable, operations: Sequence[Operation], mode: WriteMode
) -> None:
    if not table.keys:
        raise BadRecordError(f"table {table.text} has no primary key, and pk.fields names none")
    for step in _folded(table, operations):
        if not isinstance(step, MoveRow):
            deletes, written = step
        elif _move(cursor, table, step):
            continue
        else:  # a row that does not exist is written as by any other update
            deletes, written = [], [step.row]
        if deletes:
            _delete(cursor, table, deletes)
        for names, rows in _by_names(written):
            _write(cursor, table, names, rows, mode)


def _move(cursor: extensions.cursor, table: SinkTable, move: MoveRow) -> bool:
    """Change the key of a row in place, and return whether the row existed.

    A delete and an insert would lose the columns that the record leaves out, such as values that
    Debezium's source did not send. A row that already has the new key is replaced.
    """
    names = tuple(name for name in move.row if name in table.types)
    parts = {
        "table": table.name,
        "gone": _rows_sql(table, [move.key]),
        "new": _rows_sql(table, [move.row]),
        "is_old": _same_key(table.keys, "gone"),
        "is_new": _same_key(table.keys, "new"),
        "set": sql.SQL(", ").join(
            sql.SQL("{0} = new.{0}").format(sql.Identifier(name)) for name in names
        ),
    }
    cursor.execute(
        sql.SQL(
            "DELETE FROM {table} AS old USING {gone} AS gone, {new} AS new "
            "WHERE {is_new} AND NOT ({is_old}) "
            "AND EXISTS (SELECT FROM {table} AS old WHERE {is_old})"
        ).format(**parts)
    )
    cursor.execute(
        sql.SQL(
            "UPDATE {table} AS old SET {set} FROM {gone} AS gone, {new} AS new WHERE {is_old}"
        ).format(**parts)
    )
    return cursor.rowcount > 0


def _folded(
    table: SinkTable, operations: Sequence[Operation]
) -> Iterator[tuple[list[Row], list[Row]] | MoveRow]:
    """Yield steps: rows to delete and rows to write after them, one row a key, or one moved row.

    Keys are compared as PostgreSQL compares them. An operation whose key has a type for which that
    is not known here is a step of its own.
    """
    deleted: dict[object, Row] = {}
    rows: dict[object, Row] = {}
    kinds = [(name, table.types.get(name, "")) for name in table.keys]
    for operation in operations:
        if isinstance(operation, MoveRow):
            yield list(deleted.values()), list(rows.values())
            deleted, rows = {}, {}
            yield operation
            continue
        is_delete = isinstance(operation, DeleteRow)
        row = operation.key if isinstance(operation, DeleteRow) else operation.row
        try:
            key = tuple([same(kind, row[name]) for name, kind in kinds])
        except KeyError:
            raise BadRecordError(
                f"the record lacks a column of the key of table {table.text}"
            ) from None
        if None in key:
            yield list(deleted.values()), list(rows.values())
            deleted, rows = {}, {}
            yield ([row], []) if is_delete else ([], [row])
        elif is_delete:
            rows.pop(key, None)
            deleted[key] = row
        else:
            old = rows.get(key)
            rows[key] = row if old is None else {**old, **row}
    yield list(deleted.values()), list(rows.values())


def _append(
    cursor: extensions.cursor, table: SinkTable, names: tuple[str, ...], rows: Sequence[Row]
) -> None:
    raw = _lines(table, names, rows)
    if raw is not None:
        _copy(cursor, table.name, names, raw)
        return
    cursor.execute(
        sql.SQL("INSERT INTO {table} ({columns}) SELECT {columns} FROM {source}").format(
            table=table.name, columns=names_sql(names), source=_rows_sql(table, rows)
        )
    )


def _write(
    cursor: extensions.cursor,
    table: SinkTable,
    names: tuple[str, ...],
    rows: Sequence[Row],
    mode: WriteMode,
) -> None:
    """Write rows by key; all of them have the same columns."""
    changed = [name for name in names if name not in table.keys]
    if mode is WriteMode.UPDATE and not changed:
        return
    raw = _lines(table, names, rows) if table.stages else None
    if raw is None:
        source = _rows_sql(table, rows)
    else:
        source = _staging(cursor, table)
        _copy(cursor, source, names, raw)
    if mode is WriteMode.UPDATE:
        cursor.execute(_update(table, changed, source))
    elif table.merges:
        cursor.execute(_upsert(table, names, changed, source))
    else:
        if changed:
            cursor.execute(_update(table, changed, source))
        cursor.execute(_add(table, names, source))


def _upsert(
    table: SinkTable, names: Sequence[str], changed: Sequence[str], source: sql.Composable
) -> sql.Composable:
    update = sql.SQL(", ").join(
        sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in changed
    )
    return sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {columns} FROM {source} ON CONFLICT ({keys}) DO "
    ).format(
        table=table.name, columns=names_sql(names), source=source, keys=names_sql(table.keys)
    ) + (sql.SQL("UPDATE SET ") + update if changed else sql.SQL("NOTHING"))


def _add(table: SinkTable, names: Sequence[str], source: sql.Composable) -> sql.Composable:
    return sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {columns} FROM {source} AS new "
        "WHERE NOT EXISTS (SELECT 1 FROM {table} AS old WHERE {same})"
    ).format(
        table=table.name, columns=names_sql(names), source=source, same=_same_key(table.keys, "new")
    )


def _update(table: SinkTable, changed: Sequence[str], source: sql.Composable) -> sql.Composable:
    return sql.SQL("UPDATE {table} AS old SET {set} FROM {source} AS new WHERE {same}").format(
        table=table.name,
        source=source,
        set=sql.SQL(", ").join(
            sql.SQL("{0} = new.{0}").format(sql.Identifier(name)) for name in changed
        ),
        same=_same_key(table.keys, "new"),
    )


def _delete(cursor: extensions.cursor, table: SinkTable, keys: Sequence[Row]) -> None:
    picked = [{name: key[name] for name in table.keys} for key in keys]
    cursor.execute(
        sql.SQL("DELETE FROM {table} AS old USING {source} AS gone WHERE {same}").format(
            table=table.name, source=_rows_sql(table, picked), same=_same_key(table.keys, "gone")
        )
    )


def _rows_sql(table: SinkTable, rows: Sequence[Row]) -> sql.Composable:
    """Return rows as a source for a FROM clause.

    They are a literal, not a parameter: in a statement with parameters psycopg2 interprets every
    `%`, also in the name of a table or column.
    """
    return sql.SQL("json_populate_recordset(NULL::{}, {}::json)").format(
        table.name, sql.Literal(document(table.types, rows, table.text))
    )


def _same_key(keys: Iterable[str], other: str) -> sql.Composable:
    return sql.SQL(" AND ").join(
        sql.SQL("old.{0} = {1}.{0}").format(sql.Identifier(name), sql.SQL(other)) for name in keys
    )


def _lines(table: SinkTable, names: Sequence[str], rows: Sequence[Row]) -> bytes | None:
    if not table.copies or (len(rows) < _FEW and not needs_lines(table.types, rows)):
        return None
    return lines(table.types, names, rows, table.text)


def _copy(
    cursor: extensions.cursor, into: sql.Composable, names: Sequence[str], raw: bytes
) -> None:
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(into, names_sql(names))
    cursor.copy_expert(statement, io.BytesIO(raw), 1 << 20)


def _staging(cursor: extensions.cursor, table: SinkTable) -> sql.Composable:
    """Return an empty temporary table with the columns of a table.

    A rollback may have removed it, so its existence is checked each time.
    """
    shape = f"{table.text}{sorted(table.types.items())}"
    name = f"changelog_staging_{crc32(shape.encode()):08x}"
    staging = sql.SQL("pg_temp.{}").format(sql.Identifier(name))
    cursor.execute("SELECT to_regclass(%s) IS NULL", (f"pg_temp.{name}",))
    if cursor.fetchone() == (True,):
        cursor.execute(
            sql.SQL(
                "CREATE TEMP TABLE {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} LIMIT 0"
            ).format(sql.Identifier(name), names_sql(table.types), table.name)
        )
    else:
        cursor.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(staging))
        if cursor.fetchone() is not None:  # rows of an earlier statement of this transaction
            cursor.execute(sql.SQL("TRUNCATE {}").format(staging))
    return staging


_Groups = Iterable[tuple[tuple[str, ...], list[Row]]]


def _by_names(rows: Sequence[Row]) -> _Groups:
    """Group rows by their columns: a column that a row leaves out keeps its value."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    return groups.items()


def _runs(rows: Sequence[Row]) -> _Groups:
    """Group consecutive rows that have the same columns, in their order."""
    groups: list[tuple[tuple[str, ...], list[Row]]] = []
    for row in rows:
        names = tuple(row)
        if not groups or groups[-1][0] != names:
            groups.append((names, []))
        groups[-1][1].append(row)
    return groups
