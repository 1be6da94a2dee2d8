"""Options of a view's table in PostgreSQL: `views/NAME.postgres.json`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

from pydantic import Field

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.relation import TableName
from views.sinks.options import Options, read_options


class SwapMode(Enum):
    """The way in which a generation reaches readers."""

    EXCHANGE = "exchange"
    """It is attached as the only partition of the table, in place of the earlier one."""
    UPSERT = "upsert"
    """Its rows are inserted, replaced and removed in a permanent table."""
    INSERT = "insert"
    """Its new rows are added to a permanent table; a changed or removed row is refused."""


class PostgresOptions(Options):
    """Options of one view."""

    # how a generation is shown to readers
    mode: Annotated[SwapMode, Field(strict=False)] = SwapMode.EXCHANGE
    # the table that readers open, `schema.name`; by default the view's name in `public`
    table: str = ""
    # names in the table of the view's columns, if they differ
    columns: dict[str, str] = Field(default_factory=dict)
    # types of the table's columns, if they are not the natural ones
    types: dict[str, str] = Field(default_factory=dict)
    # the most rows that a task turns into COPY's format at once
    batch_rows: int = Field(default=10_000, ge=1)
    # whether the table is created, and changed with the view's columns; else it must exist and fit
    auto_create: bool = True

    def target(self, view: str) -> TableName:
        """Return the table that readers open."""
        table = TableName.parse(self.table) if self.table else TableName("public", view)
        if table is None:
            raise ConfigurationError(
                f"{view}.postgres.json: table {self.table!r} is not the name of a table",
                hint="write schema.name",
            )
        return table


def postgres_options(view: str, options: Mapping[str, Any]) -> PostgresOptions:
    """Return the options of a view.

    Raises ConfigurationError: one is not known, or has a wrong value.
    """
    parsed = read_options(PostgresOptions, view, "postgres", options)
    parsed.target(view)
    return parsed
