"""The compiled part under AddressSanitizer and UndefinedBehaviorSanitizer.

`make sanitize` runs the unit and property tests of the native part on a library that is compiled
with both, and so does `make fuzz` with its inputs. Memory grows there to the byte that is asked
for, and Python and Arrow take theirs from malloc, so that whatever reaches behind an end is seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from setuptools.errors import CompileError

from changelog.native import build

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "sanitized"
FLAGS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
TESTS = (
    "tests/unit/changelog/native/test_native.py",
    "tests/unit/changelog/native/test_buffers.py",
    "tests/unit/views/verify/test_read.py",
    "tests/property/test_last.py",
    "tests/property/test_verify_columns.py",
    "tests/property/test_batch.py",
    "tests/property/test_batches.py",
    "tests/property/test_bulk.py",
    "tests/property/test_copyrows.py",
    "tests/property/test_csvlines.py",
    "tests/property/test_jsonlines.py",
)
PLUGIN = "tests.support.sanitized_library"
VARIABLE = "CHANGELOG_TESTS_LIBRARY"


class NoSanitizersError(Exception):
    """No compiler here has them, or Python does not run with them."""


def compiled(folder: Path = FOLDER, *, source: Path = ROOT) -> dict[str, str]:
    """Compile the library into a folder; return the environment to run it in."""
    native = source / "changelog" / "native"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "_core.so"
    try:
        command = build.find()
        defined = f'-DAPI_STAMP="{build.stamp(native / "src" / "api.h")}"'
        sources = [str(each) for each in sorted((native / "src").glob("*.c"))]
        words = [*command, *FLAGS, "-DGROW_EXACTLY", defined]
        # The compiler of a wheel takes the word for nothing: ask before it compiles all of it.
        (folder / "one.c").write_text("int second(int *of) { return of[1]; }")
        build.compile_library(words, [str(folder / "one.c")], folder / "one.so", [])
        if b"__asan_" not in (folder / "one.so").read_bytes():
            raise NoSanitizersError(f"{command[0]} compiles without AddressSanitizer")
        build.compile_library(words, sources, target, ["dl"])
    except (CompileError, OSError) as error:
        raise NoSanitizersError(str(error)) from error
    environment = _environment(command, folder)
    probe = f"import ctypes; ctypes.CDLL({str(target)!r}).api_stamp"
    done = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NoSanitizersError(done.stderr)
    return environment


def _environment(command: Sequence[str], folder: Path) -> dict[str, str]:
    # The sanitizer has to be there before Python is, and the C++ library before the sanitizer
    # looks for what it throws with.
    preloaded = []
    for name in ("libasan.so", "libstdc++.so.6"):
        words = [*command, f"-print-file-name={name}"]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
        preloaded.append(said)
    return {
        **os.environ,
        VARIABLE: str(folder),
        "CHANGELOG_NATIVE": "c",
        "LD_PRELOAD": " ".join(preloaded),
        # Python itself never frees some of its memory.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


def main() -> int:
    """Run the tests; further words are pytest's."""
    try:
        environment = compiled()
    except NoSanitizersError as error:
        sys.stderr.write(f"no sanitizers here: {error}\n")
        return 1
    words = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, *TESTS, *sys.argv[1:]]
    return subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
