"""`changelog verify --target`: compares a copy, prints the report and chooses the exit code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from changelog.compare.address import TargetAddress, is_dsn, parse_target, split_table
from changelog.compare.certificate import ComparedPair, NewCertificate
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.document_side import DocumentSide
from changelog.compare.duckdb_side import DuckdbFileSide, ParquetSide
from changelog.compare.options import CopyOptions
from changelog.compare.plan import parse_columns, parse_sample
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.repair import check_repairable
from changelog.compare.repair_command import RepairOutcome, repair_copy
from changelog.compare.report import Report
from changelog.compare.side import Side
from changelog.config import BROKERS, SOURCE, load_project, resolved
from changelog.contract.base.errors import ConfigurationError, RefutedError, VerdictError
from changelog.contract.base.jdbc import libpq_uri
from changelog.runtime.edge import print_json, tell
from changelog.runtime.process.signals import end_in_order

if TYPE_CHECKING:
    from changelog.compare.topic_side import TopicSide

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

    Raises RefutedError: they differ; VerdictError: they could not be compared because of writes
    that did not stop, or the sample was empty; ConfigurationError: an option is wrong, or a side
    refuses; SourceError, SinkError: a side cannot be read.
    """
    for name in ("rate", "settle"):
        if not math.isfinite(getattr(options, name)):
            raise ConfigurationError(f"--{name} is no number of rows or seconds")
    end_in_order()
    address = parse_target(options.target or "")
    certificate = NewCertificate.of(options)
    dsn, table = _source(given_settings, project)
    relation = _relation(options, tables, table)
    key = tuple(parse_columns(options.key, "--key"))
    request = request_of(options, key, parse_columns(options.columns))

    @contextmanager
    def opened() -> Iterator[tuple[PostgresSide, Side]]:
        with (
            closing(PostgresSide(dsn, relation, of="source", rate=options.rate)) as source,
            closing(
                open_target(
                    address,
                    relation.table,
                    project,
                    key=[request.columns.get(name, name) for name in request.key or source.key],
                    given_settings=given_settings,
                )
            ) as target,
        ):
            if isinstance(target, DocumentSide):
                target.expect(request.columns.get(name, name) for name in source.columns())
            yield source, target

    if options.repair:
        check_repairable(address.kind)

    def compared(request: CompareRequest, sleep: Callable[[float], None] = time.sleep) -> Report:
        with opened() as (source, target):
            return compare(source, target, request, tell=tell, sleep=sleep)

    if options.every:
        _repeat(options, project, request, compared, as_json=as_json)
        return
    with opened() as (source, target):
        if options.repair:
            outcome = repair_copy(source, target, request, options, as_json=as_json)
        else:
            report = compare(source, target, request, tell=tell)
            _print(report, as_json=as_json)
            outcome = RepairOutcome(report, "", None)
        if certificate is not None:
            about = ComparedPair(source, target, address.kind, relation.query)
            certificate.write(about, outcome.report, outcome.counts)
            tell(f"the certificate is {certificate.path}")
    _judge(outcome.report, hint=outcome.hint)


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(report.to_json())
    else:
        print("\n".join(report.lines()))


def _judge(report: Report, *, hint: str = "") -> None:
    """Raise the error of a report that does not say that the two are equal."""
    if report.verified is False:
        least = "at least " if report.is_at_least else ""
        raise RefutedError(
            f"{report.target} differs from its source in {least}{report.mismatches:,} keys",
            hint=hint
            or "the copy lags more than --settle, or the program that fills it has lost changes",
        )
    if report.is_empty_sample:
        raise VerdictError(
            f"the sample has no row of {report.target}, so nothing was compared",
            hint="take a larger --sample",
        )
    if report.verified is None:
        raise VerdictError(
            f"{len(report.open):,} keys of {report.target} kept changing, so they could not be "
            "compared",
            hint="take a longer --settle, or run it when less is being written",
        )


def _repeat(
    options: CopyOptions,
    project: Path,
    request: CompareRequest,
    compared: Callable[[CompareRequest, Callable[[float], None]], Report],
    *,
    as_json: bool,
) -> None:
    from changelog.compare.rounds import Rounds  # noqa: PLC0415 - its clients start slowly

    def by_name(turn: int, sleep: Callable[[float], None]) -> Mapping[str, Report]:
        report = compared(replace(request, turn=turn), sleep)
        return {report.target: report}

    Rounds(options, project, as_json=as_json).run(by_name)


