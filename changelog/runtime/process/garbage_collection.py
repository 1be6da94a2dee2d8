"""The frequency of Python's search for reference cycles."""

from __future__ import annotations

import atexit
import gc

_MANY = 100_000


def collect_rarely() -> None:
    """Search rarely for reference cycles, and never among the objects made so far.

    Rows are tuples and lists in large numbers. Python counts these as news, and after each 700 of
    them, by default, it searches them for cycles. They hold none: they go when nobody refers to
    them. To be called by whoever owns the process, when its modules are imported.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries in C++ look at the end for what was left behind
    gc.set_threshold(_MANY)
