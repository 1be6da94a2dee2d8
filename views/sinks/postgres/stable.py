"""The table that readers open: partitioned, with the served generation as its only partition.

It is partitioned by range of the key's first column, and the partition goes from MINVALUE to
MAXVALUE, so it has all rows with a key. A generation's primary key already excludes nulls, so
attaching it reads no row.

The table stays the same object: SQL views, foreign keys, grants, comments, policies and indexes
that users created on it stay too. Only if the key itself changes is it created again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2 import errorcodes, sql

from changelog.contract.base.errors import SinkError
from changelog.contract.rows.relation import TableName
from views.sinks.postgres.registry import SCHEMA, place

Columns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Stable:
    """The table that readers open."""

    target: TableName  # its name
    key: tuple[str, ...]  # columns of its primary key

    @property
    def name(self) -> sql.Identifier:
        """Return its name, for SQL."""
        return sql.Identifier(*self.target)

    def oid(self, cursor: Any) -> int | None:  # noqa: ANN401 - psycopg2's
        """Return the object id of the relation with its name, or None."""
        cursor.execute(
            "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE (n.nspname, c.relname) = %s",
            [tuple(self.target)],
        )
        row = cursor.fetchone()
        return None if row is None else row[0]

    def is_partitioned(self, cursor: Any) -> bool:  # noqa: ANN401
        """Tell whether it is a partitioned table."""
        cursor.execute("SELECT relkind FROM pg_class WHERE oid = %s", [self.oid(cursor)])
        row = cursor.fetchone()
        return row is not None and row[0] == "p"

    def partition(self, cursor: Any, relation: int) -> str | None:  # noqa: ANN401
        """Return the name of our table that is attached, or None."""
        cursor.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE i.inhparent = %s AND n.nspname = %s",
            [relation, SCHEMA],
        )
        row = cursor.fetchone()
        return None if row is None else row[0]

    def make(self, cursor: Any, relation: str) -> None:  # noqa: ANN401
        """Create it with the columns of a generation."""
        self._create(cursor, columns_of(cursor, place(relation)))

    def move(self, cursor: Any, relation: str, attached: str | None) -> None:  # noqa: ANN401
        """Attach a generation in place of the attached one.

        Raises psycopg2.Error: others hold locks, or an object depends on a changed column.
        """
        cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(self.name))
        if attached is not None:
            statement = sql.SQL("ALTER TABLE {} DETACH PARTITION {}")
            cursor.execute(statement.format(self.name, place(attached)))
        self.follow(cursor, columns_of(cursor, place(relation)))
        self.attach(cursor, relation)

    def attach(self, cursor: Any, relation: str) -> None:  # noqa: ANN401
        """Attach a generation to the table, which has no partition."""
        statement = sql.SQL(
            "ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM (MINVALUE) TO (MAXVALUE)"
        )
        cursor.execute(statement.format(self.name, place(relation)))

    def prepare(self, cursor: Any, relation: str) -> None:  # noqa: ANN401
        """Create on a generation the indexes and constraints that users created on the table.

        Here they block nobody; attaching would create them under its lock.
        """
        have = set(_read(cursor, place(relation), _INDEXES))
        for unique, rest in _read(cursor, self.name, _INDEXES):
            if (unique, rest) not in have:
                _try(cursor, _index(place(relation), unique, rest))
        names = {name for name, _ in columns_of(cursor, place(relation))}
        for (name,) in _read(cursor, self.name, _DEMANDED):
            if name in names:
                statement = sql.SQL("ALTER TABLE {} ALTER {} SET NOT NULL")
                cursor.execute(statement.format(place(relation), sql.Identifier(name)))
        present = {name for name, _ in _read(cursor, place(relation), _CHECKS)}
        for name, condition in _read(cursor, self.name, _CHECKS):
            if name not in present:
                statement = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}")
                text = statement.format(place(relation), sql.Identifier(name), sql.SQL(condition))
                _try(cursor, text)

    def unfit(self, cursor: Any, columns: Columns) -> str | None:  # noqa: ANN401
        """Return the reason why a user's table cannot serve these columns, or None."""
        cursor.execute("SELECT relkind FROM pg_class WHERE oid = %s", [self.oid(cursor)])
        row = cursor.fetchone()
        if row is None:
            return "it does not exist"
        cursor.execute("SELECT pg_get_partkeydef(%s)", [self.oid(cursor)])
        range_of = f"RANGE ({sql.Identifier(self.key[0]).as_string(cursor)})"
        plain = f"RANGE ({self.key[0]})"
        if row[0] != "p" or cursor.fetchone()[0] not in {range_of, plain}:
            return f"it is not PARTITION BY {plain}"
        if sorted(actual_key := primary_key(cursor, self.name)) != sorted(self.key):
            return (
                f"its primary key is ({', '.join(actual_key)}), the view's ({', '.join(self.key)})"
            )
        types = dict(columns_of(cursor, self.name))
        for name, kind in columns:
            if types.get(name) != kind:
                return f'its column "{name}" is {types.get(name, "missing")}, not {kind}'
        more = types.keys() - dict(columns).keys()
        return f'it has a column "{min(more)}", which the view does not have' if more else None

    def definition(self, columns: Columns) -> sql.Composed:
        """Return the statement that creates it."""
        listed = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(kind)) for n, kind in columns]
        keys = sql.SQL(", ").join(map(sql.Identifier, self.key))
        return sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({})) PARTITION BY RANGE ({})").format(
            self.name, sql.SQL(", ").join(listed), keys, sql.Identifier(self.key[0])
        )

    def _create(self, cursor: Any, columns: Columns) -> None:  # noqa: ANN401
        cursor.execute(self.definition(columns))

    def follow(self, cursor: Any, columns: Columns, *, keeps_rows: bool = False) -> None:  # noqa: ANN401
        """Change the columns of the table, which has no partition, to a generation's columns.

        `keeps_rows`: whether it has rows, whose values are then cast.
        """
        types = dict(columns_of(cursor, self.name))
        new = dict(columns)
        using = "{0}::{1}" if keeps_rows else "NULL"
        if keeps_rows and primary_key(cursor, self.name) != self.key:
            raise SinkError(
                f"the primary key of {self.target} is "
                f"({', '.join(primary_key(cursor, self.name))}), the view's is "
                f"({', '.join(self.key)})",
                hint="`rebuild-view --drop` removes the table, and a rebuild creates it again",
            )
        if not keeps_rows and (
            primary_key(cursor, self.name) != self.key
            or any(types[name] != new.get(name) for name in self.key)
        ):
            self._create_again(cursor, columns)
            return
        changes = [
            *(sql.SQL("DROP COLUMN {}").format(sql.Identifier(n)) for n in types if n not in new),
            *(
                sql.SQL("ADD COLUMN {} {}").format(sql.Identifier(name), sql.SQL(kind))
                for name, kind in columns
                if name not in types
            ),
            *(
                sql.SQL(f"ALTER COLUMN {{0}} TYPE {{1}} USING {using}").format(
                    sql.Identifier(name), sql.SQL(kind)
                )
                for name, kind in columns
                if name in types and types[name] != kind
            ),
        ]
        for change in changes:
            cursor.execute(sql.SQL("ALTER TABLE {} {}").format(self.name, change))

    def _create_again(self, cursor: Any, columns: Columns) -> None:  # noqa: ANN401
        """Create the table again with another key, and its grants, comments and indexes."""
        names = {name for name, _ in columns}
        indexes = _read(cursor, self.name, _INDEXES)
        grants, comments = _read(cursor, self.name, _GRANTS), _read(cursor, self.name, _COMMENTS)
        cursor.execute(sql.SQL("DROP TABLE {}").format(self.name))
        self._create(cursor, columns)
        for grantee, privilege, option in grants:
            to = sql.SQL("PUBLIC") if grantee is None else sql.Identifier(grantee)
            also = sql.SQL(" WITH GRANT OPTION" if option else "")
            statement = sql.SQL("GRANT {} ON {} TO {}{}")
            cursor.execute(statement.format(sql.SQL(privilege), self.name, to, also))
        for column, text in comments:
            if column is None:
                head = sql.SQL("COMMENT ON TABLE {} IS {}").format(self.name, sql.Literal(text))
            elif column in names:
                whole = sql.Identifier(*self.target, column)
                head = sql.SQL("COMMENT ON COLUMN {} IS {}").format(whole, sql.Literal(text))
            else:
                continue
            cursor.execute(head)
        for unique, rest in indexes:
            _try(cursor, _index(self.name, unique, rest))


