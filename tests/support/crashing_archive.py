"""Runs `changelog archive` and kills it at a named moment; seeds a defect when asked to.

Usage: python -m tests.support.crashing_archive [--kill MOMENT] [--defect believe]
       -- OPTIONS OF changelog archive

Moments are `file:N` (so many files are written), `manifest` (all of them, and no manifest yet) and
`committed`. The defect `believe` goes on at the offsets of the files that a killed run has left.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from changelog.cli import main
from replay.archive import copy
from replay.archive.manifest import ArchivedErasure, Segment
from replay.archive.store import Archive


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(moment: str, count: int) -> None:
    """End the process at a moment."""
    write, commit = Archive.write, Archive.commit
    written = 0

    def write_then_die(self: Archive, *file: Any) -> Any:
        nonlocal written
        made = write(self, *file)
        written += 1
        if written == count:
            _kill()
        return made

    def commit_and_die(self: Archive, entry: Segment | ArchivedErasure) -> None:
        if moment == "committed":
            commit(self, entry)
        _kill()

    if moment == "file":
        Archive.write = write_then_die  # type: ignore[method-assign,assignment]
    elif moment:
        Archive.commit = commit_and_die  # type: ignore[method-assign]


def believe() -> None:
    """Take what a killed run has written for what is archived."""
    remove_unnamed, padded = Archive.remove_unnamed, copy._padded
    left: dict[int, int] = {}

    def look(self: Archive, segments: Sequence[Segment]) -> list[str]:
        number = f"{len(segments) + 1:08d}"
        for path in Path(self.root).glob(f"segments/{number}-*/*/*/*.parquet"):
            partition, _, end = map(int, path.stem.split("-"))
            left[partition] = end
        return remove_unnamed(self, segments)

    def behind(starts: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
        return tuple(left.get(n, start) for n, start in enumerate(padded(starts, ends)))

    Archive.remove_unnamed = look  # type: ignore[method-assign]
    copy._padded = behind


if __name__ == "__main__":
    own = sys.argv[1 : sys.argv.index("--")]
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", default="")
    parser.add_argument("--defect", choices=["", "believe"], default="")
    options = parser.parse_args(own)
    name, _, number = options.kill.partition(":")
    kill_at(name, int(number or 0))
    if options.defect:
        believe()
    sys.argv = ["changelog", "archive", *sys.argv[len(own) + 2 :]]
    main()
