"""C headers, and their parsed form, which the build writes so that no start parses them.

Imports nothing but the standard library at first, since the build has no more.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

SUFFIX = ".declared"
"""Of a file beside a header: a module of Python, under a name that no linter looks at."""


def stamp(header: bytes) -> str:
    """Return a hash of the declarations."""
    return hashlib.sha256(header).hexdigest()


def declarations(header: bytes) -> str:
    """Return a header without its preprocessor lines."""
    lines = header.decode("ascii").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def write_parsed(header: Path, folder: Path) -> None:
    """Write the parsed header for `changelog.native.base.declarations`.

    Raises:
        ImportError: cffi is not there.
    """
    import cffi  # noqa: PLC0415 - the build goes on without

    ffi = cffi.FFI()
    ffi.set_source(header.stem, None)
    ffi.cdef(declarations(header.read_bytes()))
    target = folder / f"{header.stem}{SUFFIX}"
    ffi.emit_python_code(str(target))
    with target.open("a", encoding="ascii") as file:
        file.write(f'STAMP = "{stamp(header.read_bytes())}"\n')
