"""Memory between two stages."""

from __future__ import annotations

import ctypes

import pyarrow as pa


def let_go() -> None:
    """Return free memory to the system, which Arrow and the C library would otherwise keep."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
