"""Wait for a condition, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PAUSE_S = 0.02
_NEVER = threading.Event()


def wait_until(condition: Callable[[], T], deadline_s: float, what: str) -> T:
    """Ask until the answer is true, and give it; fail with `what` when the deadline has passed.

    An exception of the condition passes through: a broken question is no slow answer.
    """
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise AssertionError(f"not within {deadline_s:g} s: {what} (last answer {answer!r})")
        _NEVER.wait(_PAUSE_S)
