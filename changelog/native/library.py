"""The compiled library: opened once, with the declarations of its own header.

It uses nothing of Python's, so one file serves every version, and a call lets other threads run.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import cffi

from changelog.contract.errors import ConfigurationError

_FOLDER = Path(__file__).parent


def _declarations() -> str:
    lines = (_FOLDER / "src" / "api.h").read_text(encoding="ascii").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def _path() -> Path:
    for suffix in EXTENSION_SUFFIXES:
        found = _FOLDER / f"_core{suffix}"
        if found.exists():
            return found
    raise ConfigurationError(
        f"the compiled part of this package is missing in {_FOLDER}",
        hint="install the package again with a C compiler at hand; in a checkout: `make unit`",
    )


ffi = cffi.FFI()
ffi.cdef(_declarations())
lib: Any = ffi.dlopen(str(_path()))
