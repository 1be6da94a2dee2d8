"""Decide which generation of a view comes next, serves again, stays and goes. Pure.

Everything here looks at two witnesses: what each sink holds and serves, which is the truth, and
the history, which knows what the sinks cannot say (sealed, refuted, rolled back to).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from views.generations.history import (
    ABORTED,
    FAILED,
    PUBLISHED,
    REFUTED,
    SEALED,
    STAGED,
    Step,
)


@dataclass(frozen=True, slots=True)
class Held:
    """The generations in one sink of a view.

    Attributes:
        published: the generation that readers see, or None.
        generations: all that are there, the published one included.
    """

    published: int | None
    generations: frozenset[int]


States = Mapping[int, str]
"""The last state in the history of each generation of one view, what was told last at the end."""
Late = Mapping[int, int]
"""Generations that were published behind higher numbers, each with the highest of these."""
_NONE_LATE: Late = MappingProxyType({})


def published_late(steps: Iterable[Step]) -> dict[int, int]:
    """Return the generations that readers saw only after ones of higher numbers.

    That is what staging does: a generation waits while others are built and published. In which
    order readers saw them is what a rollback goes by, and what is removed first.
    """
    late: dict[int, int] = {}
    seen: set[int] = set()
    for number, state in steps:
        if state != PUBLISHED or number in seen:
            continue
        if seen and max(seen) > number:
            late[number] = max(seen)
        seen.add(number)
    return late


def _place(number: int, late: Late) -> tuple[int, bool]:
    """Return a sort key for the order in which readers first saw generations."""
    return late.get(number, number), number in late


def staged(states: States) -> list[int]:
    """Return the staged generations, the newest last: it alone counts."""
    return sorted(number for number, state in states.items() if state == STAGED)


def serving(sinks: Collection[Held]) -> int | None:
    """Return the generation that every sink serves, or None when they differ or serve none."""
    numbers = {sink.published for sink in sinks}
    return numbers.pop() if len(numbers) == 1 else None


def next_generation(
    sinks: Collection[Held], states: States, others: Collection[int] = frozenset()
) -> int:
    """Return a number above all that were ever used, so that a leftover is never written into.

    Args:
        sinks: what they hold.
        states: what the history knows.
        others: what somebody else builds, of which neither need know yet.
    """
    used = [number for sink in sinks for number in (*sink.generations, sink.published or 0)]
    return max([0, *used, *states, *others]) + 1


def unfinished_swap(
    sinks: Collection[Held], states: States, moved: Collection[int] = ()
) -> int | None:
    """Return the generation that a killed run was publishing, or None.

    It was verified and written whole in every sink before the first one was swapped, so going
    on is safe; that some sink already serves it shows that the swap had begun. A staged one may
    have a lower number than what the other sinks serve, and so may one that was built beside a
    follower: it was sealed after all that the follower published.

    Args:
        sinks: what they hold.
        states: what the history knows.
        moved: generations with which other views were to move that have.
    """
    begun = {sink.published for sink in sinks if sink.published is not None} | {*moved}
    newest = {max(begun, default=None), *[number for number in states if number in begun][-1:]}
    moving = [
        number
        for number in begun
        if states.get(number) == STAGED or (number in newest and states.get(number) == SEALED)
    ]
    unfinished = max(moving, default=None)
    if unfinished is None:
        return None
    whole = all(unfinished in sink.generations or sink.published == unfinished for sink in sinks)
    return unfinished if whole else None


def rollback_target(sinks: Collection[Held], states: States, late: Late = _NONE_LATE) -> int | None:
    """Return the newest generation older than what serves, whole in every sink, once published."""
    current = max(_place(sink.published or 0, late) for sink in sinks)
    candidates = frozenset.intersection(*(sink.generations for sink in sinks))
    once_published = [
        number
        for number in candidates
        if _place(number, late) < current and states.get(number, PUBLISHED) == PUBLISHED
    ]
    return max(once_published, default=None, key=lambda number: _place(number, late))


def begun_rollback(
    sinks: Collection[Held], published: Sequence[int], late: Late = _NONE_LATE
) -> int | None:
    """Return the older generation that all sinks serve though a newer one was published last.

    A rollback that was cut off before it was recorded leaves the sinks so.

    Args:
        sinks: what they hold.
        published: the generations as they were published, what was told last at the end.
        late: those that were published behind higher numbers.
    """
    current = serving(sinks)
    if current is None or current not in published:
        return None
    return current if _place(current, late) < _place(published[-1], late) else None


def to_retire(
    holding: Held, *, previous: int | None, keep: int, states: States, late: Late = _NONE_LATE
) -> list[int]:
    """Return the generations of a sink that go once `held.published` serves.

    Of those that stay, the first is the one published now and the second the one that served
    until now: the natural target of a rollback, also when it is not the next older number.
    Generations behind the published one are only there when a rollback left them or a rebuild
    was killed; nothing serves them, so they go first. One that is staged stays.
    """
    others = holding.generations - {holding.published, *staged(states)}
    current = _place(holding.published or 0, late)
    useful = [
        n for n in others if _place(n, late) < current and states.get(n, PUBLISHED) == PUBLISHED
    ]
    ranked = sorted(useful, key=lambda number: _place(number, late), reverse=True)
    ranked.sort(key=lambda number: number != previous)
    stay = set(ranked[: max(keep - 1, 0)])
    return sorted(others - stay)


def leftovers(holding: Held, states: States) -> list[int]:
    """Return the generations that killed, failed and refuted rebuilds left in a sink.

    What a run put aside on purpose is none of that, and its history says so; what was aborted is.
    """
    unfit = (SEALED, REFUTED, FAILED, ABORTED)
    return sorted(
        number
        for number in holding.generations - {holding.published}
        if states.get(number, "unknown") in unfit
        or (number not in states and number > (holding.published or 0))
    )
