"""Memory that a process has freed or needs no more, which the C library and Arrow would keep."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's mallopt(3)
_ARENAS = 2
_DONT_NEED = 4  # MADV_DONTNEED of madvise(2)
_LOADED, _WRITABLE = 1, 2  # PT_LOAD and PF_W of elf(5)


def keep_little() -> None:
    """Have this process return what it frees, for one that runs for days.

    Each thread of a client in C would keep an arena of its own, and Arrow a pool, at the size that
    they once had. To be called by whoever owns the process, before it imports pyarrow.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, _ARENAS)
    keep_pandas_out()


class _NoPandas:
    """A finder of modules that refuses pandas, and leaves all others to the next finder."""

    def find_spec(self, name: str, *_: object) -> None:
        """Return nothing; raises ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def keep_pandas_out() -> None:
    """Keep pyarrow from importing pandas, which takes 44 MB and a quarter of a second.

    It tries once, at the first list that becomes an array, and remembers a failure. `to_pandas`,
    and imports of pandas by other modules, work all the same.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return  # who needs it says so

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


def return_freed() -> None:
    """Return to the system what this process has freed so far."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class _Header(ctypes.Structure):
    """Elf64_Phdr of elf(5): one part of a library in memory."""

    _fields_ = (
        ("type", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("offset", ctypes.c_uint64),
        ("address", ctypes.c_uint64), ("physical", ctypes.c_uint64),
        ("in_file", ctypes.c_uint64), ("size", ctypes.c_uint64), ("align", ctypes.c_uint64),
    )  # fmt: skip


class _Library(ctypes.Structure):
    """The beginning of dl_phdr_info of dl_iterate_phdr(3)."""

    _fields_ = (
        ("base", ctypes.c_uint64), ("name", ctypes.c_char_p),
        ("headers", ctypes.POINTER(_Header)), ("count", ctypes.c_uint16),
    )  # fmt: skip


_OF_EACH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p
)


def leave_code() -> None:
    """Take the code that libraries have run so far out of this process's memory, on Linux.

    What runs again comes back from the system's cache of files, page by page. A start and a row of
    the history run code that the next thousand rounds do not: 60 MB of a follower.
    """
    # The loader holds its lock meanwhile. Who waits for it may have Python's: it is not given away.
    here = ctypes.PyDLL(None)
    if sys.platform != "linux" or sys.maxsize <= 1 << 32 or not hasattr(here, "dl_iterate_phdr"):
        return
    page = os.sysconf("SC_PAGESIZE")

    def leave(library: Any, _size: int, _data: object) -> int:  # noqa: ANN401 - a pointer of ctypes
        one = library.contents
        for header in one.headers[: one.count] if b"/" in (one.name or b"") else []:
            # Parts that are not to be written are as they are in the file.
            if header.type == _LOADED and not header.flags & _WRITABLE:
                first = (one.base + header.address) // page * page
                size = one.base + header.address + header.size - first
                here.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), _DONT_NEED)
        return 0

    here.dl_iterate_phdr(_OF_EACH(leave), None)
