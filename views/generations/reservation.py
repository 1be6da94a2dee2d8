"""The generations under construction, and the leftovers of dead builders.

A follower clears up beside a rebuild, and both take new numbers: what the one builds must be known
to the other before anything of it is in a sink. The builder writes its numbers into a file beside
the view's lock. As long as the lock is held they are spared; a file that is there without its lock
was left by a process that died, and what it names is removed by whoever clears up next. (By its
number alone a half-built generation below one that serves now looks like an older one.)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout


@dataclass(frozen=True, slots=True)
class Others:
    """The generations that other processes have built of a view."""

    spared: frozenset[int] = frozenset()  # under construction now
    dead: frozenset[int] = frozenset()  # of builders that are gone
    files: tuple[Path, ...] = ()  # name the dead, and are removed with them

    def mark_cleared(self) -> None:
        """Record that the generations of dead builders are removed."""
        for path in self.files:
            path.unlink(missing_ok=True)


NOBODY = Others()


@contextmanager
def reserving(folder: Path, view: str) -> Iterator[None]:
    """Keep the reservation of a builder, who has just taken the view's lock."""
    own, dead_file = _paths(folder, view)
    if dead := _read_numbers(own) | _read_numbers(dead_file):
        _write_numbers(dead_file, dead)
    own.unlink(missing_ok=True)
    try:
        yield
    finally:
        own.unlink(missing_ok=True)


def reserve(folder: Path, view: str, numbers: Collection[int]) -> None:
    """Record the generations being built, replacing an earlier record; needs the view's lock."""
    _write_numbers(_paths(folder, view)[0], numbers)


def others(folder: Path, view: str, *, builds: bool) -> Others:
    """Return the generations of other builders; only for a process that may clear up.

    `builds`: whether the caller holds the lock of builders itself.
    """
    own, dead_file = _paths(folder, view)
    building, dead = _read_numbers(own), _read_numbers(dead_file)
    if builds or (building and is_held(folder / f"{view}.lock")):
        return Others(frozenset() if builds else building, dead, (dead_file,))
    return Others(dead=dead | building, files=(own, dead_file))


def _paths(folder: Path, view: str) -> tuple[Path, Path]:
    return folder / f"{view}.building", folder / f"{view}.left"


def is_held(path: Path) -> bool:
    """Tell whether some process holds the lock of a file."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _read_numbers(path: Path) -> frozenset[int]:
    try:
        return frozenset(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return frozenset()


def _write_numbers(path: Path, numbers: Collection[int]) -> None:
    part = path.with_suffix(f"{path.suffix}.part")
    part.write_text(json.dumps(sorted(numbers)), encoding="utf-8")
    part.replace(path)
