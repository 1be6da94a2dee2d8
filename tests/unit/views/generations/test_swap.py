"""All sinks move or none does, and the next run finishes what a kill left."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest
from filelock import FileLock

from changelog.contract.base.errors import LockedError, SinkError
from tests.unit.views.fakes import FakeSink
from views.generations.history import (
    ABORTED,
    FAILED,
    PUBLISHED,
    RETIRED,
    SEALED,
    STAGED,
    GenerationHistory,
    HistoryRow,
)
from views.generations.reservation import others, reserve, reserving
from views.generations.served import Served
from views.generations.succession import next_generation, rollback_target
from views.generations.swap import HalfPublishedError, LostInSwapError, retire, settle, swap


def served(view: str, **sinks: FakeSink) -> Served:
    return Served(view, sinks)


@pytest.fixture
def history(tmp_path: Path) -> GenerationHistory:
    return GenerationHistory(str(tmp_path))


def test_every_sink_of_every_view_moves() -> None:
    a, b, c = FakeSink(1, [1, 2]), FakeSink(1, [1, 2]), FakeSink(None, [5])
    swap([(served("v", a=a, b=b), 2), (served("w", c=c), 5)])
    assert (a.current, b.current, c.current) == (2, 2, 5)


def test_the_time_in_which_sinks_differ_is_measured(monkeypatch) -> None:
    moments = iter([10.0, 10.25, 11.5])
    monkeypatch.setattr("views.generations.swap.time.monotonic", lambda: next(moments))
    sinks = {name: FakeSink(1, [1, 2]) for name in "abc"}
    assert swap([(served("v", **sinks), 2)]) == 1.5
    assert swap([]) == 0.0


def test_a_sink_that_does_not_answer_keeps_all_of_them_where_they_are() -> None:
    class Away(FakeSink):
        def published(self) -> int | None:
            raise SinkError("the server is away")

    first = FakeSink(1, [1, 2])
    with pytest.raises(SinkError, match="away"):
        swap([(served("v", a=first, b=Away(1, [1, 2])), 2)])
    assert first.current == 1


def test_a_sink_that_does_not_move_takes_the_others_back() -> None:
    a, b = FakeSink(1, [1, 2]), FakeSink(1, [1, 2])
    broken = FakeSink(4, [4, 5], refuses=[5])
    with pytest.raises(SinkError, match="the server is away"):
        swap([(served("v", a=a, b=b), 2), (served("w", c=broken), 5)])
    assert (a.current, b.current, broken.current) == (1, 1, 4)


def test_what_cannot_move_back_is_named() -> None:
    first, stuck = FakeSink(None, [1]), FakeSink(1, [1, 2], refuses=[1])
    broken = FakeSink(1, [1, 2], refuses=[2])
    with pytest.raises(HalfPublishedError) as error:
        swap([(served("u", a=first), 1), (served("v", b=stuck, c=broken), 2)])
    assert 'view "u" in a serves generation 1' in str(error.value)
    assert 'view "v" in b may serve generation 2' in str(error.value)
    assert "in c serves" not in str(error.value)


def lost_after(times: int) -> Callable[[], None]:
    """Confirm so often, and then no more."""
    left = [None] * times

    def confirm() -> None:
        if not left:
            raise LockedError("this run lost its lock")
        left.pop()

    return confirm


def test_who_has_lost_its_lock_moves_nothing() -> None:
    sinks = {name: FakeSink(1, [1, 2]) for name in "ab"}
    with pytest.raises(LockedError, match="lost its lock") as error:
        swap([(served("v", **sinks), 2)], confirm=lost_after(0))
    assert not isinstance(error.value, LostInSwapError | HalfPublishedError)
    assert [sink.current for sink in sinks.values()] == [1, 1]


@pytest.mark.parametrize(("times", "moved"), [(1, [2, 1]), (2, [2, 2])])
def test_who_loses_it_on_the_way_moves_nothing_back(times: int, moved: list[int]) -> None:
    sinks = {name: FakeSink(1, [1, 2]) for name in "ab"}
    with pytest.raises(LostInSwapError, match='"v" in a was moved to generation 2') as error:
        swap([(served("v", **sinks), 2)], confirm=lost_after(times))
    assert error.value.exit_code == 5
    assert [sink.current for sink in sinks.values()] == moved
    assert ('"v" in b' in str(error.value)) == (moved == [2, 2])


def test_a_swap_that_was_killed_is_finished_with_its_certificate(
    history: GenerationHistory,
) -> None:
    sealed = HistoryRow(
        view="v", generation=2, state=SEALED, rows=7, verified=True, certificate={"x": 1}
    )
    history.append([HistoryRow(view="v", generation=1, state=PUBLISHED)])
    history.append([sealed])
    moved, waiting = FakeSink(2, [1, 2]), FakeSink(1, [1, 2])
    settle(served("v", a=moved, b=waiting), history)
    assert (moved.current, waiting.current) == (2, 2)
    last = history.rows()[-1]
    assert (last.state, last.rows, last.verified, last.certificate) == (
        PUBLISHED,
        7,
        True,
        {"x": 1},
    )
    assert "killed" in last.note
    settle(served("v", a=moved, b=waiting), history)
    assert len(history.rows()) == 3


def test_what_was_not_published_is_removed(history: GenerationHistory) -> None:
    history.append([HistoryRow(view="v", generation=1, state=PUBLISHED)])
    history.append([HistoryRow(view="v", generation=2, state=SEALED)])
    sink = FakeSink(1, [1, 2, 3])
    settle(served("v", a=sink), history)
    assert (sink.current, sink.there) == (1, {1})


def test_twin_that_looks_for_no_leftovers_keeps_them(
    history: GenerationHistory, monkeypatch
) -> None:
    monkeypatch.setattr("views.generations.swap.leftovers", lambda *_: [])
    with pytest.raises(AssertionError):
        test_what_was_not_published_is_removed(history)


def test_old_generations_go_and_the_history_says_so(history: GenerationHistory) -> None:
    for number, state in ((1, PUBLISHED), (2, PUBLISHED), (3, FAILED), (4, PUBLISHED)):
        history.append([HistoryRow(view="v", generation=number, state=state)])
    sink = FakeSink(4, [1, 2, 4])
    retire(served("v", a=sink), history, previous=2, keep=2)
    assert sink.there == {2, 4}
    assert history.states("v") == {1: RETIRED, 2: PUBLISHED, 3: FAILED, 4: PUBLISHED}


def staged_twice(history: GenerationHistory) -> FakeSink:
    """Two staged generations beside one that serves: a run was killed before it replaced one."""
    for number, state in ((1, PUBLISHED), (2, STAGED), (3, STAGED)):
        history.append([HistoryRow(view="v", generation=number, state=state)])
    return FakeSink(1, [1, 2, 3])


def test_one_staged_generation_stays_the_newest(history: GenerationHistory) -> None:
    sink = staged_twice(history)
    assert settle(served("v", a=sink), history) is None
    assert (sink.current, sink.there) == (1, {1, 3})
    assert history.states("v") == {1: PUBLISHED, 2: ABORTED, 3: STAGED}


def test_a_staged_generation_outlives_other_rebuilds(history: GenerationHistory) -> None:
    for number, state in ((1, PUBLISHED), (2, STAGED), (3, PUBLISHED), (4, PUBLISHED)):
        history.append([HistoryRow(view="v", generation=number, state=state)])
    sink = FakeSink(4, [1, 2, 3, 4])
    settle(served("v", a=sink), history)
    retire(served("v", a=sink), history, previous=3, keep=1)
    assert sink.there == {2, 4}


def test_twin_that_ignores_the_mark_removes_what_was_staged(
    history: GenerationHistory, monkeypatch
) -> None:
    monkeypatch.setattr("views.generations.succession.staged", lambda _: [])
    with pytest.raises(AssertionError):
        test_a_staged_generation_outlives_other_rebuilds(history)


def test_a_publication_of_what_waited_is_finished(history: GenerationHistory) -> None:
    for number, state in ((1, PUBLISHED), (2, STAGED), (3, PUBLISHED)):
        history.append([HistoryRow(view="v", generation=number, state=state)])
    moved, waiting = FakeSink(2, [1, 2, 3]), FakeSink(3, [1, 2, 3])
    assert settle(served("v", a=moved, b=waiting), history) == 2
    assert (moved.current, waiting.current) == (2, 2)
    assert history.states("v")[2] == PUBLISHED


def sealed_below(history: GenerationHistory) -> tuple[FakeSink, FakeSink]:
    """A rebuild beside a follower, which has published a higher number, was killed in its swap."""
    for number, state in ((1, PUBLISHED), (2, SEALED), (3, SEALED), (3, PUBLISHED), (2, SEALED)):
        history.append([HistoryRow(view="v", generation=number, state=state)])
    return FakeSink(2, [1, 2, 3]), FakeSink(3, [1, 2, 3])


def test_a_takeover_that_was_killed_is_finished(history: GenerationHistory) -> None:
    moved, waiting = sealed_below(history)
    assert settle(served("v", a=moved, b=waiting), history) == 2
    assert (moved.current, waiting.current) == (2, 2)


def test_twin_that_goes_by_numbers_alone_leaves_the_sinks_apart(
    history: GenerationHistory, monkeypatch
) -> None:
    sound = history.states
    monkeypatch.setattr(history, "states", lambda view: dict(sorted(sound(view).items())))
    moved, waiting = sealed_below(history)
    assert settle(served("v", a=moved, b=waiting), history) is None
    assert (moved.current, waiting.current) == (2, 3)


def test_what_another_process_builds_stays_and_what_a_dead_one_left_goes(
    history: GenerationHistory, tmp_path
) -> None:
    """Both have numbers below one that was published since, so that they look like older ones."""
    for number in (1, 4):
        history.append([HistoryRow(view="v", generation=number, state=PUBLISHED)])
    (tmp_path / "v.building").write_text("[2]", "utf-8")  # as a kill leaves it
    with FileLock(tmp_path / "v.lock"), reserving(tmp_path, "v"):
        reserve(tmp_path, "v", [3])
        sink, found = FakeSink(4, [1, 2, 3, 4]), others(tmp_path, "v", builds=False)
        settle(served("v", a=sink), history, found)
        assert sink.there == {1, 3, 4}
        retire(served("v", a=sink), history, previous=1, keep=1, spared=found.spared)
        assert sink.there == {3, 4}
        assert next_generation([], {}, found.spared) == 4


def test_twin_that_does_not_ask_takes_a_dead_ones_half_for_an_older_generation(
    history: GenerationHistory,
) -> None:
    history.append([HistoryRow(view="v", generation=4, state=PUBLISHED)])
    sink = FakeSink(4, [2, 4])
    settle(served("v", a=sink), history)
    held = list(served("v", a=sink).held().values())
    assert rollback_target(held, history.states("v")) == 2


def test_what_died_is_told_until_it_is_removed(tmp_path) -> None:
    (tmp_path / "v.building").write_text("[7]", "utf-8")
    assert others(tmp_path, "v", builds=False).dead == {7}
    with FileLock(tmp_path / "v.lock"), reserving(tmp_path, "v"):
        reserve(tmp_path, "v", [8])
        own = others(tmp_path, "v", builds=True)
        assert own.dead == {7}
        assert not own.spared
        assert others(tmp_path, "v", builds=False).spared == {8}
        own.mark_cleared()
    assert others(tmp_path, "v", builds=False) == replace(own, dead=frozenset(), files=ANY)


def test_twin_that_takes_staged_for_never_begun_leaves_the_sinks_apart(
    history: GenerationHistory, monkeypatch
) -> None:
    monkeypatch.setattr("views.generations.swap.unfinished_swap", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_publication_of_what_waited_is_finished(history)
