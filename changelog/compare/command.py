"""`changelog verify --target`: from options to a report and an exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from changelog.compare.address import Address, is_dsn, parse_target, split_table
from changelog.compare.compare import Request, compare
from changelog.compare.duckdb_side import DuckdbFileSide, ParquetSide
from changelog.compare.options import CopyOptions
from changelog.compare.plan import parse_columns, parse_sample
from changelog.compare.postgres import PostgresSide, Relation
from changelog.compare.side import Side
from changelog.config import SOURCE, load_project, resolved
from changelog.contract.base.errors import ConfigurationError, RefutedError, VerdictError
from changelog.contract.base.jdbc import libpq_uri
from changelog.runtime.edge import print_json, tell

_SOURCE = "capture.source"


def verify_copy(
    options: CopyOptions,
    tables: Sequence[str],
    project: Path,
    given_settings: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Compare one copy with PostgreSQL and print the report.

    Raises RefutedError: they differ; VerdictError: keys changed until the end, so nothing is said
    of them; ConfigurationError: an option is wrong, or a side refuses.
    """
    address = parse_target(options.target)
    dsn, table = _source(given_settings, project)
    relation = _relation(options, tables, table)
    request = Request(
        key=tuple(filter(None, (name.strip() for name in options.key.split(",")))),
        columns=parse_columns(options.columns),
        settle_s=options.settle,
        sample=parse_sample(options.sample) if options.sample else 1.0,
        most_shown=options.show,
    )
    with (
        closing(PostgresSide(dsn, relation, of="source", rate=options.rate)) as source,
        closing(open_target(address, relation.table, project)) as target,
    ):
        report = compare(source, target, request, tell=tell)
    if as_json:
        print_json(report.to_json())
    else:
        print("\n".join(report.lines()))
    if report.verified is False:
        least = "at least " if report.is_at_least else ""
        raise RefutedError(
            f"{report.target} differs from its source in {least}{report.mismatches:,} keys",
            hint="the copy lags further than --settle, or whatever fills it has lost changes",
        )
    if report.is_empty_sample:
        raise VerdictError(
            f"the sample took no row of {report.target}, and nothing is said of it",
            hint="a larger --sample",
        )
    if report.verified is None:
        raise VerdictError(
            f"{len(report.open):,} keys of {report.target} changed until the end, and nothing is "
            "said of them",
            hint="a longer --settle, or when there is less writing",
        )


def _source(given_settings: Mapping[str, Any], project: Path) -> tuple[str, str]:
    """Return the connection string of the source, and the table that it names, if any."""
    text = given_settings.get(_SOURCE) or ""
    if is_dsn(text):
        return split_table(resolved(libpq_uri(text), project.resolve()))
    settings = load_project(project, overrides=given_settings, needs=[SOURCE])
    return split_table(settings.postgres)


def _relation(options: CopyOptions, tables: Sequence[str], table: str) -> Relation:
    names = [*tables, *([table] if table else [])]
    if options.query:
        if names:
            raise ConfigurationError("a table and a --query are named", hint="take one of them")
        return Relation(query=_text(options.query))
    if len(names) != 1:
        raise ConfigurationError(
            "no table of the source is named" if not names else "several tables are named",
            hint="changelog verify TABLE --source DSN --target …; or DSN/TABLE, or --query",
        )
    return Relation(table=names[0])


def _text(query: str) -> str:
    if not query.startswith("@"):
        return query
    path = Path(query[1:])
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--query cannot be read: {error}") from None


def open_target(address: Address, source_table: str, project: Path) -> Side:
    """Open a copy; a table of another database has the source's name unless it is said.

    Raises ConfigurationError: there is none, it may not be read, or its address is wrong.
    """
    place = resolved(address.place, project.resolve())
    match address.kind:
        case "postgres":
            dsn, table = split_table(place)
            name = table or source_table
            if not name:
                raise ConfigurationError("the target names no table", hint="postgres:DSN/TABLE")
            return PostgresSide(dsn, Relation(table=name), of="target")
        case "duckdb":
            file, _, name = place.rpartition("/")
            if not file or Path(place).is_file():
                file, name = place, source_table.rpartition(".")[2]
            if not Path(file).is_file():
                raise ConfigurationError(f"there is no file {file}", hint="duckdb:FILE/TABLE")
            return DuckdbFileSide(file, name)
        case _:
            return ParquetSide(place)
