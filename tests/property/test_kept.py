"""The law of kept states: what was proved and what came since is what a whole reading gives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.kept_log import PIN, ROWS, TOPIC, KeptLog
from tests.support.native_ways import needs_c
from views.verify.kept import keeper as keeping
from views.verify.kept.judgement import ALLOWANCE_MS, Cleaning, Proved, SchemaReading, obstacles

pytestmark = needs_c

puts = st.tuples(st.just("put"), st.integers(0, 6), st.sampled_from([None, *ROWS]))
again = st.tuples(st.just("again"), st.integers(0, 9), st.none())
cut = st.tuples(st.just("cut"), st.none(), st.none())
histories = st.lists(puts | puts | again | cut, max_size=25)


@pytest.fixture(params=[(1, 1), (2, 10_000)], ids=["into the base at once", "layers"], autouse=True)
def layers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few layers, so that they are put together often; a base that takes them soon or late."""
    many, small = request.param
    monkeypatch.setattr(keeping, "_MANY_LAYERS", many)
    monkeypatch.setattr(keeping, "_SMALL_ROWS", small)


def lived(
    history: list[tuple[str, Any, Any]], folder: Path, patch: pytest.MonkeyPatch
) -> list[tuple[Any, Any, int]]:
    """Return at each cut the rows as they are gone on to, and as a whole reading gives them."""
    log, sent, found = KeptLog(folder), list[Any](), list[Any]()
    for what, number, row in [*history, ("cut", None, None)]:
        match what:
            case "put":
                sent.append((log.put(number, row), number, row))
            case "again":
                for each in sent[:1] and [sent[number % len(sent)]]:
                    log.again(*each)
            case _:
                taken, going_on = log.proved(patch)
                _, whole = log.proved(patch, goes_on=False, keeps=False)
                found.append((taken, going_on, whole))
    return found


@given(histories)
@examples(20)
def test_what_was_proved_and_what_came_since_is_the_whole(monkeypatch_module, history) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = lived(history, Path(folder), monkeypatch_module)
    for number, (taken, going_on, whole) in enumerate(found):
        assert going_on == whole
        assert (taken.since is not None) is (number > 0), taken.note


moves = st.lists(
    puts | st.tuples(st.just("pass"), st.integers(1, 60), st.none()) | cut, min_size=3, max_size=20
)


@given(moves)
@examples(20)
def test_whatever_the_cleaner_does_no_delete_is_missed(monkeypatch_module, history) -> None:
    """Minutes pass, and the cleaner removes all that it may as soon as it may."""
    state: dict[int, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        log = KeptLog(Path(folder))
        for what, number, row in [*history, ("cut", None, None)]:
            match what:
                case "put":
                    log.put(number, row)
                    state[number] = row
                case "pass":
                    log.now_ms += number * 60_000
                    log.clean()
                case _:
                    _, found = log.proved(monkeypatch_module)
                    alive = {key: row[2] for key, row in state.items() if row is not None}
                    assert {each[0] for each in found} == set(alive)
                    days = {each[0]: each[5] for each in found}
                    assert all(days[key] == DAYS[day] for key, day in alive.items())


DAYS = {None: None, b"2013-01-01": "2013-01-01", b"infinity": "infinity"}
DAYS |= {b"0044-03-15 BC": "0044-03-15 (BC)"}
times = st.integers(0, 10**7)


@given(times, times, times, times, times, times)
def test_a_state_leads_on_until_a_tombstone_behind_it_may_be_gone(
    at, lag, retention, lag_now, retention_now, now
) -> None:
    then, later = (
        Cleaning(policy="compact", clock="LogAppendTime", lag_ms=each[0], retention_ms=each[1])
        for each in ((lag, retention), (lag_now, retention_now))
    )
    reading = SchemaReading(pin=PIN, schema="", program="1")
    frontier = KeptLog(Path()).frontier()
    proved = Proved(topic=TOPIC, frontier=frontier, appended_ms=at, cleaning=then, reading=reading)
    told = [*obstacles(proved, frontier, reading=reading, cleaning=later, starts=(0,), now_ms=now)]
    first_gone = at + min(lag, lag_now) + min(retention, retention_now)
    assert bool(told) is (now + ALLOWANCE_MS >= first_gone)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch
