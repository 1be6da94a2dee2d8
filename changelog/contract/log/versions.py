"""Columns of a table's versions: a view with `-- history: scd2` has a row of its table for each.

A version is in the states of all frontiers with `valid_from_lsn < lsn <= valid_to_lsn`: a frontier
at an LSN has the transactions whose commit LSN is before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from changelog.contract.base.errors import ViewError
from changelog.contract.base.headers import Op
from changelog.contract.log.order import PLACE_DIGITS
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import ColumnType, Kind

FROM_LSN, FROM_TIME, FROM_CHANGE = "valid_from_lsn", "valid_from_time", "valid_from_change"
TO_LSN, TO_TIME, TO_CHANGE = "valid_to_lsn", "valid_to_time", "valid_to_change"
IS_CURRENT, COMPLETE_FROM = "is_current", "complete_from_lsn"
CHANGES: Mapping[Op, str] = {
    Op.READ: "copy",
    Op.CREATE: "insert",
    Op.UPDATE: "update",
    Op.DELETE: "delete",
    Op.TRUNCATE: "truncate",
}
"""The words for operations on rows."""

_LSN = ColumnType(f"numeric({PLACE_DIGITS},0)", Kind.DECIMAL, PLACE_DIGITS)
_MOMENT = ColumnType("timestamp with time zone", Kind.TIMESTAMPTZ)
_TEXT = ColumnType("text", Kind.STRING)
_TYPES = {
    FROM_LSN: (_LSN, False),
    FROM_TIME: (_MOMENT, False),
    FROM_CHANGE: (_TEXT, False),
    TO_LSN: (_LSN, True),
    TO_TIME: (_MOMENT, True),
    TO_CHANGE: (_TEXT, True),
    IS_CURRENT: (ColumnType("boolean", Kind.BOOLEAN), False),
    COMPLETE_FROM: (_LSN, False),
}
VERSION_COLUMNS = tuple(_TYPES)
"""Their names, in the order in which `*` has them, behind the table's own."""


def version_columns() -> tuple[LoggedColumn, ...]:
    """Return these columns, described like columns of a table."""
    return tuple(
        LoggedColumn(name, name, kind, nullable=nullable)
        for name, (kind, nullable) in _TYPES.items()
    )


def with_versions(schema: LoggedSchema) -> LoggedSchema:
    """Return the columns that a history has of a table: its own, and these.

    Raises ViewError: the table has a column of such a name.
    """
    for column in schema.columns:
        if column.column.lower() in VERSION_COLUMNS:
            raise ViewError(
                f'table {schema.table.said} has a column "{column.column}", and its history has '
                "one of that name",
                hint="rename the column, or exclude it from capture",
            )
    return replace(schema, columns=(*schema.columns, *version_columns()))
