"""Go back to the generation that served before, in every sink at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.progress.steps import Steps
from views.base.config import RebuildSettings, VerifyMode
from views.base.progress import Stages
from views.generations.history import PUBLISHED, History, HistoryRow, as_built, states_of
from views.generations.lock import Patience, locked, others_of
from views.generations.place import Place, place_for
from views.generations.served import MakeServed, Peers, Served, peers_of, served_of
from views.generations.succession import line_of, rollback_target
from views.generations.swap import settle, swap
from views.project.spec import ViewSpec
from views.rebuild.read_back import check_whole
from views.rebuild.result.report import ViewResult


class NothingToRollBackError(ChangelogError):
    """No sink-wide older generation of a view is left."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The generation that a view goes back to, as it was `built`; `before` serves until now."""

    served: Served
    generation: int
    built: HistoryRow | None
    before: int


def roll_back(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    stages: Stages,
    *,
    make_served: MakeServed = served_of,
    stop: Callable[[], bool] = lambda: False,
) -> list[ViewResult]:
    """Publish the previous generation of each view; all of them or none.

    Raises:
        LockedError: a rebuild of one of them runs.
        NothingToRollBackError: a view has no older generation in all of its sinks.
        SinkError: a sink has more or fewer rows of one than were written.
    """
    history = History(settings.warehouse)
    place = place_for(settings)
    with locked(
        place, [spec.name for spec in specs], Patience.of(settings.runs.wait_seconds, stop)
    ):
        servings = [make_served(spec, settings.project, None) for spec in specs]
        with stages.looking("what serves now"):
            steps = stages.steps(2 * sum(len(served.sinks) for served in servings))
            peers = peers_of(settings.project, make_served)
            view_targets = [_target(served, history, place, steps, peers) for served in servings]
            if settings.verify is not VerifyMode.NONE:
                _require_whole(view_targets, history)
        targets = [(target.served, target.generation) for target in view_targets]
        with stages.stage("publish", "publish the previous generations"):
            seconds = swap(targets, confirm=place.confirm, steps=stages.steps())
        rows = [
            _row(target, spec).again(switch_seconds=seconds)
            for spec, target in zip(specs, view_targets, strict=True)
        ]
        history.append(rows)
    return [ViewResult.of_row(row) for row in rows]


def _target(served: Served, history: History, place: Place, steps: Steps, peers: Peers) -> _Target:
    """Return the generation that a view goes back to.

    Of a rollback that was cut off this is the one that sinks serve already.

    Raises:
        NothingToRollBackError: it has no older generation in all of its sinks.
    """
    settle(served, history, others_of(place, served.view, builds=True), steps, peers)
    generations = list(served.held(steps).values())
    rows = history.rows([served.view])
    states = [(row.generation, row.state) for row in rows]
    line = line_of(states)
    target = rollback_target(generations, states_of(states), line)
    if target is None:
        raise NothingToRollBackError(
            f'view "{served.view}" has no older generation to go back to',
            hint="`rebuild-view --history` shows what there was; --keep says how many stay",
        )
    before = line[-1] if line else max(one.published or 0 for one in generations)
    return _Target(served, target, as_built(rows, target), before)


def _require_whole(targets: Sequence[_Target], history: History) -> None:
    for target in targets:
        rows = history.rows([target.served.view])
        for name in target.served.sinks:
            check_whole(target.served, name, target.generation, rows)


def _row(target: _Target, spec: ViewSpec) -> HistoryRow:
    """Return the record: the generation as it was built and proved last, and the move."""
    note, built = f"rolled back from generation {target.before}", target.built
    bare = HistoryRow(view=spec.name, generation=target.generation, state=PUBLISHED)
    return (built or bare).again(state=PUBLISHED, note=note, sinks=spec.sinks)
