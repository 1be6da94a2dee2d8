"""A sink's tables: reads their columns, creates them, and adds columns that records have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg2
from psycopg2 import extensions, sql

from changelog.connect.rules.settings import SinkConnectorSettings, name_parts
from changelog.contract.base.errors import ConfigurationError, SinkError

CREATE_LOCK = 0x636F6E6E6563
_MODIFIED = re.compile(r"(?P<base>[^()]+)(?P<numbers>\(\d+(?:,-?\d+)?\))(?P<array>(?:\[\])*)")
_LOOK = """
SELECT a.attname, format_type(coalesce(nullif(t.typbasetype, 0), a.atttypid), NULL),
       a.attidentity <> 'a' AND c.relkind IN ('r', 'p') AND NOT c.relhasrules
       AND NOT c.relrowsecurity,
       has_database_privilege(current_database(), 'TEMP'),
       (SELECT place FROM pg_index i, generate_series(0, i.indnkeyatts - 1) place
         WHERE i.indrelid = a.attrelid AND i.indisprimary AND i.indkey[place] = a.attnum)
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
   AND a.attgenerated = ''
"""
_SUBSTITUTES = (
    ("i.indnkeyatts", 110_000, "i.indnatts"),
    ("a.attgenerated", 120_000, "''"),
    ("a.attidentity", 100_000, "''"),
    ("c.relrowsecurity", 90_500, "false"),
)
"""Columns of `_LOOK` that older servers lack: the version that added each, and its substitute."""
OLDEST = 90_400  # the first version that has to_regclass, which Greenplum 6 is built on
ON_CONFLICT_VERSION = 90_500  # the first version that has ON CONFLICT


_Row = tuple[str, str, bool, bool, int | None]


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A table of a sink's database."""

    name: sql.Composable  # for statements
    text: str  # the same for messages
    types: Mapping[str, str]  # types of the writable columns; of a domain its base type
    keys: tuple[str, ...]  # columns by which rows are written; empty without a key
    copies: bool  # whether COPY has the same effect on it as INSERT
    stages: bool  # whether this user may create temporary tables
    merges: bool = True  # whether the server has ON CONFLICT


def check_version(connection: extensions.connection) -> None:
    """Raise SinkError if a server is too old for a sink."""
    if connection.server_version < OLDEST:
        version = connection.get_parameter_status("server_version")
        raise SinkError(
            f"the server is PostgreSQL {version}, and a sink needs 9.4 or newer",
            hint="use a newer server in connection.url; Greenplum 6 and newer works too",
        )


