"""The declarations of C, as the library was compiled with them."""

from __future__ import annotations

from pathlib import Path

import cffi

FOLDER = Path(__file__).parents[1]
HEADER = (FOLDER / "src" / "api.h").read_bytes()


def _declarations() -> str:
    lines = HEADER.decode("ascii").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


ffi = cffi.FFI()
ffi.cdef(_declarations())
