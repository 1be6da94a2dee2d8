"""Which tables are wanted: patterns of `schema.table`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.pattern import (
    PART,
    covers,
    expression,
    is_wild,
    literal,
    pasted,
    quoted,
)
from changelog.contract.rows.relation import TableName

_PATTERN = re.compile(rf"(?:(?P<schema>{PART})\.)?(?P<table>{PART})")
_COLUMN = re.compile(rf"(?P<table>(?:(?:{PART})\.)?(?:{PART}))\.(?P<column>{PART})")


@dataclass(frozen=True, slots=True)
class TablePattern:
    """One pattern: `*` stands for any characters, `?` for one; quoted parts are literal."""

    text: str  # as the user wrote it
    name: TableName | None  # the table that it names, or None when it has wildcards
    _expression: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Read `table` (of the schema `public`), `schema.table` or `"odd.schema"."odd table"`.

        Raises ConfigurationError: the text has another form, or is `*` without a schema, which
        looks like all tables and would be those of `public`.
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(
                f'"{text}" is not a table pattern',
                hint="write table, schema.table or schema.*; put double quotes round odd names",
            )
        if match["schema"] is None and set(match["table"]) == {"*"}:
            raise ConfigurationError(
                f'"{text}" names no schema',
                hint="write public.* for the tables of that schema, or *.* for those of all",
            )
        schema, table = match["schema"] or "public", match["table"]
        wild = is_wild(schema) or is_wild(table)
        name = None if wild else TableName(literal(schema), literal(table))
        # A NUL cannot occur in a name, so it separates the two.
        return cls(text, name, re.compile(f"{expression(schema)}\0{expression(table)}", re.DOTALL))

    def matches(self, table: TableName) -> bool:
        """Tell whether the pattern covers a table; upper and lower case differ."""
        return self._expression.fullmatch(f"{table.schema}\0{table.table}") is not None


@dataclass(frozen=True, slots=True)
class ColumnPattern:
    """A pattern of columns: `table.column` or `schema.table.column`."""

    text: str  # as the user wrote it
    table: TablePattern  # which tables it speaks of
    column: str  # which of their columns, a part for `changelog.contract.base.pattern`

    @classmethod
    def parse(cls, text: str) -> ColumnPattern:
        """Read `table.column` (of the schema `public`) or `schema.table.column`.

        Raises ConfigurationError: the text has another form.
        """
        match = _COLUMN.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(
                f'"{text}" is not a pattern of columns',
                hint="write schema.table.column, * for any text; put double quotes round odd names",
            )
        return cls(text, TablePattern.parse(match["table"]), match["column"])

    def matches(self, table: TableName, column: str) -> bool:
        """Tell whether the pattern covers a column of a table."""
        return self.table.matches(table) and covers(self.column, column)


def left_out(table: TableName, columns: Iterable[str]) -> str:
    """Return the hint that says how columns are left out."""
    patterns = pasted(*(quoted(*table, column) for column in columns))
    return f"leave them out: --columns {patterns} (capture.drop_columns)"


class TableFilter:
    """Tables that some `include` pattern covers and no `exclude` pattern does."""

    def __init__(self, include: Iterable[str] = ("*.*",), exclude: Iterable[str] = ()) -> None:
        self._include = tuple(TablePattern.parse(text) for text in include)
        self._exclude = tuple(TablePattern.parse(text) for text in exclude)

    def wants(self, table: TableName) -> bool:
        """Tell whether a table is wanted."""
        return any(pattern.matches(table) for pattern in self._include) and not any(
            pattern.matches(table) for pattern in self._exclude
        )

    @property
    def named(self) -> tuple[TableName, ...]:
        """Return the tables that are included by their full names: they have to exist."""
        return tuple(
            pattern.name
            for pattern in self._include
            if pattern.name is not None and self.wants(pattern.name)
        )
