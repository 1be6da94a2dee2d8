"""Memory between two stages."""

from __future__ import annotations

import ctypes

import pyarrow as pa


def let_go() -> None:
    """Give memory that is free back to the system: Arrow and the C library keep what they had."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
