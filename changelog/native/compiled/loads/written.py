"""The result of a writer of lines in C."""

from __future__ import annotations

from typing import Any

from changelog.native.base.records import NO_MEMORY
from changelog.native.compiled.library import ffi, lib


def written(done: int, to: Any) -> tuple[int, bytes]:  # noqa: ANN401 - of cffi's
    """Return the number of lines, and the lines.

    Raises:
        MemoryError: there was none left.
    """
    if done == lib.NO_MEMORY:
        raise MemoryError(NO_MEMORY)
    if done <= 0:
        return 0, b""
    return done, bytes(ffi.buffer(to.bytes, to.ends[0]))
