"""The helpers of tests must not let a test pass that has seen nothing."""

from __future__ import annotations

import pytest

from tests.support.faults import MARKER, kill_at
from tests.support.wait import wait_until

WAITS = f"import threading; print('{MARKER}here', flush=True); threading.Event().wait()"


def test_waiting_gives_the_answer_and_fails_at_the_deadline() -> None:
    answers = iter([0, None, "yes"])
    assert wait_until(lambda: next(answers), 5, "an answer") == "yes"
    with pytest.raises(AssertionError, match=r"not within 0\.1 s: the sun"):
        wait_until(lambda: False, 0.1, "the sun")


def test_a_process_is_killed_at_its_point() -> None:
    assert kill_at(["-c", WAITS], "here").output == f"{MARKER}here\n"


def test_a_process_that_never_comes_to_its_point_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="did not reach 'there'"):
        kill_at(["-c", "print('done')"], "there")
    with pytest.raises(AssertionError, match=r"within 0\.5 s"):
        kill_at(["-c", WAITS], "there", deadline_s=0.5)
