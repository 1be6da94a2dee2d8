"""Runs of rebuilds from Python: settings from arguments, failures as exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Literal, TypeVar

from rich.console import Console

from changelog.contract.base.errors import ConfigurationError
from replay.api.reach import Moment, as_of_moment
from replay.api.values import LogFrontier
from views.api.values import Runs, ViewRun
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.progress import Stages
from views.project.spec import ViewSpec
from views.rebuild.plan.plan import groups_of
from views.rebuild.rebuild import RebuildRun
from views.rebuild.result.report import Outcome, ViewResult

Verify = Literal["full", "changed", "sample", "none"]
From = Literal["start", "checkpoint", "refresh", "archive"]
Word = TypeVar("Word", bound=Enum)


def chosen(
    settings: RebuildSettings, verify: Verify, source: From | None, as_of: Moment | None = None
) -> RebuildSettings:
    """Return the settings of a run.

    Raises:
        ConfigurationError: a word or a moment is none, or a frontier is of another log.
    """
    slot = settings.project.slot
    if isinstance(as_of, LogFrontier) and as_of.slot != slot:
        raise ConfigurationError(
            f'the frontier is of slot "{as_of.slot}", the project\'s log of slot "{slot}"',
            hint="take one of project.log.frontiers()",
        )
    return replace(
        settings,
        verify=_word("verify", verify, VerifyMode),
        source=None if source is None else _word("source", source, RowsSource),
        as_of=None if as_of is None else as_of_moment(as_of),
    )


def _word(name: str, word: str, kind: type[Word]) -> Word:
    try:
        return kind(word)
    except ValueError as error:
        raise ConfigurationError(
            f"{name}: there is no {word!r}", hint=", ".join(each.value for each in kind)
        ) from error


def stages() -> Stages:
    """Return a display of a run's stages: a bar on a terminal, else lines in the log."""
    return Stages(Console(stderr=True))


def rebuilt(specs: Sequence[ViewSpec], settings: RebuildSettings) -> Runs:
    """Rebuild views; raises the worst of their errors, when all are done."""
    results: list[ViewResult] = []
    for group in groups_of(specs, settings):
        shown = stages()
        with shown.shown():
            results += RebuildRun(settings, shown).run(group).results
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
