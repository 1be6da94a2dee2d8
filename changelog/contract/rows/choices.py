"""The choices for values that a column's type does not hold outside of PostgreSQL. Pure.

NaN and the infinities of a `numeric(p,s)`, an array of another shape, and the infinities of dates
and moments are carried by the log as they are. A choice says what views get in their place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.pattern import PART, covers, is_wild, quoted
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import Kind

_PATTERN = re.compile(rf"(?:(?P<schema>{PART})\.)?(?P<table>{PART})\.(?P<column>{PART})")
_MOMENTS = {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}


class ChoicesError(ConfigurationError):
    """Lines of `rebuild.values` are wrong; names all of them."""

    @classmethod
    def of(cls, mistakes: Iterable[ConfigurationError]) -> Self:
        """Join the messages and hints of several errors, without repetitions."""
        errors = list(mistakes)
        messages = dict.fromkeys(str(error.args[0]) for error in errors)
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        return cls("; ".join(messages), hint="; ".join(hints))


class ValueChoice(Enum):
    """The form in which views get a value that their column's type does not hold."""

    REFUSE = "refuse"  # none: what reads it fails. An infinite date or moment is carried as it is
    NULL = "null"
    TEXT = "text"  # each value of the column is PostgreSQL's text, and so the column is a string


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The choice for the columns that a pattern covers."""

    pattern: str  # `schema.table.column`, as it was written
    choice: ValueChoice  # what their values become
    schema: str
    table: str
    column: str

    @classmethod
    def parse(cls, pattern: str, choice: ValueChoice) -> Self:
        """Read a pattern: `table.column` (of the schema `public`) or `schema.table.column`.

        Raises ConfigurationError: it has another form.
        """
        parts = _PATTERN.fullmatch(pattern.strip())
        if parts is None:
            raise ConfigurationError(
                f'rebuild.values: "{pattern}" is not a pattern of columns',
                hint="write schema.table.column, * for any text; put double quotes round odd names",
            )
        return cls(pattern, choice, parts["schema"] or "public", parts["table"], parts["column"])

    @property
    def is_wild(self) -> bool:
        """Tell whether it can cover several columns."""
        return any(map(is_wild, (self.schema, self.table, self.column)))

    def is_of(self, table: TableName) -> bool:
        """Tell whether it covers columns of a table."""
        return covers(self.schema, table.schema) and covers(self.table, table.table)

    def obstacles(self, schema: LoggedSchema) -> list[str] | None:
        """Return the reason that the choice has no effect in a table, or None if it has one."""
        columns = [column for column in schema.columns if covers(self.column, column.column)]
        reasons = [_obstacle(schema, column, self.choice) for column in columns]
        return None if None in reasons else [reason for reason in reasons if reason is not None]


def choices_of(values: Mapping[str, ValueChoice]) -> tuple[ColumnChoice, ...]:
    """Return the choices of the lines of a project's settings.

    Raises ChoicesError: some are of no column.
    """
    parsed, mistakes = list[ColumnChoice](), list[ConfigurationError]()
    for pattern, choice in values.items():
        try:
            parsed.append(ColumnChoice.parse(pattern, choice))
        except ConfigurationError as error:
            mistakes.append(error)
    if mistakes:
        raise ChoicesError.of(mistakes)
    return tuple(parsed)


def advice(table: TableName, column: LoggedColumn) -> str:
    """Return the hint that says how views get something in place of values without a form."""
    name = quoted(*table, column.column)
    other = "" if column.type.kind is Kind.ARRAY else ' or "text"'
    return (
        "say under [rebuild.values] of changelog.toml what views get of them: "
        f'{json.dumps(name)} = "null"{other}; or leave the column out of the view'
    )


def _obstacle(schema: LoggedSchema, column: LoggedColumn, choice: ValueChoice) -> str | None:
    """Return the reason why a column cannot have a choice, or None if it can."""
    kind, name = column.type, f"{schema.table}.{column.column}"
    if kind.kind not in _MOMENTS and not kind.has_escape:
        return f"all values of {name} ({kind.name}) have a form"
    if kind.kind is Kind.ARRAY and choice is ValueChoice.TEXT:
        return f"{name} ({kind.name}) is an array, which views have as one or not at all"
    if choice is ValueChoice.NULL and column.column in schema.key:
        return f"{name} is of the primary key, which has no null"
    return None


def chosen(choices: Iterable[ColumnChoice], schema: LoggedSchema) -> dict[str, ValueChoice]:
    """Return the choice for each column of a table, without the columns that are to be refused.

    A column's own name counts before patterns.

    Raises ChoicesError: two patterns cover a column and say different things.
    """
    choice_of: dict[str, ColumnChoice] = {}
    mistakes = list[ConfigurationError]()
    own = [choice for choice in choices if choice.is_of(schema.table)]
    for column in schema.columns:
        for choice in sorted(own, key=lambda choice: choice.is_wild):
            if not covers(choice.column, column.column) or _obstacle(schema, column, choice.choice):
                continue
            other = choice_of.setdefault(column.column, choice)
            if other.choice is not choice.choice and (other.is_wild or not choice.is_wild):
                mistake = ConfigurationError(
                    f'rebuild.values: "{other.pattern}" and "{choice.pattern}" both cover '
                    f"{schema.table}.{column.column} and say different things",
                    hint="give the column a line of its own, by its whole name",
                )
                mistakes.append(mistake)
    if mistakes:
        raise ChoicesError.of(mistakes)
    settings = {name: choice.choice for name, choice in choice_of.items()}
    return {name: choice for name, choice in settings.items() if choice is not ValueChoice.REFUSE}


def as_viewed(schema: LoggedSchema, choices: Mapping[str, ValueChoice]) -> LoggedSchema:
    """Return a schema with the types that its columns have in views."""
    columns = tuple(
        replace(column, type=replace(column.type, kind=Kind.STRING, precision=0, scale=0))
        if choices.get(column.column) is ValueChoice.TEXT
        else column
        for column in schema.columns
    )
    return replace(schema, columns=columns)
