"""Our clock, which a test may replace."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Gives milliseconds since 1970."""


def clock_ms() -> int:
    """Give our clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
