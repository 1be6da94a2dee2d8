"""Go back to the generation that served before, in every sink at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from changelog.contract.base.errors import ChangelogError
from views.base.config import RebuildSettings
from views.base.progress import Stages
from views.generations.history import PUBLISHED, History, HistoryRow, states_of
from views.generations.lock import Patience, locked, others_of
from views.generations.place import place_for
from views.generations.served import MakeServed, served_of
from views.generations.succession import published_late, rollback_target
from views.generations.swap import settle, swap
from views.project.spec import ViewSpec
from views.rebuild.result.report import ViewResult


class NothingToRollBackError(ChangelogError):
    """No sink-wide older generation of a view is left."""


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
    """
    history = History(settings.warehouse)
    place = place_for(settings)
    with locked(
        place, [spec.name for spec in specs], Patience.of(settings.runs.wait_seconds, stop)
    ):
        targets, befores = [], []
        for spec in specs:
            served = make_served(spec, settings.project, None)
            settle(served, history, others_of(place, spec.name, builds=True))
            held = list(served.held().values())
            known = history.rows([spec.name])
            steps = [(row.generation, row.state) for row in known]
            target = rollback_target(held, states_of(steps), published_late(steps))
            if target is None:
                raise NothingToRollBackError(
                    f'view "{spec.name}" has no older generation to go back to',
                    hint="`rebuild-view --history` shows what there was; --keep says how many stay",
                )
            targets.append((served, target))
            befores.append((known, max(one.published or 0 for one in held)))
        with stages.stage("publish", "publish the previous generations"):
            seconds = swap(targets, confirm=place.confirm)
        history.append(
            _row(known, spec, target, before).again(switch_seconds=seconds)
            for spec, (_, target), (known, before) in zip(specs, targets, befores, strict=True)
        )
    return [
        ViewResult(
            view=spec.name,
            generation=target,
            published=True,
            switch_seconds=seconds,
            sinks=spec.sinks,
            mode="none",
        )
        for spec, (_, target) in zip(specs, targets, strict=True)
    ]


def _row(known: Sequence[HistoryRow], spec: ViewSpec, generation: int, before: int) -> HistoryRow:
    """Return what is recorded: the generation as it was first published, and the move."""
    note = f"rolled back from generation {before}"
    first = next(
        (
            row
            for row in known
            if (row.generation, row.state) == (generation, PUBLISHED) and row.lsn is not None
        ),
        None,
    )
    if first is None:
        return HistoryRow(
            view=spec.name, generation=generation, state=PUBLISHED, sinks=spec.sinks, note=note
        )
    return first.again(state=PUBLISHED, note=note, sinks=spec.sinks)
