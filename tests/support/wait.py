"""Wait for a condition, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_SHORTEST_S, _LONGEST_S = 0.02, 0.25
_PART = 0.1
"""Of the time that has passed: what is asked for long may be asked less often, since most questions
connect to a server for it, and those on two cores are answered more slowly for them."""
_NEVER = threading.Event()


def wait_until(condition: Callable[[], T], deadline_s: float, what: str) -> T:
    """Ask until the answer is true, and give it; fail with `what` when the deadline has passed.

    An exception of the condition passes through: a broken question is no slow answer.
    """
    started = time.monotonic()
    while True:
        answer = condition()
        if answer:
            return answer
        passed_s = time.monotonic() - started
        if passed_s >= deadline_s:
            raise AssertionError(f"not within {deadline_s:g} s: {what} (last answer {answer!r})")
        _NEVER.wait(min(_LONGEST_S, max(_SHORTEST_S, _PART * passed_s)))