class SinkTables:
    """The tables of a connector, by topic."""

    def __init__(self, settings: SinkConnectorSettings) -> None:
        """Take the connector's settings; reads no table yet."""
        self._settings = settings
        self._tables: dict[str, SinkTable] = {}

    def forget(self, topic: str) -> None:
        """Forget a table, so that its columns are read again."""
        self._tables.pop(topic, None)

    def table(
        self, cursor: extensions.cursor, topic: str, columns: Mapping[str, str], keys: Iterable[str]
    ) -> SinkTable | None:
        """Return the table of a topic, or None if it is missing and its columns are unknown.

        `columns` are the SQL types of the columns that the records declare, by name; `keys` are the
        key columns for a table that is created.

        Raises SinkError: the table does not exist, or lacks a column of the settings.
        """
        table = self._tables.get(topic)
        if table is None or (self._settings.evolve and columns.keys() - table.types.keys()):
            table = self._prepared(cursor, topic, self._types_of(columns), tuple(keys))
        if table is not None:
            self._tables[topic] = table
        return table

    def _types_of(self, columns: Mapping[str, str]) -> Mapping[str, str]:
        settings = self._settings
        if settings.types:
            return dict(zip(settings.columns, settings.types, strict=True))
        picked = settings.columns or tuple(columns)
        return {name: columns[name] for name in picked if name in columns}

    def _prepared(
        self, cursor: extensions.cursor, topic: str, types: Mapping[str, str], keys: tuple[str, ...]
    ) -> SinkTable | None:
        """Create the table or add missing columns, if the settings allow it, and describe it."""
        name = _name(self._settings.table_of(topic))
        quoted = name.as_string(cursor)
        if self._settings.create and not _exists(cursor, quoted):
            if not types:
                return None
            _create(cursor, name, types, self._settings.keys or keys)
        rows = _rows(cursor, quoted)
        if rows and self._settings.evolve and types.keys() - {row[0] for row in rows}:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK,))
            existing = {row[0] for row in _rows(cursor, quoted)}  # another task may have added some
            missing = {column: kind for column, kind in types.items() if column not in existing}
            _add(cursor, name, missing)
            rows = _rows(cursor, quoted)
        merges = cursor.connection.server_version >= ON_CONFLICT_VERSION
        return self._table(name, quoted, rows, merges=merges)

    def _table(
        self, name: sql.Composable, quoted: str, rows: Sequence[_Row], *, merges: bool
    ) -> SinkTable:
        if not rows:
            raise SinkError(
                f"there is no table {quoted}", hint="create it, or set auto.create=true"
            )
        types = {column: kind for column, kind, *_ in rows}
        missing = {*self._settings.columns, *self._settings.keys} - types.keys()
        if missing:
            raise SinkError(
                f"table {quoted} has no column {', '.join(sorted(missing))}",
                hint="col.names and pk.fields must be columns of the table",
            )
        primary = sorted((place, column) for column, *_, place in rows if place is not None)
        keys = self._settings.keys or tuple(column for _, column in primary)
        if self._settings.keyed and not keys:
            raise SinkError(
                f"table {quoted} has no primary key, and pk.fields names none",
                hint="set pk.fields to the columns of a unique index",
            )
        copies = all(row[2] for row in rows)
        return SinkTable(name, quoted, types, keys, copies, rows[0][3], merges)


def _rows(cursor: extensions.cursor, quoted: str) -> list[_Row]:
    query, version = _LOOK, cursor.connection.server_version
    for column, since, substitute in _SUBSTITUTES:
        if version < since:
            query = query.replace(column, substitute)
    cursor.execute(query, (quoted,))
    return cursor.fetchall()


def _name(text: str) -> sql.Identifier:
    parts = name_parts(text)
    if not parts:
        raise ConfigurationError(
            f'"{text}" is not the name of a table', hint="target.tablename: table or schema.table"
        )
    return sql.Identifier(*parts)


def _exists(cursor: extensions.cursor, quoted: str) -> bool:
    cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (quoted,))
    return cursor.fetchone() == (True,)


def _create(
    cursor: extensions.cursor, name: sql.Composable, types: Mapping[str, str], keys: tuple[str, ...]
) -> None:
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK,))
    parts = [
        sql.SQL("{} ").format(sql.Identifier(column)) + _type(cursor, kind)
        for column, kind in types.items()
    ]
    if keys:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(names_sql(keys)))
    cursor.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(name, sql.SQL(", ").join(parts))
    )


def _add(cursor: extensions.cursor, name: sql.Composable, missing: Mapping[str, str]) -> None:
    for column, kind in missing.items():
        cursor.execute(
            sql.SQL("ALTER TABLE {} ADD COLUMN {} ").format(name, sql.Identifier(column))
            + _type(cursor, kind)
        )


def _type(cursor: extensions.cursor, written: str) -> sql.Composable:
    """Return a type in PostgreSQL's spelling, or text if this database does not have it."""
    parts = _MODIFIED.fullmatch(written)
    base, numbers, array = parts.group("base", "numbers", "array") if parts else (written, "", "")
    cursor.execute("SAVEPOINT a_type")
    try:
        cursor.execute("SELECT to_regtype(%s)::text", (base,))
        row = cursor.fetchone()
    except psycopg2.Error:  # it is not the name of a type
        cursor.execute("ROLLBACK TO SAVEPOINT a_type")
        row = None
    cursor.execute("RELEASE SAVEPOINT a_type")
    if row is None or row[0] is None:
        return sql.SQL("text" + ("[]" if written.endswith("[]") else ""))
    return sql.SQL(row[0] + numbers + array)


def names_sql(names: Iterable[str]) -> sql.Composable:
    """Return a list of column names for a statement."""
    return sql.SQL(", ").join(map(sql.Identifier, names))
