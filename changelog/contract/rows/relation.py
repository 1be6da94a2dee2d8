"""A table's version, as the replication protocol and the catalogue describe it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from changelog.contract.rows.types import ColumnType

Field = bytes | None  # one value in PostgreSQL's text form, UTF-8; None is SQL's null


class Unchanged(Enum):
    """Marks a TOAST value that the stream left out since the update did not touch it."""

    TOAST = "unchanged"


UNCHANGED = Unchanged.TOAST

Row = Sequence[Field | Unchanged]  # the values of a row, in the order of `Relation.columns`

KeyRow = tuple[bytes, ...]
"""The values of a primary key in its own order; never null. Empty for a table without one."""


class TableName(NamedTuple):
    """Schema and table, unquoted, as the catalogue has them."""

    schema: str
    table: str

    def __str__(self) -> str:
        """Return `schema.table` for people; not for SQL. A part with a dot or a quote is quoted."""
        return f"{_part(self.schema)}.{_part(self.table)}"

    @property
    def said(self) -> str:
        """Return it for a message: in double quotes, unless a part has its own."""
        return str(self) if '"' in str(self) else f'"{self}"'

    @classmethod
    def parse(cls, text: str) -> TableName | None:
        """Parse `table` or `schema.table`, parts perhaps quoted; return None if it names no table.

        A bare name is of the schema `public`.
        """
        match = _NAME.fullmatch(text.strip())
        if match is None:
            return None
        parts = [_unquoted(part) for part in match.groups() if part is not None]
        if not all(parts):
            return None
        return cls("public", parts[0]) if len(parts) == 1 else cls(parts[0], parts[1])


_PART = r'("(?:[^"]|"")*"|[^".][^.]*)'
_NAME = re.compile(rf"{_PART}(?:\.{_PART})?", re.DOTALL)


def _part(name: str) -> str:
    is_plain = name == name.strip() and not {".", '"'} & {*name}
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _unquoted(part: str) -> str:
    part = part.strip()
    is_quoted = len(part) > 1 and part[0] == part[-1] == '"'
    return part[1:-1].replace('""', '"') if is_quoted else part


class ReplicaIdentity(Enum):
    """The old columns that an update or a delete carries (`pg_class.relreplident`)."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str  # unquoted
    type: ColumnType  # as PostgreSQL has it, and its Avro shape
    # what records without the column stand for, as the JSON of an Avro default; None is null. See
    # `changelog.contract.rows.missing`
    default: str | None = None

    @property
    def has_default(self) -> bool:
        """Return whether records without the column have another value than null."""
        return self.default is not None


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The unique index that gives a table without a primary key its key."""

    oid: int  # its object id
    name: str = field(compare=False)  # without its schema, which is the table's
    columns: tuple[str, ...]  # of the key, in its order

    def __str__(self) -> str:
        """Return name and columns for people."""
        return f'"{self.name}" ({", ".join(self.columns)})'


@dataclass(frozen=True, slots=True)
class Relation:
    """A version of a table."""

    oid: int  # the table's object id
    name: TableName  # schema and table
    columns: tuple[Column, ...]  # in the order in which the stream sends them
    # names of the primary key's columns, in the key's own order; from the catalogue, since the
    # stream flags every column as key under REPLICA IDENTITY FULL. Empty for a table without one,
    # unless an index gives it one
    key: tuple[str, ...]
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT  # what old columns the stream carries
    generated: tuple[str, ...] = ()  # names of the generated columns that the stream leaves out
    computed: tuple[str, ...] = ()  # names of those that it brings, which are among `columns`
    # the index that gives the key where it is no primary key's
    key_index: KeyIndex | None = field(default=None, compare=False)

    @property
    def key_indexes(self) -> tuple[int, ...]:
        """Return the places of the key's columns in `columns`, in the key's order."""
        places = {column.name: index for index, column in enumerate(self.columns)}
        return tuple(places[name] for name in self.key)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the key's columns, in the key's order."""
        return tuple(self.columns[index] for index in self.key_indexes)

    def with_defaults(self, defaults: Mapping[str, str | None]) -> Relation:
        """Return the relation with the defaults of some columns; itself when nothing changes."""
        columns = tuple(
            replace(column, default=defaults.get(column.name, column.default))
            for column in self.columns
        )
        return self if columns == self.columns else replace(self, columns=columns)


WAY_OUT = "capture them too and put them together with UNION ALL: docs/reading.md"


def alone(table: TableName, children: Iterable[TableName]) -> str:
    """Return a note that a table's topic lacks the rows of its children."""
    names = ", ".join(str(child) for child in sorted(children))
    return (
        f"{table} has only its own rows, without those of {names}, which inherit from it and "
        f"are in SELECT * FROM {table}"
    )


def unread(
    read: Collection[TableName], children: Mapping[TableName, tuple[TableName, ...]]
) -> list[str]:
    """Return a line for each table that is read without the tables that inherit from it."""
    lines = []
    for table in sorted(set(read) & children.keys()):
        others = set(children[table]) - set(read)
        if others:
            lines.append(f"{alone(table, others)}; {WAY_OUT}")
    return lines
