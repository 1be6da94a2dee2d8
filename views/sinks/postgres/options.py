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
    """It is the one partition of the table, exchanged for another one."""
    UPSERT = "upsert"
    """Its rows are brought into a table that stays: inserted, replaced, removed."""
    INSERT = "insert"
    """Its new rows are added to a table that stays; one that changed or went is refused."""


class PostgresOptions(Options):
    """Options of one view."""

    # how readers get to see a generation
    mode: Annotated[SwapMode, Field(strict=False)] = SwapMode.EXCHANGE
    # the table that readers open, `schema.name`; by default the view's name in `public`
    table: str = ""
    # for columns of the view the names that they have in the table
    columns: dict[str, str] = Field(default_factory=dict)
    # for columns of the table a type of PostgreSQL other than the natural one
    types: dict[str, str] = Field(default_factory=dict)
    # the most rows that a task turns into COPY's format at once
    batch_rows: int = Field(default=10_000, ge=1)
    # whether the table is made, and its columns follow the view's; else it must exist and fit
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

    Raises ConfigurationError: one is not known, or has a value that it cannot have.
    """
    parsed = read_options(PostgresOptions, view, "postgres", options)
    parsed.target(view)
    return parsed
