"""Tell OpenLineage of the runs of views: a job for each view, a run of it for each of ours.

A view that is rebuilt, one that is followed and one that is published or rolled back are three
jobs: the first ends, the second goes on until it is stopped, the third reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from changelog.contract.base.errors import ChangelogError
from changelog.contract.rows.schema import LoggedSchema
from changelog.runtime.lineage.facts import (
    Dataset,
    DatasetCheck,
    Job,
    RunState,
    SourceColumn,
)
from changelog.runtime.lineage.places import topic_place
from changelog.runtime.lineage.sending import ReportedRun, Sender, ended_with_block, sending
from views.base.config import RebuildSettings
from views.explain.provenance import column_sources
from views.generations.history import CHANGES, GenerationHistory
from views.generations.served import sink_settings
from views.lineage.places import served_places
from views.project.spec import SqlSource, ViewSpec
from views.rebuild.result.report import Outcome, ViewResult

_CHECK = "equals_the_log"
_CHECKED = {
    "full": "every row is compared with the view computed by another engine from the log",
    "changed": "changed rows are compared with the view computed by another engine from the log",
    "sample": "a sample is compared with the view computed by another engine from the log",
}


class Action(Enum):
    """The thing that a run does to views; its value ends the name of the job."""

    REBUILD = ""
    FOLLOW = ".follow"
    PUBLISH = ".publish"


@dataclass(slots=True)
class _View:
    """A view in a run, for the thread that sends."""

    name: str
    spec: ViewSpec | None  # None where its declaration cannot be read
    settings: RebuildSettings
    action: Action
    result: ViewResult | None = None  # the newest
    run: ReportedRun | None = None

    def begin(self, sender: Sender) -> ReportedRun:
        """Tell that its run begins, unless that is told."""
        if self.run is None:
            self.run = sender.begin(_job(self.name, self.spec, self.action), self.state)
        return self.run

    def state(self) -> RunState:
        """Return its datasets, as far as they are known."""
        spec, result = self.spec, self.result
        if spec is None:
            return RunState()
        places = served_places(spec, sink_settings(self.settings.project))
        if result is None:
            return RunState((), [Dataset(place=place) for place in places.values()])
        brokers = self.settings.project.kafka.brokers
        version, sources = self._version(result), _sources(spec, result, brokers)
        return RunState(
            _inputs(result, brokers),
            [
                Dataset(
                    place=place,
                    columns=dict(result.columns),
                    version=version,
                    sources=sources,
                    rows=None if self.action is Action.PUBLISH else _written(result, sink),
                    checks=_checks(result, sink),
                )
                for sink, place in places.items()
            ],
        )

    def _version(self, result: ViewResult) -> str:
        """Return the generation that was built or published, and its frontier."""
        number, frontier = result.generation, result.frontier
        if result.error is not None or number is None:
            return ""
        epoch, lsn = (None, None) if frontier is None else (frontier.epoch, str(frontier.lsn))
        if self.action is Action.PUBLISH:
            rows = GenerationHistory(self.settings.warehouse).rows([self.name], generation=number)
            epoch, lsn = (rows[-1].epoch, rows[-1].lsn) if rows else (None, None)
        return f"generation {number}" + ("" if lsn is None else f", epoch {epoch}, LSN {lsn}")


class _Run:
    """The views of a command, each with a run of its own."""

    def __init__(self, sender: Sender, views: Mapping[str, _View], action: Action) -> None:
        self._sender = sender
        self._views = views
        self._goes_on = action is Action.FOLLOW
        if not self._goes_on:  # another process may follow some of them
            for view in views.values():
                view.begin(sender)

    def take(self, outcome: Outcome) -> None:
        """Tell of an outcome; of views that are followed it is that of a round."""
        if outcome.error is not None and not outcome.results:
            self.end(outcome.error)
        for result in outcome.results:
            view = self._views[result.view]
            view.result = result
            run = view.begin(self._sender)
            if result.error is not None or not self._goes_on:
                run.end(result.error)
            else:
                run.know()

    def _begun(self) -> list[ReportedRun]:
        return [view.run for view in self._views.values() if view.run is not None]

    def abort(self) -> None:
        """Tell that all are broken off."""
        for run in self._begun():
            run.abort()

    def end(self, error: ChangelogError | None = None) -> None:
        """Tell that all have ended, or failed for one reason."""
        runs = self._begun()
        if error is not None and not runs:
            runs = [view.begin(self._sender) for view in self._views.values()]
        for run in runs:
            run.end(error)


@contextmanager
def told_to_lineage(
    names: Sequence[str], specs: Sequence[ViewSpec], settings: RebuildSettings, action: Action
) -> Iterator[Callable[[Outcome], None]]:
    """Tell of the runs of views in the block, where somebody asks for it.

    `names`: of the views, also of those that cannot be read, which `specs` lacks.

    Yields:
        A function that takes the outcome, of each round where views are followed; a run without an
        outcome ends when the block does.
    """
    with sending() as sender:
        if sender is None:
            yield lambda _: None
            return
        by_name = {spec.name: spec for spec in specs}
        views = {name: _View(name, by_name.get(name), settings, action) for name in names}
        run = _Run(sender, views, action)
        with ended_with_block(run):
            yield run.take


def _job(name: str, spec: ViewSpec | None, action: Action) -> Job:
    job = f"rebuild-view.{name}{action.value}"
    streams = action is Action.FOLLOW
    if spec is None:
        return Job(name=job, kind="VIEW", is_streaming=streams)
    source = spec.source
    query, dialect = "", ""
    if isinstance(source, SqlSource):
        written = source.written or source
        query, dialect = written.text, written.dialect
    return Job(
        name=job,
        kind="VIEW",
        is_streaming=streams,
        description=spec.description,
        query=query,
        dialect=dialect,
    )


def _written(result: ViewResult, sink: str) -> int | None:
    """Return the number of rows that a run has written, or None if they are not all of them."""
    is_new = result.staged or result.switch_seconds is not None
    if result.rows is None or result.error is not None or not is_new:
        return None
    return result.rows - result.refused.get(sink, 0)


def _checks(result: ViewResult, sink: str) -> list[DatasetCheck]:
    report = result.reports.get(sink) or result.reports.get(CHANGES)
    if report is None or report.verified is None:
        return []
    mode = str(report.certificate.get("mode", result.mode))
    return [
        DatasetCheck(
            name=_CHECK,
            description=_CHECKED.get(mode, _CHECKED["full"]),
            passed=report.verified,
            expected=str(report.rows_expected),
            actual=str(report.rows_served),
            parameters={"mode": mode, "mismatches": report.mismatches},
        )
    ]


def _inputs(result: ViewResult, brokers: str) -> list[Dataset]:
    columns = {schemas.topic: _columns(schemas.viewed) for schemas in result.schemas.values()}
    version = ""
    if result.frontier is not None:
        version = f"epoch {result.frontier.epoch}, LSN {result.frontier.lsn}"
    return [
        Dataset(place=topic_place(brokers, topic), columns=columns.get(topic, {}), version=version)
        for topic in dict.fromkeys([*result.topics, *columns])
    ]


def _columns(schema: LoggedSchema) -> dict[str, str]:
    return {column.column: column.type.name for column in schema.columns}


def _sources(spec: ViewSpec, result: ViewResult, brokers: str) -> dict[str, list[SourceColumn]]:
    """Return the columns of topics that each column of a view is computed from."""
    if spec.sql is None or not result.schemas:
        return {}
    viewed = {table: schemas.viewed for table, schemas in result.schemas.items()}
    columns = {table: [*_columns(schema)] for table, schema in viewed.items()}
    places = {
        table: topic_place(brokers, schemas.topic) for table, schemas in result.schemas.items()
    }
    spelled = {name.lower(): name for name, _ in result.columns}
    return {
        spelled.get(name.lower(), name): [
            SourceColumn(places[table], column, how.value) for table, column in sources
        ]
        for name, (sources, how) in column_sources(spec.sql, columns).items()
        if sources
    }
