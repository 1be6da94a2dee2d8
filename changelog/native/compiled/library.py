"""The compiled library: opened once, with the declarations of its header; conversions for it.

It uses nothing of Python's C interface, so one file serves every version of Python, and other
threads run during a call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from changelog.contract.base.errors import ConfigurationError
from changelog.native.headers import FOLDER, HEADER, api

ffi = api()
_HINT = "install the package again with a C compiler at hand; in a checkout: `make unit`"


def path(folder: Path) -> Path:
    """Return the path of the library.

    Raises ConfigurationError: there is none.
    """
    for suffix in EXTENSION_SUFFIXES:
        library = folder / f"_core{suffix}"
        if library.exists():
            return library
    raise ConfigurationError(f"the compiled part is missing in {folder}", hint=_HINT)


def opened(library: Path, header: bytes) -> Any:  # noqa: ANN401 - the functions of C
    """Open a library, after checking that it was compiled with these declarations.

    Raises ConfigurationError: it was not, or this machine cannot open it.
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


def pointer(content: bytes | None) -> Any:  # noqa: ANN401 - of cffi's
    """Return a pointer to bytes, valid as long as they live; NULL for None."""
    return ffi.NULL if content is None else ffi.from_buffer("uint8_t[]", content)


def text(raw: Any) -> str:  # noqa: ANN401 - a C string
    """Return a C string as text; invalid UTF-8 is replaced."""
    return str(ffi.string(raw).decode("utf-8", "replace"))


def headers(pairs: Sequence[tuple[str, bytes | None]]) -> tuple[Any, object]:
    """Return the headers of a record as an array of `header`, and an object to keep it alive."""
    names = [ffi.new("char[]", name.encode()) for name, _ in pairs]
    entries = ffi.new("header[]", len(names))
    for entry, name, (_, content) in zip(entries, names, pairs, strict=True):
        entry.name, entry.bytes, entry.size = name, pointer(content), len(content or b"")
    return entries, names


def branches(names: Sequence[str]) -> tuple[bool, int, int, int]:
    """Return whether a field is a union, and the places of a value, null and a text in it."""
    value, null, written = (
        names.index(name) if name in names else -1 for name in ("value", "null", "text")
    )
    return bool(names), max(0, value), null, written
