"""The compiled library: opened once, with the declarations of its own header.

It uses nothing of Python's, so one file serves every version, and a call lets other threads run.
"""

from __future__ import annotations

import hashlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from changelog.contract.base.errors import ConfigurationError
from changelog.native.base.declarations import FOLDER, HEADER, ffi

__all__ = ["ffi", "lib"]

_HINT = "install the package again with a C compiler at hand; in a checkout: `make unit`"


def path(folder: Path) -> Path:
    """Return the path of the library.

    Raises:
        ConfigurationError: there is none.
    """
    for suffix in EXTENSION_SUFFIXES:
        library = folder / f"_core{suffix}"
        if library.exists():
            return library
    raise ConfigurationError(f"the compiled part is missing in {folder}", hint=_HINT)


def opened(library: Path, header: bytes) -> Any:  # noqa: ANN401 - the functions of C
    """Open a library, if it was compiled with these declarations: else its calls would crash.

    Raises:
        ConfigurationError: it was not, or this machine cannot open it.
    """
    try:
        functions = ffi.dlopen(str(library))
    except OSError as error:
        failure = f"the compiled part cannot be opened: {error}"
        raise ConfigurationError(failure, hint=_HINT) from error
    try:
        stamp = ffi.string(functions.api_stamp())
    except AttributeError:
        stamp = b""
    if stamp != hashlib.sha256(header).hexdigest().encode("ascii"):
        raise ConfigurationError(
            f"the compiled part is older or newer than the rest: {library}", hint=_HINT
        )
    return functions


lib: Any = opened(path(FOLDER), HEADER)
