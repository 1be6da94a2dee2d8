"""The declarations of C: of our own library, as it was compiled with them, and of libpq.

To parse them takes a tenth of a start. The build has done it, and where what it left is missing or
of other declarations, they are parsed here.
"""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from changelog.native.base.headers import SUFFIX, declarations, stamp

FOLDER = Path(__file__).parents[1]
_SOURCES = FOLDER / "src"
HEADER = (_SOURCES / "api.h").read_bytes()


def declared(name: str) -> Any:  # noqa: ANN401 - of cffi's, which has two kinds
    """Return the types and functions of a header."""
    return _declared(name, (_SOURCES / f"{name}.h").read_bytes())


def _declared(name: str, header: bytes) -> Any:  # noqa: ANN401 - the same
    parsed = _parsed(name, stamp(header))
    if parsed is not None:
        return parsed
    import cffi  # noqa: PLC0415 - its parser is what is spared

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


ffi = _declared("api", HEADER)
