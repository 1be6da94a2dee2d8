"""Options of `changelog verify --target`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

import typer

from changelog.contract.base.errors import ConfigurationError

_COPY = "Any copy of a table: --target"
_AGAIN = "Watching a copy, and repairing it"
_TARGETS = "--target postgres:DSN/TABLE, parquet:PATTERN, duckdb:FILE/TABLE, …"
_OF_ROUNDS = frozenset({"metrics_port", "metrics_address", "webhook"})
"""Options of `--every` alone."""
_OF_VIEWS = frozenset({"sample", "settle", "show", "every"}) | _OF_ROUNDS
"""Options that work with `--view`, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Options that say which copy is compared with PostgreSQL, and how."""

    subjects: ClassVar[Mapping[str, str]] = {"target": _COPY, "every": _AGAIN}
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="Compare this copy with PostgreSQL, not the log: postgres:DSN/TABLE, "
            "parquet:PATTERN, duckdb:FILE/TABLE, delta:PATH, iceberg:CATALOG/TABLE, "
            "search:URL/INDEX, topic:NAME, cache:URL/PATTERN. Then --source may be a DSN, or "
            "DSN/TABLE.",
        ),
    ] = None
    query: Annotated[
        str,
        typer.Option(
            "--query", help="Compare the copy with this query, not with a table; @FILE reads it."
        ),
    ] = ""
    key: Annotated[
        str,
        typer.Option("--key", help="Columns that identify a row, a,b; by default the primary key."),
    ] = ""
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            help="Compare only these: a,b=NAME if the copy has another name for one; * is all "
            "others.",
        ),
    ] = ""
    sample: Annotated[
        str, typer.Option("--sample", help="Compare only a random part of the keys, such as 1%.")
    ] = ""
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Most rows that the source reads a second.")
    ] = 0.0
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            min=0,
            help="Seconds that the copy may lag: only a difference that lasts longer counts.",
        ),
    ] = 10.0
    show: Annotated[
        int, typer.Option("--show", min=0, help="Most differing keys that are shown with values.")
    ] = 20
    certificate: Annotated[
        str | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            help="Write a certificate of the comparison to this new file, whose name ends with "
            ".json: what was compared, when, and the verdict, without values. `changelog verify "
            "FILE` reads it.",
        ),
    ] = None
    certificate_key: Annotated[
        str,
        typer.Option(
            "--certificate-key",
            metavar="FILE",
            help="Sign the certificate with the Ed25519 private key of this file, in PEM.",
        ),
    ] = ""

    every: Annotated[
        str,
        typer.Option(
            "--every",
            metavar="PERIOD",
            help="Compare again and again, such as 10m, 1h or 1d, until SIGTERM or Ctrl-C; each "
            "round of a --sample takes the next part of the keys. Ends with the last verdict.",
        ),
    ] = ""
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", min=0, max=65535, help="With --every: serve Prometheus metrics there."
        ),
    ] = None
    metrics_address: Annotated[
        str, typer.Option("--metrics-address", help="Where metrics are served.")
    ] = "127.0.0.1"
    webhook: Annotated[
        str,
        typer.Option(
            "--webhook",
            metavar="URL",
            help="With --every: gets a JSON object by POST when the verdict changes. "
            "'${NAME}' takes it from a variable.",
        ),
    ] = ""

    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Say which rows of a table of PostgreSQL would be written or deleted to make it "
            "equal; with --yes do it, while writers go on, and compare again.",
        ),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: write the rows.")] = False
    max_deletes: Annotated[
        int | None,
        typer.Option(
            "--max-deletes",
            min=0,
            help="With --repair: most rows that may be deleted. Without it at most half of the "
            "copy's rows or 10, and none if the source is empty, or if a foreign key changes other "
            "rows with them.",
        ),
    ] = None

    def check_alone(self, *, of_views: bool) -> None:
        """Refuse options that only work with a target, or with some of them.

        `of_views`: whether views are compared, which have a query, a key and columns of their own.

        Raises ConfigurationError: one is given that does not work here.
        """
        for name, hint in (("target", _TARGETS), ("certificate", "--certificate FILE.json")):
            if getattr(self, name) == "":
                raise ConfigurationError(
                    f"{_written(name)} is empty", hint=f"is a variable without a value? {hint}"
                )
        if not self.every:
            self._refuse(_OF_ROUNDS, "only works with --every", "--every 1h")
        if not self.repair:
            self._refuse({"yes", "max_deletes"}, "only works with --repair", "--repair --yes")
        elif self.every:
            self._refuse({"repair"}, "does not go with --every", "repair once, then watch")
        if self.every:
            self._refuse({"certificate"}, "does not go with --every", "it is of one comparison")
        if not self.certificate:
            self._refuse(
                {"certificate_key"}, "only works with --certificate", "--certificate FILE.json"
            )
        if self.target and not of_views:
            return
        names = {option.name for option in fields(self)}
        if not of_views:
            self._refuse(names, "only works with --target", _TARGETS)
            return
        listed = ", ".join(_written(name) for name in sorted(_OF_VIEWS))
        self._refuse(names - _OF_VIEWS, "does not go with --view", f"{listed} do")

    def _refuse(self, names: Collection[str], why: str, hint: str) -> None:
        for option in fields(self):
            if option.name in names and getattr(self, option.name) != option.default:
                raise ConfigurationError(f"{_written(option.name)} {why}", hint=hint)


def _written(name: str) -> str:
    """Return an option as it is written on the command line."""
    return f"--{name.replace('_', '-')}"
