"""The sources of the page: our own commands, the history, the sinks."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from changelog.config import BROKERS, Project, load_project
from changelog.contract.base.errors import ChangelogError
from changelog.runtime.edge import one_line
from replay.base.sections import warehouse_of
from views.base.sections import Schedule
from views.generations.history import GenerationHistory, HistoryRow
from views.generations.served import served_of
from views.operate.other_commands import CommandAnswer, ask_one
from views.page.line.looking import WAIT_S, Look, Seen, look_at
from views.page.line.standing import (
    DeclaredView,
    LineStanding,
    Severity,
    SinkState,
    ViewLine,
    log_of,
    view_line,
)
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.runs.scheduled import Due, due_of
from views.sinks.base import ForwardSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The line at one moment."""

    at: datetime  # the moment
    folder: str  # of the project
    slot: str  # its name
    capture: Seen[Mapping[str, Any]]  # result of `changelog status`
    topics: Seen[Mapping[str, Any]]  # result of `changelog topics`
    views: tuple[ViewLine, ...]  # how each stands
    unknown: tuple[LineStanding, ...] = ()  # what could not be found out of the project itself

    @property
    def seen_at(self) -> datetime:
        """Return the time of the oldest answer that is shown."""
        ages = [seen.age_s for view in self.views for seen in view.sinks.values()]
        return self.at - timedelta(seconds=max(self.capture.age_s, self.topics.age_s, *ages, 0.0))

    @property
    def source(self) -> LineStanding:
        """Return the state of source and slot."""
        if self.capture.value is None:
            return LineStanding(Severity.UNKNOWN, self.capture.why, "changelog doctor")
        away = self.capture.value["unanswered"]
        if "source" in away:
            return LineStanding(Severity.UNKNOWN, away["source"], "changelog doctor")
        problems = [
            problem for problem in self.capture.value["problems"] if problem not in away.values()
        ]
        if problems:
            return LineStanding(Severity.PROBLEM, problems[0], "changelog capture")
        if "log" in away:
            text = f"capture runs; how far is not known: {away['log']}"
            return LineStanding(Severity.UNKNOWN, text, "changelog doctor")
        if "registry" in away:
            return LineStanding(
                Severity.UNKNOWN, f"capture runs; {away['registry']}", "changelog doctor"
            )
        return LineStanding(Severity.OK, "capture runs")

    @property
    def log(self) -> LineStanding:
        """Return the state of the topics."""
        if self.topics.value is None:
            return LineStanding(Severity.UNKNOWN, self.topics.why, "changelog doctor")
        refused = refused_of(self.topics.value)
        if refused:
            text = f"{len(refused)} cannot be read exactly"
            return LineStanding(Severity.PROBLEM, text, "changelog topics")
        return LineStanding(Severity.OK, f"{len(self.topics.value['topics'])} can be read exactly")

    @property
    def worst(self) -> Severity:
        """Return the worst of all."""
        every = [self.source, self.log, *self.unknown, *(view.worst for view in self.views)]
        return max(standing.level for standing in every)


def refused_of(topics: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables and topics that cannot be read exactly now, by `changelog topics`.

    Tables by their names with the reason, and topics that are gone by theirs.
    """
    return dict.fromkeys(topics.get("missing", []), "it is gone") | {
        topic["table"]: "; ".join(topic["reasons"]) or topic["text"]
        for topic in topics["topics"]
        if topic["table"] is not None and topic["verdict"] not in {"exact", "exact-until"}
    }


@dataclass(slots=True)
class _Known:
    """A view's declaration, and the looks at its sinks."""

    spec: ViewSpec
    sinks: dict[str, Look[SinkState]] = field(default_factory=dict)


class ServerAnswers:
    """Answers of a project's servers, with the age of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._capture = Look(lambda: _said(folder, ("status",), "problems"))
        self._topics = Look(lambda: _said(folder, ("topics",), "topics"))
        self._history = Look(self._rows)
        self._kept: tuple[object, Sequence[HistoryRow]] | None = None
        self._known: dict[str, _Known] = {}
        self._declares = threading.Lock()

    def project(self) -> Project:
        """Read the settings.

        Raises ConfigurationError: they cannot be used.
        """
        return load_project(self.folder, needs=[BROKERS])

    def line(self, *, wait_s: float = WAIT_S) -> Line:
        """Return the line, looked at a few seconds ago at most where servers answer.

        `wait_s`: waits so long, at most, for what was never looked at.
        """
        unknown: list[LineStanding] = []
        project = self._project(unknown)
        declared = self._declared(project, unknown)
        sinks = {name: watched.sinks for name, watched in self._known.items()}
        every: list[Look[Any]] = [self._capture, self._topics, self._history]
        every += [look for looks in sinks.values() for look in looks.values()]
        look_at(every, wait_s=wait_s)
        capture, topics = self._capture.seen, self._topics.seen
        now = datetime.now(UTC)
        return Line(
            at=now,
            folder=str(self.folder.resolve()),
            slot=project.slot if project is not None else "",
            capture=capture,
            topics=topics,
            views=tuple(
                view_line(
                    view,
                    sinks={name: look.seen for name, look in sinks.get(view.name, {}).items()},
                    history=self._history.seen,
                    log=log_of(capture.value),
                    refused=_refused(view, topics.value),
                    due=_due(project, view.name, now),
                    now=now,
                )
                for view in declared
            ),
            unknown=tuple(unknown),
        )

    def rows(self, view: str) -> list[HistoryRow]:
        """Return the rows of a view's history as they were seen last, oldest first."""
        return [row for row in self._history.seen.value or () if row.view == view]

    def again(self) -> None:
        """Look again at once, after a change made by this page."""
        every: list[Look[Any]] = [self._history]
        every += [look for watched in self._known.values() for look in watched.sinks.values()]
        for pending in every:
            pending.begin(at_once=True)

    def _project(self, unknown: list[LineStanding]) -> Project | None:
        try:
            return self.project()
        except ChangelogError as error:
            unknown.append(
                LineStanding(Severity.UNKNOWN, f"settings: {one_line(error)}", "changelog doctor")
            )
            return None

    def _declared(self, project: Project | None, unknown: list[LineStanding]) -> list[DeclaredView]:
        """Read the files of the views; the last ones read where that is not possible."""
        if project is None:
            return [_of_spec(watched.spec) for watched in self._known.values()]
        try:
            catalog = catalog_of(project)
        except ChangelogError as error:
            unknown.append(_unknown("views", error))
            return []
        declared = []
        with self._declares:
            for name in catalog.names:
                try:
                    spec = catalog.load(name)
                except ChangelogError as error:
                    self._known.pop(name, None)
                    declared.append(DeclaredView(name=name, wrong=one_line(error)))
                    continue
                self._know(spec, project)
                declared.append(_of_spec(spec))
            for name in self._known.keys() - catalog.paths.keys():
                del self._known[name]
        return declared

    def _know(self, spec: ViewSpec, project: Project) -> None:
        watched = self._known.get(spec.name)
        if watched is None or watched.spec != spec:
            looks = {name: Look(_asks(spec, project, name)) for name in spec.sinks}
            self._known[spec.name] = _Known(spec, looks)

    def _rows(self) -> Sequence[HistoryRow]:
        """Read the history, if it has new rows."""
        history = GenerationHistory(warehouse_of(self.project()))
        version = history.version()
        if self._kept is None or self._kept[0] != version:
            self._kept = (version, history.rows())
        return self._kept[1]


def _asks(spec: ViewSpec, project: Project, name: str) -> Any:  # noqa: ANN401 - what a look does
    def ask() -> SinkState:
        sink = served_of(spec, project, None).sinks[name]
        number = sink.published()
        position = None
        if number is not None and isinstance(sink, ForwardSink):
            position = sink.position(number)
        # A view of logs that have no frontier is at no LSN.
        lsn = position.commit_lsn if position is not None else None
        return SinkState(number, str(lsn) if lsn else None)

    return ask


def _unknown(subject: str, error: ChangelogError) -> LineStanding:
    return LineStanding(Severity.UNKNOWN, f"{subject}: {one_line(error)}", "changelog doctor")


def _of_spec(spec: ViewSpec) -> DeclaredView:
    return DeclaredView(
        name=spec.name,
        sinks=spec.sinks,
        tables=tuple(map(str, spec.tables)),
        key=spec.key,
        description=spec.description,
    )


def _said(folder: Path, words: Sequence[str], member: str) -> Mapping[str, Any]:
    """Return the output of a command.

    Raises ChangelogError: its result has no such member.
    """
    answer: CommandAnswer = ask_one(folder, words)
    if member not in answer.result:
        raise answer.refusal()
    return answer.result


def _refused(declared: DeclaredView, topics: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the tables of a view that cannot be read exactly now, with the reason."""
    if topics is None:
        return {}
    refused, there = refused_of(topics), {topic["table"] for topic in topics["topics"]}
    if topics.get("missing"):
        refused |= {table: "it has no topic" for table in declared.tables if table not in there}
    return {table: refused[table] for table in declared.tables if table in refused}


def _due(project: Project | None, view: str, now: datetime) -> datetime | None:
    """Return when a schedule rebuilds a view next, or None if none does."""
    if project is None or not project.section(Schedule).root:
        return None
    try:
        schedules = due_of(project.section(Schedule).root)
    except ChangelogError:
        return None
    times = [schedule.times.after(now) for schedule in schedules if _rebuilds(schedule, view)]
    return min(times, default=None)


def _rebuilds(due: Due, view: str) -> bool:
    return "--all" in due.words or view in due.words
