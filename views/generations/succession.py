"""Decide which generation of a view comes next, serves again, stays and goes. Pure.

Everything here looks at two witnesses: what each sink holds and serves, which is the truth, and
the history, which knows what the sinks cannot say (sealed, refuted, rolled back to).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from views.generations.history import (
    ABORTED,
    DROPPED,
    FAILED,
    PUBLISHED,
    REFUTED,
    SEALED,
    STAGED,
    Step,
)


@dataclass(frozen=True, slots=True)
class SinkGenerations:
    """The generations in one sink of a view."""

    published: int | None  # the generation that readers see, or None
    generations: frozenset[int]  # all that are there, the published one included


States = Mapping[int, str]
"""The last state in the history of each generation of one view, what was told last at the end."""
Line = Sequence[int]
"""The generations through which rollbacks go back, what serves at the end; see `line_of`."""


def line_of(steps: Iterable[Step]) -> list[int]:
    """Return the generations that served one after the other and were not rolled back from.

    A generation that waited is published behind higher numbers, so this is no matter of numbers;
    and what was rolled back from is nothing to go back to.
    """
    line: list[int] = []
    for number, state in steps:
        if state == DROPPED:
            line = []
        elif state == PUBLISHED:
            line = [*line[: line.index(number)], number] if number in line else [*line, number]
    return line


def went_back_from(steps: Sequence[Step]) -> int | None:
    """Return the generation that readers were taken back from last, or None.

    None too where another generation has been published since, or the one that they went back to
    has gone forward.
    """
    moves = [step for step in steps if step[1] in {PUBLISHED, DROPPED}]
    if not moves:
        return None
    line, number = line_of(moves[:-1]), moves[-1][0]
    return line[-1] if number in line[:-1] else None


def _older(numbers: Collection[int], current: int, states: States, line: Line) -> list[int]:
    """Return the given generations that served before one, the nearest at the end.

    What the history does not know at all counts by its number.
    """
    before = line[: line.index(current)] if current in line else line
    lost = sorted(n for n in numbers if n not in states and n not in line and n < current)
    by_number = sorted(n for n in numbers if n in states and n < current) if not line else []
    return [
        n
        for n in (*lost, *by_number, *before)
        if n in numbers and states.get(n, PUBLISHED) == PUBLISHED
    ]


def staged(states: States) -> list[int]:
    """Return the staged generations, the newest last: it alone counts."""
    return sorted(number for number, state in states.items() if state == STAGED)


def serving(sinks: Collection[SinkGenerations]) -> int | None:
    """Return the generation that every sink serves, or None if they differ or serve none."""
    numbers = {sink.published for sink in sinks}
    return numbers.pop() if len(numbers) == 1 else None


def next_generation(
    sinks: Collection[SinkGenerations], states: States, others: Collection[int] = frozenset()
) -> int:
    """Return a number above all that were ever used, so that a leftover is never written into.

    `others`: what somebody else builds, of which neither need know yet.
    """
    used = [number for sink in sinks for number in (*sink.generations, sink.published or 0)]
    return max([0, *used, *states, *others]) + 1


def unfinished_swap(
    sinks: Collection[SinkGenerations], states: States, moved: Collection[int] = ()
) -> int | None:
    """Return the generation that a killed run was publishing, or None.

    It was verified and written whole in every sink before the first one was swapped, so going
    on is safe; that some sink already serves it shows that the swap had begun. A staged one may
    have a lower number than what the other sinks serve, and so may one that was built beside a
    follower: it was sealed after all that the follower published.

    `moved`: generations with which other views were to move that have.
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


def rollback_target(
    sinks: Collection[SinkGenerations], states: States, line: Line = ()
) -> int | None:
    """Return the nearest of the generations to go back to, or None; see `rollback_targets`."""
    return next(reversed(rollback_targets(sinks, states, line)), None)


def rollback_targets(
    sinks: Collection[SinkGenerations], states: States, line: Line = ()
) -> list[int]:
    """Return the generations that served before, whole in every sink, the nearest at the end.

    Where all sinks serve an older one than was published last, a rollback was cut off before it
    was recorded: that one is the nearest.
    """
    begun = serving(sinks)
    current = max(
        (sink.published or 0 for sink in sinks),
        key=lambda n: (n not in line, line.index(n) if n in line else n),
    )
    whole = frozenset.intersection(*(sink.generations for sink in sinks))
    older = _older(whole, current, states, line)
    return older if begun is None or begun not in line[:-1] else [*older, begun]


def to_retire(
    holding: SinkGenerations, *, previous: int | None, keep: int, states: States, line: Line = ()
) -> list[int]:
    """Return the generations of a sink to remove once `holding.published` serves.

    Of those that stay, the first is the one published now and the second the one that served
    until now: the natural target of a rollback, also when it is not the next older number.
    What was rolled back from, or left by a rebuild that was killed, goes first. One that is staged
    stays.
    """
    others = holding.generations - {holding.published, *staged(states)}
    ranked = _older(others, holding.published or 0, states, line)[::-1]
    ranked.sort(key=lambda number: number != previous)
    stay = set(ranked[: max(keep - 1, 0)])
    return sorted(others - stay)


def leftovers(holding: SinkGenerations, states: States) -> list[int]:
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
