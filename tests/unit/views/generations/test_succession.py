"""Which generation comes next, serves again, stays and goes."""

import pytest

from views.generations.history import DROPPED, FAILED, PUBLISHED, REFUTED, RETIRED, SEALED, STAGED
from views.generations.succession import (
    SinkGenerations,
    leftovers,
    line_of,
    next_generation,
    rollback_target,
    serving,
    to_retire,
    unfinished_swap,
    went_back_from,
)


def held(published: int | None, *generations: int) -> SinkGenerations:
    return SinkGenerations(published, frozenset(generations))


@pytest.mark.parametrize(
    ("sinks", "states", "number"),
    [
        ([], {}, 1),
        ([held(None)], {}, 1),
        ([held(2, 1, 2), held(2, 2)], {1: RETIRED}, 3),
        ([held(2, 1, 2), held(2, 2, 5)], {}, 6),
        ([held(None)], {7: FAILED}, 8),
        ([held(4)], {}, 5),
    ],
)
def test_a_number_is_never_used_twice(sinks, states, number) -> None:
    assert next_generation(sinks, states) == number


def test_sinks_serve_one_generation_or_none() -> None:
    assert serving([held(2, 2), held(2, 1, 2)]) == 2
    assert serving([held(2, 2), held(1, 1, 2)]) is None
    assert serving([held(None)]) is None


@pytest.mark.parametrize(
    ("sinks", "states", "number"),
    [
        ([held(3, 2, 3), held(2, 2, 3)], {2: PUBLISHED, 3: SEALED}, 3),
        ([held(3, 2, 3), held(3, 2, 3)], {2: PUBLISHED, 3: SEALED}, 3),
        ([held(2, 2, 3), held(2, 2, 3)], {2: PUBLISHED, 3: SEALED}, None),
        ([held(3, 2, 3), held(3, 2, 3)], {2: PUBLISHED, 3: PUBLISHED}, None),
        ([held(3, 2, 3), held(2, 2)], {2: PUBLISHED, 3: SEALED}, None),
        ([held(None), held(None, 1)], {1: SEALED}, None),
        ([held(None, 1), held(1, 1)], {1: SEALED}, 1),
        ([held(2, 2, 3), held(3, 2, 3)], {2: STAGED, 3: PUBLISHED}, 2),
        ([held(3, 2, 3), held(3, 2, 3)], {2: STAGED, 3: PUBLISHED}, None),
        ([held(2, 2, 3), held(3, 2, 3)], {2: SEALED, 3: PUBLISHED}, None),
        ([held(2, 2, 3), held(3, 3)], {2: STAGED, 3: PUBLISHED}, None),
    ],
)
def test_a_swap_that_was_killed_is_recognised(sinks, states, number) -> None:
    assert unfinished_swap(sinks, states) == number


@pytest.mark.parametrize(
    ("sinks", "states", "number"),
    [
        ([held(3, 2, 3)], {2: PUBLISHED, 3: PUBLISHED}, 2),
        ([held(3, 1, 2, 3), held(3, 1, 3)], {}, 1),
        ([held(3, 2, 3)], {2: REFUTED, 3: PUBLISHED}, None),
        ([held(1, 1)], {1: PUBLISHED}, None),
        ([held(None)], {}, None),
        ([held(2, 1, 2, 3)], {1: PUBLISHED, 2: PUBLISHED, 3: PUBLISHED}, 1),
    ],
)
def test_a_rollback_goes_to_what_every_sink_still_has(sinks, states, number) -> None:
    assert rollback_target(sinks, states) == number


def test_what_served_until_now_stays_and_the_rest_goes() -> None:
    assert to_retire(held(3, 1, 2, 3), previous=2, keep=2, states={}) == [1]
    assert to_retire(held(3, 1, 2, 3), previous=2, keep=1, states={}) == [1, 2]
    assert to_retire(held(3, 1, 2, 3), previous=2, keep=3, states={}) == []
    assert to_retire(held(4, 2, 3, 4), previous=2, keep=2, states={3: PUBLISHED}) == [3]
    assert to_retire(held(3, 1, 2, 3), previous=1, keep=2, states={2: FAILED}) == [2]
    assert to_retire(held(1, 1), previous=None, keep=2, states={}) == []


def test_what_a_rebuild_did_not_finish_is_a_leftover() -> None:
    states = {1: PUBLISHED, 2: PUBLISHED, 3: SEALED, 4: FAILED, 5: PUBLISHED}
    assert leftovers(held(2, 1, 2, 3, 4, 5, 6), states) == [3, 4, 6]
    assert leftovers(held(None, 1), {}) == [1]
    assert leftovers(held(2, 1, 2), {}) == []


LATE = [(1, PUBLISHED), (2, STAGED), (3, PUBLISHED), (2, PUBLISHED), (3, PUBLISHED)]


def test_a_line_has_what_served_and_was_not_rolled_back_from() -> None:
    assert line_of(LATE[:-1]) == [1, 3, 2]
    assert line_of(LATE) == [1, 3]
    again = [(1, PUBLISHED), (2, PUBLISHED), (1, PUBLISHED), (1, PUBLISHED), (3, PUBLISHED)]
    assert line_of(again) == [1, 3]
    assert line_of([*again, (3, DROPPED), (4, PUBLISHED)]) == [4]
    assert line_of([]) == []


def test_the_last_move_of_readers_may_be_a_rollback() -> None:
    assert went_back_from(LATE[:-1]) is None, "what waited was published"
    assert went_back_from(LATE) == 2
    assert went_back_from([*LATE, (3, RETIRED), (4, FAILED)]) == 2
    assert went_back_from([*LATE, (3, PUBLISHED)]) is None, "it went forward"
    assert went_back_from([*LATE, (4, PUBLISHED)]) is None
    assert went_back_from([*LATE, (3, DROPPED)]) is None
    assert went_back_from([]) is None
