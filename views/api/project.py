"""A project's views as people reach them in Python."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from rich.console import Console

from changelog.config import BROKERS, REGISTRY, load_project
from changelog.contract.base.errors import ConfigurationError, ViewError
from replay.api.log import Log, folder_of
from replay.api.sheet import Sheet, Shown
from replay.cut.asof import parse_as_of
from views.api.prove import prove, recorded
from views.api.values import (
    CaseOutcome,
    Cases,
    Diff,
    Generation,
    Generations,
    Proof,
    RowOrigin,
    Runs,
    ViewRun,
)
from views.base.config import RebuildSettings, Source, VerifyMode
from views.base.progress import Stages
from views.cases.cli import case_files, case_session
from views.cases.run import Result, run_cases
from views.explain.explain import explain
from views.generations.history import History, last_states
from views.generations.served import served_of
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.rebuild.diff import diff
from views.rebuild.plan.plan import groups_of
from views.rebuild.rebuild import Rebuild
from views.rebuild.result.outcome import Outcome
from views.rebuild.result.report import ViewResult
from views.rebuild.rollback import roll_back
from views.rebuild.staged import abort_staged, publish_staged

if TYPE_CHECKING:
    pass

Verify = Literal["full", "changed", "sample", "none"]
From = Literal["start", "checkpoint", "refresh"]


@dataclass(frozen=True, slots=True)
class Project:
    """A project: its log and its views.

    Attributes:
        root: its folder.
    """

    root: Path
    _settings: RebuildSettings = field(repr=False)

    @classmethod
    def open(cls, place: str | Path = ".") -> Self:
        """Open a project.

        Args:
            place: its folder, or the `changelog.toml` in it.

        Raises:
            ConfigurationError: the settings cannot be used, or name no brokers.
        """
        project = load_project(folder_of(place), needs=[BROKERS, REGISTRY])
        return cls(project.root, RebuildSettings(project=project))

    @property
    def log(self) -> Log:
        """Return its log."""
        return Log.of(self._settings.project)

    def views(self) -> Views:
        """Return its views, read from their files now.

        Raises:
            ViewError: a file cannot be used.
        """
        return Views(tuple(catalog_of(self._settings.project).load_all()))

    def view(self, name: str) -> View:
        """Return a view; its file is read when something is asked of it."""
        return View(name, self._settings)

    def rebuild(
        self,
        names: Sequence[str] | None = None,
        *,
        verify: Verify = "full",
        source: From | None = None,
        together: bool = False,
    ) -> Runs:
        """Rebuild views at one frontier, and publish them.

        Args:
            names: which ones; all when left out.
            verify: how much is proved before readers see it.
            source: what the rows are made of: the log from its start, checkpoints, or these and
                the rows that serve.
            together: whether all are published or none; else each for itself.

        Raises:
            ChangelogError: a view failed: the worst of their errors, when the others are done.
        """
        settings = replace(_chosen(self._settings, verify, source), together=together)
        return _rebuilt(catalog_of(settings.project).load_all(names), settings)

    def test(self, names: Sequence[str] | None = None, *, spark_only: bool = False) -> Cases:
        """Compute the cases of views, in both engines; needs no server.

        Args:
            names: which ones; all that have cases when left out.
            spark_only: whether DuckDB is left out.

        Raises:
            ConfigurationError: no view has cases.
            ViewError: a file cannot be used.
        """
        from replay.spark.session import session  # noqa: PLC0415 - imports Spark

        project = self._settings.project
        files = case_files(catalog_of(project), [*names] if names else None)
        with tempfile.TemporaryDirectory() as folder:
            found = run_cases(session(case_session(project, folder)), files, prove=not spark_only)
        return Cases(tuple(map(_case, found)))


@dataclass(frozen=True, slots=True, repr=False)
class Views(Shown):
    """The views of a project, as they are declared."""

    found: tuple[ViewSpec, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return their names."""
        return tuple(each.name for each in self.found)

    def sheet(self) -> Sheet:
        """Return them as a table."""
        rows = [
            (
                each.name,
                ", ".join(each.key),
                ", ".join(table.table for table in each.tables),
                ", ".join(each.sinks),
                each.description,
            )
            for each in self.found
        ]
        return Sheet("views", ("view", "key", "tables", "sinks", "what it is"), rows)


