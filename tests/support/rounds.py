"""Rounds of a follower, made one by one in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from changelog.config import BROKERS, REGISTRY, load_project
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.progress import Stages
from views.generations.lock import following
from views.generations.place import LockPlace
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.rebuild.follow import Follower
from views.rebuild.rebuild import RebuildRun
from views.rebuild.resident import Resident
from views.rebuild.result.report import ViewResult
from views.rebuild.sending import sending


def quiet() -> Stages:
    """Return stages that show nothing."""
    return Stages(Console(quiet=True))


@dataclass
class Rounds:
    """Makes a round when called.

    Gives whether it was verified, and None where there is nothing new.
    """

    follower: Follower
    results: list[ViewResult] = field(default_factory=list)

    def __call__(self) -> bool | None:
        outcome = self.follower.round()
        if outcome is None:
            return None
        assert outcome.error is None, outcome.error
        self.results += outcome.results
        return outcome.results[0].verified

    def error(self) -> Exception | None:
        """Make a round, and return what ended it."""
        outcome = self.follower.round()
        return None if outcome is None else outcome.error

    @property
    def origin(self) -> str:
        """Say what the last round was made of."""
        return self.results[-1].origin

    @property
    def generation(self) -> int | None:
        """Return what the last round has left serving."""
        return self.results[-1].generation


@contextmanager
def rounds(
    root: Path, view: str, *, forward: bool = False
) -> Iterator[tuple[Rounds, list[ViewSpec], RebuildSettings]]:
    """Follow a view of a project; gives what makes a round, the views, and their settings.

    With `forward` the generation that serves goes forward where it can, and a round waits for
    sinks as long as they take.
    """
    settings = RebuildSettings(
        project=load_project(root, needs=[BROKERS, REGISTRY]),
        source=RowsSource.REFRESH,
        forward=forward,
        verify=VerifyMode.CHANGED if forward else VerifyMode.FULL,
    )
    specs = catalog_of(settings.project).load_all([view])
    with (
        pytest.MonkeyPatch.context() as patched,
        following(LockPlace(root), [view]),
        Resident(settings) as resident,
        Follower(
            specs, settings, resident, stages=quiet, stop=lambda: False, make=RebuildRun
        ) as follower,
    ):  # fmt: skip
        patched.setattr(sending, "PATIENCE_S", 60.0)
        yield Rounds(follower), specs, settings
