"""Compile the library of this package, with any compiler of this machine that works.

The library uses nothing of Python's C interface, so this does not use Python's compiler and flags
either: its configuration names programs that a machine may not have, and linker flags that another
linker refuses. setuptools calls `Build`; `python changelog/native/build.py` prints the compiler
that would be used. If none works, nothing is compiled, and the package works in Python.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

API = "changelog/native/src/api.h"
HEADERS = (API, "changelog/native/src/libpq.h")
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared")
HINT = "install a C compiler, or one from a wheel: pip install ziglang; or name one in CC"
_USUAL = ("cc", "gcc", "clang")
_PROBE = "#include <stdlib.h>\n#include <stdint.h>\nint32_t probe(void) { return abs(-42); }\n"
_ANSWER = 42
# Characters of a compiler's output in an error.
_LONGEST = 300
# By the number in an ELF header.
_ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
CROSS = "CHANGELOG_CROSS"
"""The variable with the name of another machine, if the compiler in CC compiles for that."""
# The libraries that every Linux with glibc has.
_OF_LIBC = {b"libc.so.6", b"libdl.so.2", b"libm.so.6", b"libpthread.so.0"}


class NoCompilerError(CompileError):  # type: ignore[misc]  # setuptools has no types
    """No compiler of this machine makes a library that this machine can open."""


def candidates() -> Iterator[list[str]]:
    """Yield the commands to try: the one in CC, the usual names, the compiler of a wheel."""
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        yield named
    yield from ([name] for name in _USUAL)
    if importlib.util.find_spec("ziglang") is not None:
        yield [sys.executable, "-m", "ziglang", "cc"]


def find() -> list[str]:
    """Return the first compiler that works.

    Raises NoCompilerError: none does; with the error of each.
    """
    troubles = []
    for command in candidates():
        trouble = _trouble(command)
        if trouble is None:
            return command
        troubles.append(f"{shlex.join(command)}: {trouble}")
    raise NoCompilerError("\n  ".join(["no C compiler works here", *troubles, f"hint: {HINT}"]))


def _trouble(command: Sequence[str]) -> str | None:
    """Compile a library of one function, and call it; return the trouble, or None."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "probe.c", Path(folder) / "probe.so"
        source.write_text(_PROBE, encoding="ascii")
        try:
            compile_library(command, [str(source)], target)
            if other := os.environ.get(CROSS):
                machine = elf_machine(target.read_bytes())
                why = f"it makes libraries of {machine}, not of {other}"
                return None if machine == other else why
            answer = ctypes.CDLL(str(target)).probe()
        except (OSError, CompileError) as error:
            return str(error).strip()[:_LONGEST]
        return None if answer == _ANSWER else f"a function gives {answer} in place of {_ANSWER}"


def compile_library(
    command: Sequence[str], sources: Sequence[str], target: Path, libraries: Sequence[str] = ()
) -> None:
    """Compile sources to a library; flags of the environment come last.

    Raises:
        OSError: there is no such compiler.
        CompileError: it failed; with its output.
    """
    words = [*command, *FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), "-o", str(target)]
    words += [*sources, *(f"-l{name}" for name in libraries)]
    words += shlex.split(os.environ.get("LDFLAGS", ""))
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode or not target.is_file():
        output = (done.stderr or done.stdout).strip()
        raise CompileError(output or f"{words[0]} ended with {done.returncode}")
    sys.stderr.write(done.stderr)


def stamp(header: Path) -> str:
    """Return the stamp of the declarations that a library was compiled with."""
    return str(_headers()["stamp"](header.read_bytes()))


def _headers() -> dict[str, Any]:
    """Return the functions of `headers.py`, run as a file: the build cannot import the package."""
    return runpy.run_path(str(Path(__file__).with_name("headers.py")))


class Build(build_ext):  # type: ignore[misc]  # setuptools has no types
    """Builds the extensions of pyproject.toml as plain libraries."""

    def build_extension(self, ext: Extension) -> None:
        """Compile an extension; warns if no compiler works.

        Raises CompileError: a working compiler refuses the sources.
        """
        target = Path(self.get_ext_fullpath(ext.name))
        target.unlink(missing_ok=True)
        try:
            command = find()
        except NoCompilerError as error:
            ext.optional = True  # else setuptools fails to copy the missing library
            self.warn(f"rows will be encoded and folded in Python, several times slower: {error}")
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        defined = f'-DAPI_STAMP="{stamp(Path(API))}"'
        sources = [str(source) for source in ext.sources]
        compile_library([*command, defined], sources, target, ext.libraries)
        in_place = self.inplace or getattr(self, "editable_mode", False)
        self._parse_headers(Path(API).parent if in_place else target.parent / "src")

    def _parse_headers(self, folder: Path) -> None:
        """Write the parsed headers, if cffi is installed, so that a start need not parse them."""
        folder.mkdir(parents=True, exist_ok=True)
        write_parsed = _headers()["write_parsed"]
        try:
            for header in HEADERS:
                write_parsed(Path(header), folder)
        except ImportError as error:
            self.warn(f"each start will parse the headers: {error}")


def elf_machine(library: bytes) -> str | None:
    """Return the machine of a library as platform tags write it, or None if it is not known.

    >>> elf_machine(bytes.fromhex("7f454c46020101000000000000000000") + bytes([3, 0, 183, 0]))
    'aarch64'
    """
    is_elf = library[:4] == b"\x7fELF" and library[5:6] == b"\1"  # the least byte comes first
    return _ELF_MACHINES.get(int.from_bytes(library[18:20], "little")) if is_elf else None


def manylinux(library: bytes) -> str | None:
    """Return the platform tag of machines that can load a library, or None if it is not known.

    It is read from the library itself, which may need only the C library, in no newer version than
    the tag names (PEP 600).
    """
    machine = elf_machine(library)
    if machine is None or set(re.findall(rb"\0(lib[\w+-]+\.so[\w.]*)", library)) - _OF_LIBC:
        return None
    versions = [
        tuple(map(int, numbers)) for numbers in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", library)
    ]
    if not versions:
        return None
    major, minor = max(versions)
    return f"manylinux_{major}_{minor}_{machine}"


class Wheel(bdist_wheel):  # type: ignore[misc]  # setuptools has no types
    """Tags a wheel by the machines that can open its library, which any Python 3 can."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, its interface, and the machine.

        The library loses the name of the Python that built it.
        """
        for library in Path(self.bdist_dir).rglob("_core*.so"):
            if (tag := manylinux(library.read_bytes())) is not None:
                library.rename(library.with_name("_core.so"))
                return "py3", "none", tag
        python, interface, machine = super().get_tag()
        return python, interface, machine


def main() -> int:
    """Print the compiler that would be used; return 1 and print the reasons if there is none."""
    try:
        sys.stdout.write(shlex.join(find()) + "\n")
    except NoCompilerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
