"""The watch over differing keys: no false alarm of a copy that lags, and no lost change unseen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.compare.forms import CompareForm, Native, TypeFamily
from changelog.compare.plan import ComparedColumn, ComparePlan, KeyBuckets
from changelog.compare.side import Key, SideRow
from changelog.compare.watch import KeyWatch, Lag

BOUND = 10.0
PATIENCE = 60.0
_TEXT = CompareForm(TypeFamily.TEXT)
_COLUMNS = [
    ComparedColumn(
        name, name, _TEXT, Native("text", TypeFamily.TEXT), Native("text", TypeFamily.TEXT)
    )
    for name in ("id", "value")
]
PLAN = ComparePlan((_COLUMNS[0],), (_COLUMNS[1],), KeyBuckets(61, by_value=False))
KEY: Key = ("1",)

History = list[tuple[float, str | None]]
"""Moments at which the row became a value; None: it was deleted."""


class World:
    """A clock, a source with a history, and a copy that follows it."""

    def __init__(
        self,
        history: History,
        lags: Sequence[float],
        lost: int | None = None,
        source_look_s: float = 0.01,
    ) -> None:
        self.now = 0.0
        self.history, self._source_look_s = history, source_look_s
        arrivals: History = []
        for place, (moment, value) in enumerate(history):
            if place != lost:
                last = arrivals[-1][0] if arrivals else float("-inf")
                arrivals.append((max(moment + lags[place % len(lags)], last), value))
        self.arrivals = arrivals

    def at(self, history: History) -> tuple[str | None, str]:
        """Return the value and a version of it, as of now."""
        past = [
            (place, value) for place, (moment, value) in enumerate(history) if moment <= self.now
        ]
        place, value = past[-1] if past else (-1, None)
        return value, str(place)

    def look(self, history: History, keys: Sequence[Key]) -> list[SideRow]:
        self.now += self._source_look_s if history is self.history else 0.01
        value, version = self.at(history)
        return [] if value is None else [SideRow(key, (value,), version) for key in keys]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def watched(self, bound: float = BOUND):
        watch = KeyWatch(
            PLAN,
            lambda keys: self.look(self.history, keys),
            lambda keys: self.look(self.arrivals, keys),
            Lag(bound, PATIENCE),
            clock=lambda: self.now,
            sleep=self.sleep,
            most_shown=5,
        )
        return watch.run([KEY])


moments = st.lists(st.floats(-30, 70), min_size=1, max_size=30).map(sorted)
values = st.sampled_from(["a", "b", "c", None])


@given(
    moments,
    st.lists(values, min_size=30, max_size=30),
    st.lists(st.floats(0, 9), min_size=1),
    st.sampled_from([0.01, 3.0]),
)
def test_a_copy_that_lags_less_than_the_bound_is_no_mismatch(at, some, lags, source_look_s):
    history = list(zip(at, some, strict=False))
    world = World(history, lags, source_look_s=source_look_s)
    assert world.watched().mismatches == ()


def test_a_copy_is_not_late_because_a_look_at_the_source_is_slow():
    """The source changes after the look has begun that sees the change."""
    world = World([(-50.0, "a"), (3.0, "b")], [0.0, 9.0], source_look_s=3.0)
    assert world.watched().mismatches == ()


@given(moments, st.lists(st.floats(0, 9), min_size=1), st.integers(0, 10_000))
def test_the_last_change_that_a_copy_has_lost_is_found(at, lags, first):
    # Each change gives a value of its own, so that none comes back.
    history: History = [(moment, str(first + place)) for place, moment in enumerate(at)]
    world = World(history, lags, lost=len(history) - 1)
    world.now = at[-1] + BOUND  # what it has still to deliver has arrived
    outcome = world.watched()
    assert outcome.mismatches == (KEY,)
    assert outcome.shown[0].source[0].texts == (history[-1][1],)


def test_a_change_begins_the_bound_again():
    world = World([(-50.0, "a"), (-30.0, "b"), (8.0, "c")], [0.0], lost=1)
    assert world.arrivals == [(-50.0, "a"), (8.0, "c")]
    outcome = world.watched()
    assert outcome.mismatches == ()
    assert outcome.open == ()


def test_a_key_that_keeps_changing_and_never_agrees_is_open():
    history: History = [(number * 0.05, str(number)) for number in range(2_000)]
    world = World(history, [0.0])
    world.arrivals = [(moment, f"other {value}") for moment, value in history]
    outcome = world.watched()
    assert outcome.mismatches == ()
    assert outcome.open == (KEY,)
    assert PATIENCE <= world.now < PATIENCE + 5


def test_a_hot_key_agrees_with_a_value_that_the_source_was_seen_to_have():
    history: History = [(number * 1.5, str(number)) for number in range(100)]
    assert World(history, [2.2]).watched().open == ()


@pytest.mark.parametrize("bound", [0.0, 0.5])
def test_a_bound_of_none_decides_at_once(bound):
    world = World([(-50.0, "a")], [0.0], lost=0)
    outcome = world.watched(bound)
    assert outcome.mismatches == (KEY,)
    assert world.now < 1.5
    assert outcome.shown[0].target == ()