def request_of(
    options: CopyOptions, key: Sequence[str], columns: Mapping[str, str]
) -> CompareRequest:
    """Return the request for a comparison by a key and columns, with the other options."""
    return CompareRequest(
        key=key,
        columns=columns,
        settle_s=options.settle,
        sample=parse_sample(options.sample) if options.sample else 1.0,
        most_shown=options.show,
    )


def _source(given_settings: Mapping[str, Any], project: Path) -> tuple[str, str]:
    """Return the connection string of the source, and the table that it names, if any.

    `--source` is a connection string, possibly in a variable, or the name of one of the project's
    sources, whose connection string is in its settings.
    """
    text = given_settings.get(_SOURCE) or ""
    if not is_dsn(text):
        text = resolved(text, project.resolve(), named_by="--source")
    if is_dsn(text):
        return split_table(resolved(libpq_uri(text), project.resolve(), named_by="--source"))
    settings = load_project(project, overrides=given_settings, needs=[SOURCE])
    return split_table(settings.postgres)


def _relation(options: CopyOptions, tables: Sequence[str], table: str) -> ComparedRelation:
    names = [*tables, *([table] if table else [])]
    if options.query:
        if names:
            raise ConfigurationError("both a table and --query are given", hint="give only one")
        return ComparedRelation(query=_text(options.query))
    if len(names) != 1:
        raise ConfigurationError(
            "no table of the source is named" if not names else "several tables are named",
            hint="changelog verify TABLE --source DSN --target …; or --source DSN/TABLE, or "
            "--query",
        )
    return ComparedRelation(table=names[0])


def _text(query: str) -> str:
    if not query.startswith("@"):
        return query
    path = Path(query[1:])
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--query cannot be read: {error}") from None


def open_target(  # noqa: PLR0911 - one for each kind
    address: TargetAddress,
    source_table: str,
    project: Path,
    *,
    key: Sequence[str] = (),
    given_settings: Mapping[str, Any] = MappingProxyType({}),
) -> Side:
    """Open a copy; if its address names no table, the table has the source's name.

    `key` has the names that the key's columns have in the copy; `given_settings` are those of the
    command line, of which a topic takes brokers and registry.

    Raises ConfigurationError: there is no such copy, it may not be read, or its address is wrong;
    LockedCopyError: another process is writing the DuckDB file.
    """
    place = resolved(address.place, project.resolve(), named_by="--target")
    match address.kind:
        case "postgres":
            dsn, table = split_table(place)
            name = table or source_table
            if not name:
                raise ConfigurationError("the target names no table", hint="postgres:DSN/TABLE")
            return PostgresSide(dsn, ComparedRelation(table=name), of="target")
        case "duckdb":
            file, _, name = place.rpartition("/")
            if not file or Path(place).is_file():
                file, name = place, source_table.rpartition(".")[2]
            if not Path(file).is_file():
                raise ConfigurationError(f"there is no file {file}", hint="duckdb:FILE/TABLE")
            return DuckdbFileSide(file, name)
        case "delta":
            from changelog.compare.delta_side import DeltaSide  # noqa: PLC0415 - seldom needed

            return DeltaSide(place)
        case "iceberg":
            from changelog.compare.iceberg_side import IcebergSide  # noqa: PLC0415 - an extra

            return IcebergSide(place)
        case "search":
            from changelog.compare.search_side import SearchSide  # noqa: PLC0415 - seldom needed

            return SearchSide(place, key)
        case "cache":
            from changelog.compare.cache_side import CacheSide  # noqa: PLC0415 - seldom needed

            return CacheSide(place, key)
        case "topic":
            return _topic(place, key, project, given_settings)
        case _:
            return ParquetSide(place)


def _topic(
    topic: str, key: Sequence[str], project: Path, given_settings: Mapping[str, Any]
) -> TopicSide:
    from changelog.compare.topic_side import TopicSide  # noqa: PLC0415 - its clients start slowly

    others = {name: value for name, value in given_settings.items() if name != _SOURCE}
    settings = load_project(project, overrides=others, needs=[BROKERS], one_source=False)
    registry = settings.registry if settings.registry.url else None
    return TopicSide(topic, key, settings.kafka, registry)
