"""The states of a generation, each move tried from each state."""

from __future__ import annotations

import dataclasses

import pytest

from views.generations.generation import Generation, GenerationState, IllegalMoveError

ACTS = {
    "seal": GenerationState.SEALED,
    "verify": GenerationState.VERIFIED,
    "refute": GenerationState.REFUTED,
    "fail": GenerationState.FAILED,
    "stage": GenerationState.STAGED,
    "publish": GenerationState.PUBLISHED,
    "retire": GenerationState.RETIRED,
}
LEGAL = {
    (GenerationState.OPEN, "seal"),
    (GenerationState.OPEN, "fail"),
    (GenerationState.SEALED, "verify"),
    (GenerationState.SEALED, "refute"),
    (GenerationState.SEALED, "fail"),
    (GenerationState.SEALED, "stage"),
    (GenerationState.VERIFIED, "stage"),
    (GenerationState.STAGED, "publish"),
    (GenerationState.VERIFIED, "publish"),
    (GenerationState.VERIFIED, "fail"),
    (GenerationState.PUBLISHED, "retire"),
    (GenerationState.RETIRED, "publish"),
}


@pytest.mark.parametrize("state", GenerationState)
@pytest.mark.parametrize("act", ACTS)
def test_only_the_moves_of_the_life_are_allowed(state, act):
    generation = Generation("flights", 7, state)
    if (state, act) in LEGAL:
        assert getattr(generation, act)() == Generation("flights", 7, ACTS[act])
    else:
        with pytest.raises(IllegalMoveError, match='generation 7 of view "flights"'):
            getattr(generation, act)()
    assert generation.state is state


def test_an_unverified_generation_is_published_only_on_demand():
    sealed = Generation("flights", 1).seal()
    with pytest.raises(IllegalMoveError, match="not verified"):
        sealed.publish()
    assert sealed.publish(unverified=True).state is GenerationState.PUBLISHED


@pytest.mark.parametrize(
    "state", [GenerationState.OPEN, GenerationState.FAILED, GenerationState.REFUTED]
)
def test_nothing_publishes_an_unfinished_failed_or_refuted_generation(state):
    with pytest.raises(IllegalMoveError):
        Generation("flights", 1, state).publish(unverified=True)


def test_a_generation_is_a_value():
    generation = Generation("flights", 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        generation.number = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="start at 1"):
        Generation("flights", 0)
