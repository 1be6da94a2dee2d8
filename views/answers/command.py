"""`changelog verify --view`: asks PostgreSQL the view's query and compares what each sink serves.

Nothing of ours computes the rows: neither Spark, nor the engine of a follower, nor the verifier. So
this finds a query that both engines answer alike and PostgreSQL otherwise.

First the sinks have to show all that the source had committed when the command began. Then digests
of both are compared, and keys that differ are looked at again while both go on, as of any copy
(`changelog.compare`): only a difference that stays for `--settle` seconds, in which neither side
changes, is one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from changelog.compare.cache_side import CacheSide
from changelog.compare.command import request_of
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.delta_side import DeltaSide
from changelog.compare.iceberg_side import IcebergSide
from changelog.compare.options import CopyOptions
from changelog.compare.plan import ALL
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.report import Report
from changelog.compare.rounds import Rounds
from changelog.compare.search_side import SearchSide
from changelog.compare.side import Side
from changelog.compare.topic_side import TopicSide
from changelog.config import BROKERS, SOURCE, load_project
from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    RefutedError,
    VerdictError,
    ViewError,
)
from changelog.runtime.edge import print_json, tell
from views.base.address import Address
from views.base.config import RebuildSettings
from views.base.iceberg import IcebergPlace
from views.generations.reached import Reached, wait_for
from views.generations.served import nothing_serves, served_of
from views.project.catalog import catalog_of
from views.project.spec import SqlSource, ViewSpec
from views.sinks.base import Sink


@dataclass(frozen=True, slots=True)
class SinkReport:
    """The comparison of what one sink of a view serves with PostgreSQL's answer."""

    view: str
    sink: str
    reached: Reached  # the LSN that it showed before
    report: Report

    @property
    def name(self) -> str:
        """Return the view and the sink, as messages name them."""
        return f'view "{self.view}" in {self.sink}'

    def to_json(self) -> dict[str, Any]:
        """Return the report as an object of JSON."""
        names = {"view": self.view, "sink": self.sink, "lsn": str(self.reached.lsn)}
        return {**names, **self.report.to_json()}

    def lines(self) -> list[str]:
        """Return the lines of the report for people."""
        first, *rest = self.report.lines()
        word = first.partition(":")[0]
        return [f"{word}: view {self.view} in {self.sink}, at {self.reached.lsn} or later", *rest]


def verify_views(
    names: Sequence[str],
    folder: Path,
    overrides: Mapping[str, Any],
    options: CopyOptions,
    *,
    timeout_s: float,
    as_json: bool = False,
) -> None:
    """Compare what the sinks of some views serve with PostgreSQL's answers to their queries.

    `timeout_s`: how long the sinks may take to show what the source has committed by now.

    Raises RefutedError: one differs; VerdictError: keys that differ kept changing, or a sample is
    empty; NotReachedError: nobody brings a view to the present; ConfigurationError, ViewError: a
    view cannot be compared so; SourceError, SinkError: a side cannot be read.
    """
    project = load_project(folder, overrides=overrides, needs=[SOURCE, BROKERS])
    settings = RebuildSettings(project=project)
    catalog = catalog_of(project)
    specs = [catalog.load(name) for name in names]
    queries = [query_of(spec) for spec in specs]  # all, before the first one is waited for

    def compared(
        more: Mapping[str, Any], sleep: Callable[[float], None] = time.sleep
    ) -> list[SinkReport]:
        reports = []
        for spec, query in zip(specs, queries, strict=True):
            reached = wait_for(settings, spec.name, None, timeout_s=timeout_s)

            def one(address: Address, spec: ViewSpec = spec, query: str = query) -> Report:
                request = replace(_request(spec.key, address, options), **more)
                return _compared(query, request, address, settings, sleep)

            for name, sink in served_of(spec, project, None).sinks.items():
                tell(f"view {spec.name} in {name}: PostgreSQL answers its query")
                report = compare_served(sink, one, absent=nothing_serves(spec.name, name))
                reports.append(SinkReport(spec.name, name, reached, report))
        return reports

    if not options.every:
        _show(compared({}), as_json=as_json)
        return
    Rounds(options, folder, as_json=as_json).run(
        lambda turn, sleep: {one.name: one.report for one in compared({"turn": turn}, sleep)}
    )