def _read(cursor: Any, table: sql.Identifier, query: str) -> list[Any]:  # noqa: ANN401
    """Return the rows of a query of the catalogue, in which `%s` stands for the table."""
    cursor.execute(query.replace("%s", "%s::regclass"), [table.as_string(cursor)])
    return list(cursor.fetchall())


def columns_of(cursor: Any, table: sql.Identifier) -> list[tuple[str, str]]:  # noqa: ANN401
    """Return names and types of a table's columns, in order."""
    query = (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    return _read(cursor, table, query)


def primary_key(cursor: Any, table: sql.Identifier) -> tuple[str, ...]:  # noqa: ANN401
    """Return the columns of a table's primary key, in its order."""
    query = (
        "SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (n, place) "
        "JOIN pg_attribute a ON a.attnum = k.n "
        "WHERE i.indisprimary AND i.indrelid = %s AND a.attrelid = i.indrelid ORDER BY k.place"
    )
    return tuple(name for (name,) in _read(cursor, table, query))


def has_unique_key(cursor: Any, table: sql.Identifier, key: Sequence[str]) -> bool:  # noqa: ANN401
    """Tell whether a table has a unique index on just these columns, usable for ON CONFLICT."""
    query = (
        "SELECT array_agg(a.attname::text) FROM pg_index i, unnest(i.indkey) k (n) "
        "JOIN pg_attribute a ON a.attnum = k.n "
        "WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL "
        "AND i.indimmediate AND i.indrelid = %s AND a.attrelid = i.indrelid GROUP BY i.indexrelid"
    )
    return any(sorted(names) == sorted(key) for (names,) in _read(cursor, table, query))


_INDEXES = """
SELECT indisunique, substr(d, strpos(d, ' USING ')) FROM (
    SELECT i.indisunique, replace(pg_get_indexdef(i.indexrelid),
        format(' INDEX %%I ON ', c.relname), ' INDEX ON ') AS d
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = %s AND NOT i.indisprimary ORDER BY c.relname) found
"""
"""The indexes other than the primary key: whether unique, and the text from USING on."""
_CHECKS = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = %s AND contype = 'c'
"""
"""The check constraints: names and definitions."""
_DEMANDED = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND attnotnull AND NOT attisdropped
"""
"""The columns that must not be null."""
_GRANTS = """
SELECT r.rolname, a.privilege_type, a.is_grantable
FROM pg_class c, aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
WHERE c.oid = %s AND a.grantee <> c.relowner
"""
_COMMENTS = """
SELECT a.attname, d.description FROM pg_description d
LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = d.objsubid AND d.objsubid > 0
WHERE d.classoid = 'pg_class'::regclass AND d.objoid = %s
"""


def _index(table: sql.Identifier, unique: bool, rest: str) -> sql.Composed:
    head = sql.SQL("CREATE UNIQUE INDEX ON {}" if unique else "CREATE INDEX ON {}")
    return head.format(table) + sql.SQL(rest)


def _try(cursor: Any, statement: sql.Composed) -> None:  # noqa: ANN401
    """Run a statement; ignore one about a column that the view no longer has."""
    cursor.execute("SAVEPOINT one")
    try:
        cursor.execute(statement)
    except psycopg2.Error as error:
        if error.pgcode != errorcodes.UNDEFINED_COLUMN:
            raise
        cursor.execute("ROLLBACK TO SAVEPOINT one")
    cursor.execute("RELEASE SAVEPOINT one")


def foreign(target: TableName) -> SinkError:
    """Return the error for a table that was not created by this program."""
    return SinkError(
        f"{target} was not created for this view, so it is not changed",
        hint="give the view another table in its .postgres.json, or rename that one; to use it for "
        "the view, name it there with auto_create = false",
    )
