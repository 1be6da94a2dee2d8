"""Move readers: every sink of every view of a run at once, or none.

There is no transaction across a Delta table, an index and a cache. What there is: all sinks hold
the whole new generation before the first one is moved, each moves in one atomic step of its own,
the steps follow each other within milliseconds, and if one fails the others are moved back. A
kill between two steps is finished by the next run (`settle`). For how long the sinks differed is
measured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.progress.steps import UNSEEN, Steps
from views.base.failure import explained
from views.generations.history import PUBLISHED, RETIRED, History, HistoryRow, states_of
from views.generations.reservation import NOBODY, Others
from views.generations.served import Served
from views.generations.staging import take_away
from views.generations.succession import (
    leftovers,
    published_late,
    staged,
    to_retire,
    unfinished_swap,
)
from views.sinks.base import Sink

log = logging.getLogger("changelog.views")


class HalfPublishedError(ChangelogError):
    """A swap broke off and not every sink could be moved back.

    What serves is whole and was verified; only some sinks serve it. The generation stays in all
    sinks, and the next run finishes the swap.
    """

    def __init__(self, reason: ChangelogError, stuck: Sequence[str]) -> None:
        super().__init__(
            f"{reason.args[0]}; meanwhile {'; '.join(stuck)}",
            hint="once the servers answer, run the rebuild again: it finishes this",
        )


class LostInSwapError(HalfPublishedError):
    """The lock was lost in the middle of a swap, or may be: the next run finishes or undoes it."""

    exit_code = 5


def swap(
    targets: Sequence[tuple[Served, int]],
    *,
    confirm: Callable[[], None] = lambda: None,
    steps: Steps = UNSEEN,
) -> float:
    """Publish a generation of each view in all its sinks; move all back if one fails.

    Args:
        targets: the sinks of each view, and the generation.
        confirm: makes sure that this process still has its locks; asked before each step, and
            behind the last. Without them nothing is moved back: another run is at work.
        steps: counts the sinks that are asked what they serve, and those that are moved.

    Returns:
        The seconds from the moment the first sink had moved until the last one had: in between
        they served different generations.

    Raises:
        ChangelogError: a sink did not move; the others serve what they served before, or the
            message says which of them does not.
        LockedError: the lock is lost and no sink has moved.
        UnavailableError: whether it is lost is not known, and no sink has moved.
        LostInSwapError: either came after some sink had moved.
    """
    steps.more(2 * sum(len(served.sinks) for served, _ in targets))
    to_move = [
        (served.view, name, served.sinks[name], generation, held.published)
        for served, generation in targets
        for name, held in served.held_without_listing(steps).items()
    ]
    ends: list[float] = []
    for place, (view, name, sink, generation, _) in enumerate(to_move):
        _confirmed(confirm, to_move[:place])
        steps.begin(f"{view} {generation} in {name}")
        try:
            sink.publish(generation)
        except Exception as error:
            reason = explained(error, f'publishing view "{view}" in {name}')
            stuck = _move_back(to_move[: place + 1])
            raise HalfPublishedError(reason, stuck) if stuck else reason from error
        ends.append(time.monotonic())
        steps.done()
    _confirmed(confirm, to_move)
    return round(ends[-1] - ends[0], 6) if ends else 0.0


def _confirmed(
    confirm: Callable[[], None], moved: Sequence[tuple[str, str, Sink, int, int | None]]
) -> None:
    try:
        confirm()
    except ChangelogError as error:  # lost, or the brokers do not answer and nobody knows
        if not moved:
            raise
        said = [
            f'view "{view}" in {name} was moved to generation {n}' for view, name, _, n, _ in moved
        ]
        raise LostInSwapError(error, said) from error


def _move_back(moved: Sequence[tuple[str, str, Sink, int, int | None]]) -> list[str]:
    stuck: list[str] = []
    for view, name, sink, generation, before in reversed(moved):
        try:
            if sink.published() == before:
                continue
            if before is not None:
                sink.publish(before)
                continue
        except Exception as error:  # the others are moved back all the same
            reason = explained(error, f"moving back to generation {before}")
            log.warning('view "%s" in %s does not move back: %s', view, name, reason)
            log.debug("it does not move back", exc_info=error)
        # A first generation has nothing to move back to: sinks cannot serve nothing again.
        stuck.append(f'view "{view}" in {name} serves generation {generation}')
    return stuck


def settle(
    served: Served, history: History, others: Others = NOBODY, steps: Steps = UNSEEN
) -> int | None:
    """Finish what a killed run of a view was publishing, and remove what others left.

    A staged generation stays, but for one that a newer one was to replace. Only for the holder of
    the view's lock.

    Args:
        served: the sinks of the view.
        history: what is known of its generations.
        others: what others build of it, or have left.
        steps: counts the sinks that are asked, which are expected, and what is found to do.

    Returns:
        The generation whose publication was finished, or None.
    """
    states = history.states(served.view)
    held = served.held(steps)
    generation = unfinished_swap(list(held.values()), states)
    if generation is not None:
        behind = [name for name in served.sinks if held[name].published != generation]
        steps.more(len(behind))
        for name in behind:
            steps.begin(f"{served.view} {generation} in {name}")
            served.sinks[name].publish(generation)
            steps.done()
        *_, sealed = history.rows([served.view], generation=generation)
        note = "recorded by a later run: its own was killed"
        history.append([sealed.again(state=PUBLISHED, note=note)])
        log.warning(
            'view "%s": generation %d of a killed run is published', served.view, generation
        )
        states[generation] = PUBLISHED
        held = served.held()
    for name, sink in served.sinks.items():
        unknown = (others.dead & held[name].generations) - {*states, held[name].published}
        going = sorted({*leftovers(held[name], states), *unknown} - others.spared)
        steps.more(len(going))
        for left in going:
            log.info('view "%s" in %s: removing unfinished generation %d', served.view, name, left)
            steps.begin(f"{served.view} {left} in {name}")
            sink.discard(left)
            steps.done()
    others.cleared()
    take_away(served, history, staged(states)[:-1], note="replaced by a newer one", steps=steps)
    return generation


def retire(
    served: Served,
    history: History,
    *,
    previous: int | None,
    keep: int,
    spared: Collection[int] = frozenset(),
    steps: Steps = UNSEEN,
) -> None:
    """Remove the generations of a view that no rollback needs any more, but for the spared.

    `steps` counts the sinks that are asked, which are expected, and what is removed.
    """
    known = history.steps(served.view)
    states, late = states_of(known), published_late(known)
    old = {
        name: {*to_retire(held, previous=previous, keep=keep, states=states, late=late)} - {*spared}
        for name, held in served.held(steps).items()
    }
    steps.more(sum(map(len, old.values())))
    gone: set[int] = set()
    for name, generations in old.items():
        for generation in generations:
            steps.begin(f"{served.view} {generation} in {name}")
            served.sinks[name].discard(generation)
            gone.add(generation)
            steps.done()
    history.append(
        HistoryRow(view=served.view, generation=number, state=RETIRED) for number in sorted(gone)
    )
