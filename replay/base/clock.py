"""Our clock, which a test may replace."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns milliseconds since 1970."""


def clock_ms() -> int:
    """Return our clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
