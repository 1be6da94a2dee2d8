"""The compiled library: opened once, with the declarations of its own header.

It uses nothing of Python's, so one file serves every version, and a call lets other threads run.
"""

from __future__ import annotations

import hashlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import cffi

from changelog.contract.base.errors import ConfigurationError

_FOLDER = Path(__file__).parent


_HEADER = (_FOLDER / "src" / "api.h").read_bytes()


def _declarations() -> str:
    lines = _HEADER.decode("ascii").splitlines()
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


def _opened(path: Path) -> Any:  # noqa: ANN401 - the functions of C
    """Open a library, if it was compiled with these declarations: else its calls would crash."""
    found = ffi.dlopen(str(path))
    try:
        stamp = ffi.string(found.api_stamp())
    except AttributeError:
        stamp = b""
    if stamp != hashlib.sha256(_HEADER).hexdigest().encode("ascii"):
        raise ConfigurationError(
            f"the compiled part of this package is older or newer than the rest: {path}",
            hint="install the package again; in a checkout: `make unit`",
        )
    return found


lib: Any = _opened(_path())
