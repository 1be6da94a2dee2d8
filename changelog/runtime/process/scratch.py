"""Scratch folders, of which a later process removes what a killed one left.

Rows of tables may be in them, and nobody else would remove these after SIGKILL.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

_PREFIX = "changelog-"
_ALIVE = ".alive"
"""A file that the folder's process has locked for as long as it lives."""
_YOUNG_S = 60.0
"""A folder may be without its lock for so long, between the first two steps of its process."""


class ScratchFolder(TemporaryDirectory[str]):
    """A folder of this process; a context manager that gives its path.

    `kind`: a word of its name. `parent`: the folder that it is in, None for the system's temporary
    one.
    """

    def __init__(self, kind: str, parent: str | Path | None = None) -> None:
        """Make the folder."""
        super().__init__(prefix=f"{_PREFIX}{kind}-", dir=parent, ignore_cleanup_errors=True)
        place = Path(self.name)
        self._alive = os.open(place / _ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
        _lock_if_free(self._alive)
        _remove_abandoned(place.parent)

    def cleanup(self) -> None:
        """Remove the folder."""
        super().cleanup()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1


def _lock_if_free(descriptor: int) -> bool:
    """Lock an open file; return False if another process has it locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has it, or the file system has no locks
        return False
    return True


@cache
def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of dead processes of this user; once in each process."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _YOUNG_S:
                continue
            descriptor = os.open(folder / _ALIVE, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _lock_if_free(descriptor):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
