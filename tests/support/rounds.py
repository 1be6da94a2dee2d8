"""Rounds of a follower, made one by one in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from changelog.config import BROKERS, REGISTRY, load_project
from views.base.config import RebuildSettings, Source
from views.base.progress import Stages
from views.generations.lock import following
from views.generations.place import Place
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.rebuild.follow import Follower
from views.rebuild.rebuild import Rebuild
from views.rebuild.resident import Resident


def quiet() -> Stages:
    """Return stages that show nothing."""
    return Stages(Console(quiet=True))


@contextmanager
def rounds(
    root: Path, view: str
) -> Iterator[tuple[Callable[[], bool | None], list[ViewSpec], RebuildSettings]]:
    """Follow a view of a project; gives what makes a round, the views, and their settings.

    A round gives whether it was verified, and None where there is nothing new.
    """
    settings = RebuildSettings(
        project=load_project(root, needs=[BROKERS, REGISTRY]), source=Source.REFRESH
    )
    specs = catalog_of(settings.project).load_all([view])

    def made() -> bool | None:
        outcome = follower.round()
        if outcome is None:
            return None
        assert outcome.error is None, outcome.error
        return outcome.results[0].verified

    with (
        following(Place(root), [view]),
        Resident(settings) as resident,
        Follower(
            specs, settings, resident, stages=quiet, stop=lambda: False, make=Rebuild
        ) as follower,
    ):  # fmt: skip
        yield made, specs, settings
