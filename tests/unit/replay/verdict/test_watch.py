"""A read that is watched: what the check finds ends the work and is raised in its place."""

from __future__ import annotations

import threading

import pytest

from changelog.contract.base.errors import LogError, UnavailableLogError, VerdictError
from replay.verdict.watch import ReadWatch
from tests.support.wait import wait_until


def test_a_check_that_fails_cancels_until_the_work_ends_and_is_raised_in_its_place():
    cancelled = threading.Semaphore(0)

    def check() -> float:
        raise VerdictError("too late")

    def work() -> None:
        with ReadWatch(check, cancelled.release, first_s=0):
            for _ in range(2):  # the first was between two jobs
                assert cancelled.acquire(timeout=30)
            raise RuntimeError("the job was cancelled")

    with pytest.raises(VerdictError, match="too late") as failed:
        work()
    assert isinstance(failed.value.__cause__, RuntimeError)


def test_work_that_ends_before_its_deadline_is_left_alone():
    asked: list[float] = []

    def check() -> float:
        asked.append(0)
        return 60.0

    with ReadWatch(check, pytest.fail, first_s=0):
        wait_until(lambda: asked, 30, "a check")
    assert len(asked) == 1


def test_an_error_of_the_work_itself_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), ReadWatch(lambda: 60.0, pytest.fail):
        raise ZeroDivisionError


def test_a_broker_that_is_away_or_refuses_is_asked_again():
    answers = iter(
        [UnavailableLogError("away"), LogError("refused"), VerdictError("back, and too late")]
    )

    def check() -> float:
        raise next(answers)

    done = threading.Event()
    with pytest.raises(VerdictError, match="back"), ReadWatch(check, done.set, first_s=0):
        assert done.wait(30)


def test_the_next_check_comes_when_the_deadline_does():
    waits = iter([0.0, 60.0])
    asked: list[float] = []

    def check() -> float:
        asked.append(next(waits))
        return asked[-1]

    with ReadWatch(check, pytest.fail, first_s=0):
        wait_until(lambda: len(asked) == 2, 30, "two checks")
