"""Runs of rebuilds from Python: settings from arguments, failures as exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from rich.console import Console

from changelog.contract.base.errors import ConfigurationError
from replay.cut.asof import parse_as_of
from views.api.values import Runs, ViewRun
from views.base.config import RebuildSettings, Source, VerifyMode
from views.base.progress import Stages
from views.project.spec import ViewSpec
from views.rebuild.plan.plan import groups_of
from views.rebuild.rebuild import Rebuild
from views.rebuild.result.outcome import Outcome
from views.rebuild.result.report import ViewResult

Verify = Literal["full", "changed", "sample", "none"]
From = Literal["start", "checkpoint", "refresh"]


def chosen(
    settings: RebuildSettings, verify: Verify, source: From | None, as_of: str | None = None
) -> RebuildSettings:
    """Return the settings of a run.

    Raises:
        ConfigurationError: a word or a moment is none.
    """
    try:
        return replace(
            settings,
            verify=VerifyMode(verify),
            source=None if source is None else Source(source),
            as_of=None if as_of is None else parse_as_of(as_of),
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def stages() -> Stages:
    """Return a display of a run's stages: a bar on a terminal, else lines in the log."""
    return Stages(Console(stderr=True))


def rebuilt(specs: Sequence[ViewSpec], settings: RebuildSettings) -> Runs:
    """Rebuild views; raises the worst of their errors, when all are done."""
    results: list[ViewResult] = []
    for group in groups_of(specs, settings):
        shown = stages()
        with shown.shown():
            results += Rebuild(settings, shown).run(group).results
    return Runs(tuple(map(ViewRun.of, sound(results))))


def one(results: Sequence[ViewResult]) -> ViewRun:
    """Return the run of the one view."""
    return ViewRun.of(sound(results)[0])


def sound(results: Sequence[ViewResult]) -> Sequence[ViewResult]:
    """Return results of which none is an error; raises the worst otherwise."""
    error = Outcome.of(results).error
    if error is not None:
        raise error
    return results
