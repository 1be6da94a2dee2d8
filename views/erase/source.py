"""The source, before anything is erased: the rows must be gone there, or they come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg2
from psycopg2 import sql

from changelog.contract.base.errors import ConfigurationError, SourceError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.secret import redacted
from changelog.contract.rows.relation import TableName
from changelog.postgres.connection import Connection
from views.erase.keys import Key
from views.verify.source.snapshot import connect

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, -1),
       (t.typname = ANY (%s) OR t.typtype = 'e' OR (t.typname = 'numeric' AND a.atttypmod <> -1))
       AND coalesce(c.collisdeterministic, true)
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_collation c ON c.oid = a.attcollation
 WHERE a.attrelid = %s::regclass AND a.attname = ANY (%s) AND a.attnum > 0
"""
_ONE_TEXT = [
    *("int2", "int4", "int8", "uuid", "text", "varchar", "bpchar", "bool"),
    *("date", "timestamp", "timestamptz", "bytea"),
]
"""Types of which equal values have one text, so that a key is found by its bytes."""
_NOW = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
            ELSE pg_current_wal_insert_lsn() END::text
"""
_SHOWN = 3
"""Keys that are named in a message."""


@contextmanager
def opened_source(dsn: str) -> Iterator[Connection]:
    """Open a session at the source.

    Raises SourceError: PostgreSQL refuses; UnavailableSourceError: it does not answer.
    """
    with closing(connect(dsn)) as connection:
        connection.set_session(readonly=True, autocommit=True)
        try:
            yield connection
        except psycopg2.Error as error:
            first = redacted(str(error)).partition("\n")[0]
            raise SourceError(f"PostgreSQL refuses to look for the keys: {first}") from error


def canonical_keys(
    connection: Connection, table: TableName, columns: Sequence[str], keys: Sequence[Key]
) -> list[tuple[str, ...]]:
    """Return keys in PostgreSQL's own text form, in the order of the primary key's columns.

    Raises ConfigurationError: one has other columns, or a value that its type does not take.
    """
    name = sql.Identifier(*table)
    types = _types(connection, table, columns)
    canonical = []
    for key in keys:
        if {*key} != {*columns}:
            raise ConfigurationError(
                f"a key of {table} has {', '.join(columns)}, not {', '.join(key)}",
                hint=" ".join(f"--key {column}=VALUE" for column in columns),
            )
        canonical.append(
            tuple(_canonical(connection, table, types[column], key[column]) for column in columns)
        )
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_security_active(%s)", [name.as_string(connection)])
        if cursor.fetchone() != (False,):
            raise ConfigurationError(
                f"a policy hides rows of {table} from this role, so nobody knows what is there",
                hint="take a role with BYPASSRLS for postgres.dsn",
            )
    return canonical


def require_gone(
    connection: Connection,
    table: TableName,
    columns: Sequence[str],
    keys: Sequence[tuple[str, ...]],
) -> Lsn:
    """Require that the table has none of the keys; returns an LSN after their deletes.

    Raises ConfigurationError: it has one.
    """
    types = _types(connection, table, columns)
    there = []
    with connection.cursor() as cursor:
        for key in keys:
            conditions = [
                sql.SQL("{} = {}::{}").format(
                    sql.Identifier(column), sql.Literal(value), sql.SQL(types[column].name)
                )
                for column, value in zip(columns, key, strict=True)
            ]
            cursor.execute(
                sql.SQL("SELECT 1 FROM {} WHERE {} LIMIT 1").format(
                    sql.Identifier(*table), sql.SQL(" AND ").join(conditions)
                )
            )
            if cursor.fetchone() is not None:
                there.append(key)
        cursor.execute(_NOW)
        (lsn,) = cursor.fetchone() or ("0/0",)
    if there:
        shown = "; ".join(
            ", ".join(f"{column}={value}" for column, value in zip(columns, key, strict=True))
            for key in there[:_SHOWN]
        )
        raise ConfigurationError(
            f"{len(there)} of {len(keys)} rows are still in {table}: {shown}",
            hint="delete them there first: what is in the source comes back",
        )
    return Lsn.parse(lsn)


def is_captured_now(connection: Connection, slots: Sequence[str]) -> bool:
    """Tell whether a process reads one of the slots."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = ANY (%s) AND active", [[*slots]]
        )
        return cursor.fetchone() is not None


@dataclass(frozen=True, slots=True)
class _Type:
    """The type of a key's column, as SQL names it."""

    name: str
    unlimited: str  # the same without its length or precision


def _canonical(connection: Connection, table: TableName, kind: _Type, text: str) -> str:
    """Return a value in the text form in which PostgreSQL sends it.

    Raises ConfigurationError: it is none of the type, or would be cut or rounded.
    """
    value = sql.Literal(text)
    statement = sql.SQL("SELECT format('%s', {0}::{1}), {0}::{1} = {0}::{2}").format(
        value, sql.SQL(kind.name), sql.SQL(kind.unlimited)
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            canonical, is_whole = cursor.fetchone() or ("", False)
    except psycopg2.DataError:
        canonical, is_whole = "", False
    if not is_whole:
        raise ConfigurationError(
            f"a key of {table} has a value that is no {kind.name}",
            hint="write it as PostgreSQL does",
        )
    return str(canonical)


def _types(connection: Connection, table: TableName, columns: Sequence[str]) -> dict[str, _Type]:
    with connection.cursor() as cursor:
        place = sql.Identifier(*table).as_string(connection)
        cursor.execute(_COLUMNS, [_ONE_TEXT, place, [*columns]])
        rows = {name: (_Type(kind, unlimited), is_one) for name, kind, unlimited, is_one in cursor}
    if missing := [column for column in columns if column not in rows]:
        raise SourceError(
            f"{table} has no column {', '.join(missing)} any more",
            hint="capture the table under its new key first: `changelog resnapshot`",
        )
    if unlike := [f"{name} ({rows[name][0].name})" for name in columns if not rows[name][1]]:
        raise ConfigurationError(
            f"erasing by {', '.join(unlike)} of {table} is not supported",
            hint="equal values of this type may be written differently on the log",
        )
    return {column: rows[column][0] for column in columns}
