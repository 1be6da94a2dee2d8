"""A project's views as people reach them in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from changelog.config import BROKERS, REGISTRY, load_project
from replay.api.log import Log, folder_of
from replay.api.sheet import Sheet, SheetValue
from views.api.runs import From, Verify, chosen, rebuilt
from views.api.values import CaseOutcome, Cases, Runs
from views.api.view import View
from views.base.config import RebuildSettings
from views.cases.cli import case_files
from views.cases.run import Result, run_cases
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec


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
            source: what the rows are made of: the log from its start, checkpoints, these and the
                rows that serve, or the archive of the log.
            together: whether all are published or none; else each for itself.

        Raises:
            ChangelogError: a view failed: the worst of their errors, when the others are done.
        """
        settings = replace(chosen(self._settings, verify, source), together=together)
        return rebuilt(catalog_of(settings.project).load_all(names), settings)

    def test(self, names: Sequence[str] | None = None, *, spark_only: bool = False) -> Cases:
        """Compute the cases of views, in both engines; no server but a Spark that is set is asked.

        Args:
            names: which ones; all that have cases when left out.
            spark_only: whether DuckDB is left out.

        Raises:
            ConfigurationError: no view has cases.
            ViewError: a file cannot be used.
        """
        from replay.spark.session import session  # noqa: PLC0415 - imports Spark

        files = case_files(catalog_of(self._settings.project), [*names] if names else None)
        # A process has one session: what the cases begin, a rebuild that follows goes on with.
        own = self._settings.session()
        small = replace(own, extra={"spark.sql.shuffle.partitions": "1", **own.extra})
        results = run_cases(session(small), files, prove=not spark_only)
        return Cases(tuple(map(_case, results)))


@dataclass(frozen=True, slots=True, repr=False)
class Views(SheetValue):
    """The views of a project, as they are declared."""

    found: tuple[ViewSpec, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the views."""
        return tuple(spec.name for spec in self.found)

    def sheet(self) -> Sheet:
        """Return them as a table."""
        rows = [
            (
                spec.name,
                ", ".join(spec.key),
                ", ".join(table.table for table in spec.tables),
                ", ".join(spec.sinks),
                spec.description,
            )
            for spec in self.found
        ]
        return Sheet("views", ("view", "key", "tables", "sinks", "what it is"), rows)


def _case(result: Result) -> CaseOutcome:
    why = {
        outcome.engine: outcome.problem or f"{len(outcome.differences)} rows differ"
        for outcome in result.told
        if not outcome.passed
    }
    return CaseOutcome(view=result.view, case=result.case, passed=result.passed, why=why)
