"""Go back to the generation that served before, in every sink at once.

A rollback that was killed before it was recorded is ended by the next one. One that was recorded
cannot be told from one that nobody heard of; so a rollback behind a rollback wants the number of
the generation, and one to the generation that serves changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.progress.steps import Steps
from views.base.config import RebuildSettings, VerifyMode
from views.base.progress import Stages
from views.generations.history import PUBLISHED, GenerationHistory, HistoryRow, as_built, states_of
from views.generations.lock import LockPatience, locked, others_of
from views.generations.place import LockPlace, place_for
from views.generations.served import MakeServed, Peers, Served, peers_of, served_of
from views.generations.succession import line_of, rollback_targets, serving, went_back_from
from views.generations.swap import settle, swap
from views.project.spec import ViewSpec
from views.rebuild.read_back import check_all_whole
from views.rebuild.result.report import ViewResult


class NothingToRollBackError(ChangelogError):
    """No sink-wide older generation of a view is left, or not the one that is meant."""


class RolledBackError(ChangelogError):
    """Readers were rolled back last, and no number says that they are to go further."""


@dataclass(frozen=True, slots=True)
class _RollbackTarget:
    """The generation that a view goes back to, as it was `built`; `before` serves until now.

    Where it is done, the generation serves and is on record.
    """

    served: Served
    generation: int
    built: HistoryRow | None
    before: int

    @property
    def is_done(self) -> bool:
        return self.generation == self.before


def roll_back(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    stages: Stages,
    *,
    generation: int | None = None,
    make_served: MakeServed = served_of,
    stop: Callable[[], bool] = lambda: False,
) -> list[ViewResult]:
    """Publish the previous generation of each view; all of them or none.

    `generation`: the number that is meant, None for the one that served before. `make_served`:
    gives the sinks of a view. `stop`: tells whether to wait no longer for another run of one of
    them.

    Raises:
        LockedError: a rebuild of one of them runs.
        NothingToRollBackError: a view has no older generation in all of its sinks.
        RolledBackError: a view was rolled back last, and no number says that it is meant again.
        SinkError: a sink has more or fewer rows of one than were written.
    """
    history = GenerationHistory(settings.warehouse)
    place = place_for(settings)
    with locked(
        place, [spec.name for spec in specs], LockPatience.of(settings.runs.wait_seconds, stop)
    ):
        servings = [make_served(spec, settings.project, None) for spec in specs]
        with stages.looking("what serves now"):
            steps = stages.steps(2 * sum(len(served.sinks) for served in servings))
            peers = peers_of(settings.project, make_served)
            view_targets = [
                _target(served, history, generation, place, steps=steps, peers=peers)
                for served in servings
            ]
            targets = [
                (target.served, target.generation) for target in view_targets if not target.is_done
            ]
            if settings.verify is not VerifyMode.NONE:
                check_all_whole(targets, history, settings.verify)
        with stages.stage("publish", "publish the previous generations"):
            seconds = swap(targets, confirm=place.confirm, steps=stages.steps())
        rows = [
            _row(target, spec).again(switch_seconds=None if target.is_done else seconds)
            for spec, target in zip(specs, view_targets, strict=True)
        ]
        pairs = zip(rows, view_targets, strict=True)
        history.append(row for row, target in pairs if not target.is_done)
    return [ViewResult.of_row(row) for row in rows]


def _target(
    served: Served,
    history: GenerationHistory,
    generation: int | None,
    place: LockPlace,
    *,
    steps: Steps,
    peers: Peers,
) -> _RollbackTarget:
    """Return the generation that a view goes back to.

    Of a rollback that was cut off this is the one that sinks serve already.
    """
    settle(served, history, others_of(place, served.view, builds=True), steps, peers)
    generations = list(served.held(steps).values())
    rows = history.rows([served.view])
    states = [(row.generation, row.state) for row in rows]
    line = line_of(states)
    before = line[-1] if line else max(one.published or 0 for one in generations)
    current = serving(generations)
    if generation is not None and generation == current == before:
        return _RollbackTarget(served, generation, as_built(rows, generation), before)
    targets = rollback_targets(generations, states_of(states), line)
    if not targets or generation not in {None, *targets}:
        which = "older generation" if generation is None else f"generation {generation}"
        raise NothingToRollBackError(
            f'view "{served.view}" has no {which} to go back to',
            hint="`rebuild-view --history` shows what there was; --keep says how many stay",
        )
    *_, target = targets
    if generation is None and current == before and (after := went_back_from(states)):
        raise RolledBackError(
            f'view "{served.view}" was rolled back from generation {after} and serves {before}',
            hint=f"`rebuild-view {served.view} {target} --rollback` goes further back",
        )
    target = target if generation is None else generation
    return _RollbackTarget(served, target, as_built(rows, target), before)


def _row(target: _RollbackTarget, spec: ViewSpec) -> HistoryRow:
    """Return the record: the generation as it was built and proved last, and the move."""
    built = target.built
    if target.is_done and built is not None:
        return built.again(state=PUBLISHED, sinks=spec.sinks)
    note = f"rolled back from generation {target.before}"
    bare = HistoryRow(view=spec.name, generation=target.generation, state=PUBLISHED)
    return (built or bare).again(state=PUBLISHED, note=note, sinks=spec.sinks)
