"""The place of a row's writing: two more columns for tables without a primary key.

Rows with equal values have places that differ, so they can be put in the order of their writing.
The commit LSN orders transactions, the sequence the rows inside of one.
"""

from __future__ import annotations

from dataclasses import replace

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import ColumnType, Kind

LSN_COLUMN, SEQUENCE_COLUMN = "_lsn", "_sequence"
PLACE_COLUMNS = (LSN_COLUMN, SEQUENCE_COLUMN)
PLACE_DIGITS = 20  # of numbers of 64 bits without a sign
_TYPE = ColumnType(f"numeric({PLACE_DIGITS},0)", Kind.DECIMAL, PLACE_DIGITS)


def place_columns() -> tuple[LoggedColumn, ...]:
    """Return the two columns, described like columns of a table."""
    return tuple(LoggedColumn(name, name, _TYPE, nullable=False) for name in PLACE_COLUMNS)


def refuse_own_places(schema: LoggedSchema) -> None:
    """Raise if a table without a primary key has a column of one of these names.

    Raises ConfigurationError: naming table and column.
    """
    for column in schema.columns:
        if column.column.lower() in PLACE_COLUMNS:
            raise ConfigurationError(
                f'table {schema.table.said} has no primary key and a column "{column.column}": '
                "views have the place of each of its rows under that name",
                hint="rename the column, give the table a primary key, or exclude the column from "
                "capture",
            )


def with_places(schema: LoggedSchema) -> LoggedSchema:
    """Return the columns that views have of a table: of one without a key these two, too.

    Raises ConfigurationError: it has a column of such a name.
    """
    if schema.key:
        return schema
    refuse_own_places(schema)
    return replace(schema, columns=(*schema.columns, *place_columns()))