@dataclass(frozen=True, slots=True)
class View:
    """A view of a project.

    Attributes:
        name: its name.
    """

    name: str
    _settings: RebuildSettings = field(repr=False)

    def rebuild(
        self, *, verify: Verify = "full", source: From | None = None, as_of: str | None = None
    ) -> ViewRun:
        """Build a generation, prove it, and let readers see it.

        Args:
            verify: how much is proved before.
            source: what the rows are made of; see `Project.rebuild`.
            as_of: an older LSN or time that its rows are to be true at.

        Raises:
            RefutedError: the proof found rows that differ; the generation before serves.
            VerdictError: the log cannot give the exact state.
            LockedError: another process rebuilds the view.
            ChangelogError: another reason; the message says which.
        """
        return self._built(_chosen(self._settings, verify, source, as_of))

    def stage(self, *, verify: Verify = "full", as_of: str | None = None) -> ViewRun:
        """Build and prove a generation that nobody sees before `publish`; raises as `rebuild`."""
        return self._built(replace(_chosen(self._settings, verify, None, as_of), stage=True))

    def diff(self, generation: int | None = None) -> Diff:
        """Compare a generation with the one that serves; the staged one when left out.

        Raises:
            ChangelogError: nothing is staged or serves, or the two cannot be compared.
        """
        found = diff(self._spec(), self._settings, _stages(), generation=generation)
        return Diff(found)

    def publish(self, generation: int | None = None) -> ViewRun:
        """Let readers see the staged generation.

        Raises:
            ChangelogError: nothing is staged, another number is, or a sink does not move.
        """
        spec = self._spec()
        return _one(publish_staged([spec], self._settings, _stages(), generation=generation))

    def abort(self) -> int:
        """Remove the staged generation; return its number.

        Raises:
            ChangelogError: nothing is staged.
        """
        return abort_staged([self._spec()], self._settings, _stages())[self.name]

    def rollback(self) -> ViewRun:
        """Let readers see the generation again that served before.

        Raises:
            ChangelogError: there is none.
        """
        return _one(roll_back([self._spec()], self._settings, _stages()))

    def serves(self, sink: str | None = None) -> str:
        """Return where the generation that serves can be read.

        Args:
            sink: its kind; the view's first when left out.

        Raises:
            ViewError: nothing serves there.
        """
        served = served_of(self._spec(), self._settings.project, None)
        name = sink or next(iter(served.sinks))
        if name not in served.sinks:
            raise ViewError(
                f'view "{self.name}" has no sink {name}', hint=f"it has {', '.join(served.sinks)}"
            )
        number = served.sinks[name].published()
        if number is None:
            raise ViewError(f'of view "{self.name}" nothing serves yet in {name}')
        address = served.sinks[name].address(number)
        return str(address.location.get("path", address.shown()))

    def generations(self) -> Generations:
        """Return the generations that the history knows, each at its last step."""
        rows = History(self._settings.warehouse).rows([self.name])
        found = sorted(last_states(rows).values(), key=lambda row: row.generation)
        return Generations(self.name, tuple(map(Generation.of, found)))

    def proof(self, generation: int | None = None) -> Proof:
        """Return the proof on record of a generation, the newest that has one when left out.

        Raises:
            ViewError: there is none.
        """
        return recorded(self._spec(), self._settings, generation)[0]

    def prove(self) -> Proof:
        """Compare what serves now with the log, at the frontier that it was built from.

        Of several sinks the first that differs is returned. A mismatch raises nothing: it is
        in what is returned.

        Raises:
            ViewError: nothing serves, or the file has changed since.
            VerdictError: the log cannot give that state any more.
        """
        found = prove(self._spec(), self._settings)
        return next((each for each in found if each.verified is not True), found[0])

    def explain(self, key: object) -> RowOrigin:
        """Return where the row of a key comes from, at the newest frontier.

        Args:
            key: its value; of several columns a tuple in their order, or a mapping by column.

        Raises:
            ChangelogError: there is no such row, or it cannot be traced.
        """
        values = key if isinstance(key, Mapping | list | tuple) else [key]
        return RowOrigin(explain(self._spec(), json.dumps(values, default=str), self._settings))

    def _spec(self) -> ViewSpec:
        return catalog_of(self._settings.project).load(self.name)

    def _built(self, settings: RebuildSettings) -> ViewRun:
        (run,) = _rebuilt([self._spec()], settings)
        return run


def _chosen(
    settings: RebuildSettings, verify: Verify, source: From | None, as_of: str | None = None
) -> RebuildSettings:
    try:
        return replace(
            settings,
            verify=VerifyMode(verify),
            source=None if source is None else Source(source),
            as_of=None if as_of is None else parse_as_of(as_of),
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _stages() -> Stages:
    return Stages(Console(stderr=True))


def _rebuilt(specs: Sequence[ViewSpec], settings: RebuildSettings) -> Runs:
    results: list[ViewResult] = []
    for group in groups_of(specs, settings):
        stages = _stages()
        with stages.shown():
            results += Rebuild(settings, stages).run(group).results
    return Runs(tuple(map(ViewRun.of, _sound(results))))


def _one(results: Sequence[ViewResult]) -> ViewRun:
    return ViewRun.of(_sound(results)[0])


def _sound(results: Sequence[ViewResult]) -> Sequence[ViewResult]:
    error = Outcome.of(results).error
    if error is not None:
        raise error
    return results


def _case(result: Result) -> CaseOutcome:
    why = {
        each.engine: each.problem or f"{len(each.differences)} rows differ"
        for each in result.told
        if not each.passed
    }
    return CaseOutcome(view=result.view, case=result.case, passed=result.passed, why=why)
