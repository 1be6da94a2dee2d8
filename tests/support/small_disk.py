"""A file system of a few KiB that is really full when it is full, where this machine mounts one."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A file system in memory."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def resize(self, kib: int) -> None:
        """Let it have another size; what lies there stays."""
        subprocess.run(["mount", "-o", f"remount,size={kib}k", str(self.place)], check=True)

    def leave(self, kib: int) -> None:
        """Let it have room for so much beside what lies there."""
        found = os.statvfs(self.place)
        self.resize((found.f_blocks - found.f_bfree) * found.f_frsize // 1024 + kib)


@functools.cache
def can_mount() -> bool:
    """Tell whether we may: an ordinary user may not, nor may root in most containers."""
    if os.geteuid():
        return False
    with tempfile.TemporaryDirectory() as place:
        tried = ["mount", "-t", "tmpfs", "tmpfs", place]
        if subprocess.run(tried, capture_output=True, check=False).returncode:
            return False
        subprocess.run(["umount", place], check=True)
    return True


@contextmanager
def small_disk(place: Path, kib: int, owner: tuple[int, int] | None = None) -> Iterator[SmallDisk]:
    """Mount a file system, and take it away; skips the test where we may not."""
    if not can_mount():
        pytest.skip("needs the right to mount a file system")
    place.mkdir()
    user, group = owner or (os.geteuid(), os.getegid())
    options = f"size={kib}k,mode=700,uid={user},gid={group}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield SmallDisk(place)
    finally:
        # Lazy: a server may still hold a file of the write that failed.
        subprocess.run(["umount", "--lazy", str(place)], check=True)
