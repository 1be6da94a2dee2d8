"""A run that may take so long and no longer."""

import threading

import pytest

from changelog.contract.base.errors import RefutedError
from tests.support.wait import wait_until
from views.rebuild.result.report import ViewResult
from views.runs.limit import TimeLimit

DONE, FAILED = ViewResult(view="a"), ViewResult(view="b", error=RefutedError("a row differs"))


class Clock:
    now = 5.0

    def __call__(self) -> float:
        return self.now


def test_a_run_is_asked_to_stop_when_its_time_is_up_and_says_so() -> None:
    clock = Clock()
    limit = TimeLimit(10, stop=lambda: False, clock=clock)
    assert not limit.asks_to_stop()
    clock.now = 15
    assert limit.asks_to_stop()
    done, failed = limit.said([DONE, FAILED])
    assert (done, failed.view) == (DONE, "b")
    assert "ended by its time limit of 10 s" in str(failed.error)
    assert failed.error is not None
    assert failed.error.exit_code == 1


def test_what_fails_within_the_time_keeps_its_own_error() -> None:
    clock = Clock()
    limit = TimeLimit(10, stop=lambda: False, clock=clock)
    assert not limit.asks_to_stop()
    clock.now = 20  # nobody asked while it worked
    assert limit.said([FAILED]) == [FAILED]


def test_somebody_elses_stop_is_no_time_limit() -> None:
    limit = TimeLimit(None, stop=lambda: True)
    assert limit.asks_to_stop()
    assert limit.said([FAILED]) == [FAILED]


def test_what_hangs_is_ended_and_what_ends_is_not() -> None:
    ended: list[int] = []
    hanging = threading.Event()
    with TimeLimit(0.01, stop=lambda: False, grace_s=0.01).enforced(ended.append):
        wait_until(lambda: bool(ended), 20, "the process is ended")
    assert ended == [1]
    with TimeLimit(30, stop=lambda: False).enforced(ended.append):
        hanging.set()
    assert ended == [1]
    assert not any(
        isinstance(each, threading.Timer) and each.is_alive() and not each.finished.is_set()
        for each in threading.enumerate()
    )
    with pytest.raises(ZeroDivisionError), TimeLimit(None, stop=lambda: False).enforced():
        _ = 1 / 0
