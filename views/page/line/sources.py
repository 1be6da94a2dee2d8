"""Collects the state of the line: from our own commands, the history and the sinks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
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
from views.page.line.looking import WAIT_S, LastAnswer, Question, ask_all
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
    """The state of the line at one moment."""

    at: datetime
    folder: str  # the project's folder
    slot: str  # the replication slot's name
    capture: LastAnswer[Mapping[str, Any]]  # output of `changelog status`
    topics: LastAnswer[Mapping[str, Any]]  # output of `changelog topics`
    views: tuple[ViewLine, ...]
    unknown: tuple[LineStanding, ...] = ()  # errors of the project's own files

    @property
    def seen_at(self) -> datetime:
        """Return the time of the oldest answer that is shown."""
        ages = [answer.age_s for view in self.views for answer in view.sinks.values()]
        return self.at - timedelta(seconds=max(self.capture.age_s, self.topics.age_s, *ages, 0.0))

    @property
    def source(self) -> LineStanding:
        """Return the state of the source and the slot."""
        if self.capture.value is None:
            return LineStanding(Severity.UNKNOWN, self.capture.why, "changelog doctor")
        unanswered = self.capture.value["unanswered"]
        if "source" in unanswered:
            return LineStanding(Severity.UNKNOWN, unanswered["source"], "changelog doctor")
        problems = [
            problem
            for problem in self.capture.value["problems"]
            if problem not in unanswered.values()
        ]
        if problems:
            return LineStanding(Severity.PROBLEM, problems[0], "changelog capture")
        if "log" in unanswered:
            text = f"capture runs; its progress is unknown: {unanswered['log']}"
            return LineStanding(Severity.UNKNOWN, text, "changelog doctor")
        if "registry" in unanswered:
            return LineStanding(
                Severity.UNKNOWN, f"capture runs; {unanswered['registry']}", "changelog doctor"
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
        """Return the worst severity on the whole line."""
        standings = [self.source, self.log, *self.unknown, *(view.worst for view in self.views)]
        return max(standing.level for standing in standings)


def refused_of(topics: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables that cannot be read exactly now, and missing topics, with the reason.

    `topics` is the output of `changelog topics`.
    """
    return dict.fromkeys(topics.get("missing", []), "it does not exist any more") | {
        topic["table"]: "; ".join(topic["reasons"]) or topic["text"]
        for topic in topics["topics"]
        if topic["table"] is not None and topic["verdict"] not in {"exact", "exact-until"}
    }


@dataclass(slots=True)
class _WatchedView:
    """A view's declaration, and the questions to its sinks."""

    spec: ViewSpec
    sinks: dict[str, Question[SinkState]] = field(default_factory=dict)


class ServerAnswers:
    """Asks the servers of a project, and has their last answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._capture = Question(lambda: _output(folder, ("status",), "problems"))
        self._topics = Question(lambda: _output(folder, ("topics",), "topics"))
        self._history = Question(self._rows)
        self._last_history: tuple[object, Sequence[HistoryRow]] | None = None
        self._watched: dict[str, _WatchedView] = {}
        self._declares = threading.Lock()

    def project(self) -> Project:
        """Read the settings.

        Raises ConfigurationError: they cannot be used.
        """
        return load_project(self.folder, needs=[BROKERS])

    def line(self, *, wait_s: float = WAIT_S) -> Line:
        """Return the state of the line; answers are a few seconds old at most if servers answer.

        `wait_s` is how long it waits at most for the first answers.
        """
        unknown: list[LineStanding] = []
        project = self._project(unknown)
        declared = self._declared(project, unknown)
        sinks = {name: watched.sinks for name, watched in self._watched.items()}
        all_questions: list[Question[Any]] = [self._capture, self._topics, self._history]
        all_questions += [
            question for questions in sinks.values() for question in questions.values()
        ]
        ask_all(all_questions, wait_s=wait_s)
        capture, topics = self._capture.answer, self._topics.answer
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
                    sinks={
                        name: question.answer for name, question in sinks.get(view.name, {}).items()
                    },
                    history=self._history.answer,
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
        """Return the rows of a view's history as they were read last, oldest first."""
        return [row for row in self._history.answer.value or () if row.view == view]

    def ask_again(self) -> None:
        """Ask for the history and the sinks again at once, after an action of this page."""
        questions: list[Question[Any]] = [self._history]
        questions += [
            question for watched in self._watched.values() for question in watched.sinks.values()
        ]
        for question in questions:
            question.begin(at_once=True)

    def _project(self, unknown: list[LineStanding]) -> Project | None:
        try:
            return self.project()
        except ChangelogError as error:
            unknown.append(
                LineStanding(Severity.UNKNOWN, f"settings: {one_line(error)}", "changelog doctor")
            )
            return None

    def _declared(self, project: Project | None, unknown: list[LineStanding]) -> list[DeclaredView]:
        """Read the views' files; without a project return the views that were read last."""
        if project is None:
            return [_of_spec(watched.spec) for watched in self._watched.values()]
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
                    self._watched.pop(name, None)
                    declared.append(DeclaredView(name=name, error=one_line(error)))
                    continue
                self._watch(spec, project)
                declared.append(_of_spec(spec))
            for name in self._watched.keys() - catalog.paths.keys():
                del self._watched[name]
        return declared

    def _watch(self, spec: ViewSpec, project: Project) -> None:
        watched = self._watched.get(spec.name)
        if watched is None or watched.spec != spec:
            questions = {name: Question(_question(spec, project, name)) for name in spec.sinks}
            self._watched[spec.name] = _WatchedView(spec, questions)

    def _rows(self) -> Sequence[HistoryRow]:
        """Read the history, if it has new rows."""
        history = GenerationHistory(warehouse_of(self.project()))
        version = history.version()
        if self._last_history is None or self._last_history[0] != version:
            self._last_history = (version, history.rows())
        return self._last_history[1]


def _question(spec: ViewSpec, project: Project, name: str) -> Callable[[], SinkState]:
    """Return the function that asks a sink for the generation and LSN that it serves."""

    def ask() -> SinkState:
        sink = served_of(spec, project, None).sinks[name]
        number = sink.published()
        position = None
        if number is not None and isinstance(sink, ForwardSink):
            position = sink.position(number)
        # A view of other programs' logs has no LSN, because they have no frontiers.
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


def _output(folder: Path, words: Sequence[str], member: str) -> Mapping[str, Any]:
    """Return the JSON output of one of our commands.

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
    refused, with_topic = refused_of(topics), {topic["table"] for topic in topics["topics"]}
    if topics.get("missing"):
        refused |= {
            table: "it has no topic" for table in declared.tables if table not in with_topic
        }
    return {table: refused[table] for table in declared.tables if table in refused}


def _due(project: Project | None, view: str, now: datetime) -> datetime | None:
    """Return the time at which a schedule rebuilds a view next, or None if none does."""
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
