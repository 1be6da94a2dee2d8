"""Which generation of a view comes next, serves again, stays and goes: pure decisions.

Everything here looks at two witnesses: what each sink holds and serves, which is the truth, and
the history, which knows what the sinks cannot say (sealed, refuted, rolled back to).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from views.generations.history import FAILED, PUBLISHED, REFUTED, SEALED


@dataclass(frozen=True, slots=True)
class Held:
    """What one sink of a view holds.

    Attributes:
        published: the generation that readers see, or None.
        generations: all that are there, the published one included.
    """

    published: int | None
    generations: frozenset[int]


States = Mapping[int, str]
"""The last state in the history of each generation of one view."""


def serving(sinks: Collection[Held]) -> int | None:
    """Return the generation that every sink serves, or None when they differ or serve none."""
    numbers = {held.published for held in sinks}
    return numbers.pop() if len(numbers) == 1 else None


def next_generation(sinks: Collection[Held], states: States) -> int:
    """Return a number above all that were ever used, so that a leftover is never written into."""
    used = [number for held in sinks for number in (*held.generations, held.published or 0)]
    return max([0, *used, *states]) + 1


def unfinished_swap(sinks: Collection[Held], states: States) -> int | None:
    """Return the generation that a killed rebuild was publishing, or None.

    It was verified and written whole in every sink before the first one was swapped, so going
    on is safe; that some sink already serves it shows that the swap had begun.
    """
    begun = [held.published for held in sinks if held.published is not None]
    newest = max(begun, default=None)
    if newest is None or states.get(newest) != SEALED:
        return None
    whole = all(newest in held.generations or held.published == newest for held in sinks)
    return newest if whole else None


def rollback_target(sinks: Collection[Held], states: States) -> int | None:
    """Return the newest generation older than what serves, whole in every sink, once published."""
    current = max((held.published or 0 for held in sinks), default=0)
    candidates = frozenset.intersection(*(held.generations for held in sinks))
    once_published = [
        number
        for number in candidates
        if number < current and states.get(number, PUBLISHED) == PUBLISHED
    ]
    return max(once_published, default=None)


def to_retire(held: Held, *, previous: int | None, keep: int, states: States) -> list[int]:
    """Return the generations of a sink that go once `held.published` serves.

    Of those that stay, the first is the one published now and the second the one that served
    until now: the natural target of a rollback, also when it is not the next older number.
    Generations above the published one are only there when a rollback left them or a rebuild
    was killed; nothing serves them, so they go first.
    """
    others = held.generations - {held.published}
    current = held.published or 0
    useful = [n for n in others if n < current and states.get(n, PUBLISHED) == PUBLISHED]
    ranked = sorted(useful, key=lambda number: (number != previous, -number))
    stay = set(ranked[: max(keep - 1, 0)])
    return sorted(others - stay)


def leftovers(held: Held, states: States) -> list[int]:
    """Return what killed, failed and refuted rebuilds left in a sink, to be removed first."""
    unfit = (SEALED, REFUTED, FAILED)
    return sorted(
        number
        for number in held.generations - {held.published}
        if states.get(number, "unknown") in unfit
        or (number not in states and number > (held.published or 0))
    )
