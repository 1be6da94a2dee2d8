"""A rebuild takes over a running follower's position, so that no reader goes back.

A rebuild is true at the frontier of its start, and takes minutes; a follower of the same views
shows readers later ones meanwhile. So the generation that nobody sees yet is brought forward as a
follower brings the one that serves: by the keys that changed, proved. That is repeated while the
follower goes on until little is left; the rest, and the switch, are done while it holds still. What
it finds then serves at its own frontier or a later one, and it goes on from there.

Whether somebody follows does not matter: what counts is what readers see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from replay.base.record_place import cut_of
from views.base.config import RebuildSettings
from views.generations.history import GenerationHistory
from views.generations.succession import serving
from views.rebuild.one_view.delta import forward_sinks, position_of
from views.rebuild.one_view.view_build import ViewBuild

_PASSES = 3
"""While the follower goes on, at most."""
_SHORT_S = 30.0
"""What a pass of so many seconds leaves can be waited for."""


@dataclass(frozen=True, slots=True)
class UnpublishedBase:
    """An unpublished generation that is brought forward."""

    generation: int  # its number
    next: int  # that of the one which takes its place where it cannot go forward itself


@dataclass(frozen=True, slots=True)
class Takeover:
    """Brings unpublished generations to the readers' frontier."""

    settings: RebuildSettings  # of the run
    history: GenerationHistory  # knows the frontiers of generations that never went forward
    # brings some views' generations to the newest frontier
    move: Callable[[Sequence[ViewBuild]], None]

    def bring_near(self, builds: Sequence[ViewBuild]) -> None:
        """Bring generations near the readers' frontier; readers may move on meanwhile."""
        for _ in range(_PASSES):
            begun = time.monotonic()
            behind = [build for build in builds if build.error is None and self.is_behind(build)]
            if not behind:
                return
            self.move(behind)
            if time.monotonic() - begun < _SHORT_S:
                return

    def bring(self, builds: Sequence[ViewBuild]) -> None:
        """Bring generations to the readers' frontier; the caller keeps readers from moving."""
        behind = [build for build in builds if self.is_behind(build)]
        if behind:
            self.move(behind)

    def is_behind(self, build: ViewBuild) -> bool:
        """Tell whether readers see a later frontier than that of a view's new generation."""
        generations = list(build.served.held_without_listing().values())
        build.previous = serving(generations)
        now = [
            self._position(build, generation.published)
            for generation in generations
            if generation.published
        ]
        own = _brought_to(build) or self._position(build, build.generation.number)
        return own is not None and any(position is not None and position > own for position in now)

    def _position(self, build: ViewBuild, generation: int) -> Position | None:
        """Return the first position that a generation does not hold any more; None: not known."""
        sinks = forward_sinks(build.served, generation)
        position = None if isinstance(sinks, str) else position_of(sinks, generation)
        rows = self.history.rows([build.spec.name], generation=generation)
        positioned = [row for row in rows if row.lsn is not None and row.epoch is not None]
        if position is None and positioned:
            position = Position(positioned[-1].epoch or 0, Lsn.parse(positioned[-1].lsn or ""), 0)
        return position


def _brought_to(build: ViewBuild) -> Position | None:
    """Return the position of a generation that was made whole in this run, or None."""
    return None if build.brought is None else cut_of(build.brought.cut.record.frontier)
