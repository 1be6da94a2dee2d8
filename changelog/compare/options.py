"""Options of `changelog verify --target`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

import typer

from changelog.contract.base.errors import ConfigurationError

_COPY = "Any copy of a table: --target"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Which copy is compared with PostgreSQL, and how."""

    subjects: ClassVar[Mapping[str, str]] = {"target": _COPY}
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="Compare this copy with PostgreSQL, not the log: postgres:DSN/TABLE, "
            "parquet:PATTERN, duckdb:FILE/TABLE. Then --source may be a DSN, or DSN/TABLE.",
        ),
    ] = ""
    query: Annotated[
        str, typer.Option("--query", help="The copy is of this query, not of a table; @FILE.")
    ] = ""
    key: Annotated[
        str, typer.Option("--key", help="Columns that tell rows apart, a,b; the primary key.")
    ] = ""
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            help="Only these, a,b=NAME where the copy calls one otherwise; * for all others.",
        ),
    ] = ""
    sample: Annotated[
        str, typer.Option("--sample", help="Only a part of the keys, by chance: 1%.")
    ] = ""
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Most rows a second that the source reads.")
    ] = 0.0
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            min=0,
            help="Seconds that the copy may lag: a difference counts if it stays so long.",
        ),
    ] = 10.0
    show: Annotated[
        int, typer.Option("--show", min=0, help="Most differing keys to show with their values.")
    ] = 20

    def check_alone(self) -> None:
        """Refuse options that mean nothing without a target.

        Raises ConfigurationError: one is given.
        """
        if self.target:
            return
        for option in fields(self):
            if getattr(self, option.name) != option.default:
                raise ConfigurationError(
                    f"--{option.name} is for a copy, and none is named",
                    hint="--target postgres:DSN/TABLE, parquet:PATTERN, duckdb:FILE/TABLE, …",
                )
