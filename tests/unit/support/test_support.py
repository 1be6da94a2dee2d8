"""The helpers of tests must not let a test pass that has seen nothing."""

from __future__ import annotations

import pytest

from tests.support.wait import wait_until


def test_waiting_gives_the_answer_and_fails_at_the_deadline() -> None:
    answers = iter([0, None, "yes"])
    assert wait_until(lambda: next(answers), 5, "an answer") == "yes"
    with pytest.raises(AssertionError, match=r"not within 0\.1 s: the sun"):
        wait_until(lambda: False, 0.1, "the sun")