def query_of(spec: ViewSpec) -> str:
    """Return a view's query as PostgreSQL runs it.

    Raises ViewError: it is no query in PostgreSQL's language over tables of the source.
    """
    source = spec.source
    if not isinstance(source, SqlSource) or source.dialect != "postgres":
        language = "Spark's SQL" if isinstance(source, SqlSource) else "Python"
        raise ViewError(
            f'view "{spec.name}" is in {language}, which PostgreSQL cannot answer',
            hint="write it in PostgreSQL's SQL (`-- dialect: postgres`), or rebuild it with "
            "--verify full, which proves it against the log",
        )
    return (source.written or source).sql


def compare_served(
    sink: Sink, compared: Callable[[Address], Report], *, absent: ViewError
) -> Report:
    """Compare what a sink serves; again if another generation came to serve meanwhile.

    Nobody brings an earlier generation to the present, and its rows may be removed, so it differs
    without being wrong.

    Raises the error `absent` if nothing serves, and the errors of the comparison.
    """
    while (number := sink.published()) is not None:
        try:
            report = compared(sink.address(number).as_read())
        except ChangelogError:
            if sink.published() == number:
                raise
        else:
            if report.verified or sink.published() == number:
                return report
    raise absent


def _request(key: Sequence[str], address: Address, options: CopyOptions) -> CompareRequest:
    renamed = json.loads(address.location.get("columns", "{}"))
    return request_of(options, key, {ALL: ALL, **renamed} if renamed else {})


def _compared(
    query: str,
    request: CompareRequest,
    address: Address,
    settings: RebuildSettings,
    sleep: Callable[[float], None],
) -> Report:
    with ExitStack() as opened:
        dsn, relation = settings.project.postgres, ComparedRelation(query=query)
        source = PostgresSide(dsn, relation, of="source")
        opened.enter_context(closing(source))
        columns = [request.columns.get(name, name) for name in source.columns()]
        keys = [request.columns.get(name, name) for name in request.key]
        target = side_of(address, keys, columns, settings)
        opened.enter_context(closing(target))
        return compare(source, target, request, tell=tell, sleep=sleep)


def side_of(
    address: Address, key: Sequence[str], columns: Sequence[str], settings: RebuildSettings
) -> Side:
    """Open what a sink serves as a side of a comparison.

    `key`, `columns`: by the names that they have there.

    Raises ConfigurationError: its form cannot be compared.
    """
    location, fields = address.location, [name for name in columns if name not in key]
    match address.sink:
        case "postgres":
            return PostgresSide(
                location["url"], ComparedRelation(table=location["table"]), of="target"
            )
        case "delta":
            return DeltaSide(location["path"].removeprefix("file://"))
        case "iceberg":
            return IcebergSide(str(IcebergPlace.of_location(location)).removeprefix("iceberg:"))
        case "search":
            return SearchSide(f"{location['url'].rstrip('/')}/{location['index']}", key, fields)
        case "topic":
            project = settings.project
            registry = project.registry if project.registry.url else None
            return TopicSide(location["topic"], key, project.kafka, registry, columns)
        case _:
            is_text = location.get("value") == "string"
            if is_text or "+cluster" in location["url"]:
                where = "in the form string" if is_text else "of a Redis Cluster"
                raise ConfigurationError(
                    f"entries {where} cannot be compared",
                    hint="rebuild-view --verify full proves them against the log",
                )
            pattern = f"{location['prefix']}*{location.get('suffix', '')}"
            return CacheSide(f"{location['url'].rstrip('/')}/{pattern}", key, fields)


def _show(reports: Sequence[SinkReport], *, as_json: bool) -> None:
    verdicts = [one.report.verified for one in reports]
    if as_json:
        verified = False if False in verdicts else None if None in verdicts else True
        print_json({"verified": verified, "sinks": [one.to_json() for one in reports]})
    else:
        print("\n".join(line for one in reports for line in one.lines()))
    if refuted := _named(reports, verified=False):
        raise RefutedError(
            f"PostgreSQL answers otherwise than {refuted} serves",
            hint="`changelog verify` tells whether the log has the source's rows, `rebuild-view` "
            "builds and proves the view from the log",
        )
    if unsettled := _named(reports, verified=None):
        raise VerdictError(
            f"{unsettled} could not be compared: keys kept changing, or the sample has no row",
            hint="take a longer --settle or a larger --sample",
        )


def _named(reports: Sequence[SinkReport], *, verified: bool | None) -> str:
    return ", ".join(one.name for one in reports if one.report.verified is verified)
