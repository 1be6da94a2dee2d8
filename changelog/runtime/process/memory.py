"""Memory that a process has freed, which the C library and Arrow would keep."""

from __future__ import annotations

import ctypes
import os
import sys

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's mallopt(3)
_ARENAS = 2


def keep_little() -> None:
    """Have this process return what it frees, for one that runs for days.

    Each thread of a client in C would keep an arena of its own, and Arrow a pool, at the size that
    they once had. To be called by whoever owns the process, before it imports pyarrow.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, _ARENAS)
    keep_pandas_out()


class _NoPandas:
    """A finder of modules that refuses pandas, and leaves all others to the next finder."""

    def find_spec(self, name: str, *_: object) -> None:
        """Return nothing; raises ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def keep_pandas_out() -> None:
    """Keep pyarrow from importing pandas, which takes 44 MB and a quarter of a second.

    It tries once, at the first list that becomes an array, and remembers a failure. `to_pandas`,
    and imports of pandas by other modules, work all the same.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return  # who needs it says so

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


def return_freed() -> None:
    """Return to the system what this process has freed so far."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
