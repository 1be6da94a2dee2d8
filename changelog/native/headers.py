"""C headers, their declarations for cffi, and the parsed form that the build writes.

Parsing them takes a tenth of a start. If the build's file is missing, or is of other declarations,
they are parsed here. At import this uses the standard library only, since the build has no more.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

SUFFIX = ".declared"
"""Of the parsed form of a header: a Python module under a name that linters do not check."""


def stamp(header: bytes) -> str:
    """Return a hash of the declarations."""
    return hashlib.sha256(header).hexdigest()


def declarations(header: bytes) -> str:
    """Return a header without its preprocessor lines."""
    lines = header.decode("ascii").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def write_parsed(header: Path, folder: Path) -> None:
    """Write the parsed header for `declared`.

    Raises ImportError: cffi is not there.
    """
    import cffi  # noqa: PLC0415 - the build goes on if it is missing

    ffi = cffi.FFI()
    ffi.set_source(header.stem, None)
    ffi.cdef(declarations(header.read_bytes()))
    target = folder / f"{header.stem}{SUFFIX}"
    ffi.emit_python_code(str(target))
    with target.open("a", encoding="ascii") as file:
        file.write(f'STAMP = "{stamp(header.read_bytes())}"\n')


FOLDER = Path(__file__).parent
_SOURCES = FOLDER / "src"
HEADER = (_SOURCES / "api.h").read_bytes()


def declared(name: str) -> Any:  # noqa: ANN401 - of cffi's, which has two kinds
    """Return the types and functions of a header."""
    header = (_SOURCES / f"{name}.h").read_bytes()
    parsed = _parsed(name, stamp(header))
    if parsed is not None:
        return parsed
    import cffi  # noqa: PLC0415 - importing its parser is slow

    parser = cffi.FFI()
    parser.cdef(declarations(header))
    return parser


def _parsed(name: str, expected_stamp: str) -> Any:  # noqa: ANN401 - the same
    """Return the build's parsed header, or None if it is missing or of another header."""
    loader = SourceFileLoader(f"{__name__}.{name}", str(_SOURCES / f"{name}{SUFFIX}"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None  # noqa: S101 - it has a loader
    module = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except (ImportError, OSError):
        return None  # it is missing, or of another cffi
    return module.ffi if getattr(module, "STAMP", "") == expected_stamp else None


@cache
def api() -> Any:  # noqa: ANN401 - the same
    """Return the types and functions of our own library, the same object at each call."""
    return declared("api")
