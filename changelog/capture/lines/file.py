"""A file of lines that the next start goes on with: nothing in it is written twice, or lost."""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from changelog.capture.lines.line import ChangePlace, FileBegin, begin_of, is_mark, place_of
from changelog.contract.base.errors import ChangelogError, CorruptRecordError, LogError
from changelog.contract.base.lsn import Lsn
from changelog.runtime.terminal import FileOutput


@dataclass(frozen=True, slots=True)
class FileState:
    """State of the file that an earlier run wrote."""

    begin: FileBegin | None  # its first line, None for an empty file
    is_copied: bool = False  # whether the rows of the snapshot are all there
    # up to where PostgreSQL may have been told to forget
    at: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    # of the last line
    last: ChangePlace = ChangePlace(Lsn(0), -1)  # noqa: RUF009 - immutable


class LineFile:
    """A file that one capture writes to, at its end."""

    def __init__(self, path: Path, descriptor: int, *, is_made: bool) -> None:
        """Take a file that is open and locked, and that was perhaps made for this."""
        self._path, self._descriptor, self._is_made = path, descriptor, is_made
        self._output = FileOutput(descriptor, f'the file "{path}"')

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file, which is made where it is not there.

        Raises LogError: another capture writes to it; ChangelogError: it cannot be opened.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        is_made = True
        try:
            try:
                descriptor = os.open(path, flags | os.O_EXCL, 0o644)
            except FileExistsError:
                descriptor, is_made = os.open(path, flags, 0o644), False
        except OSError as error:
            raise ChangelogError(f'cannot open "{path}": {error.strerror}') from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise LogError(f'another capture writes to "{path}"') from error
        if os.fstat(descriptor).st_nlink == 0:  # the one that had made it has just removed it
            os.close(descriptor)
            return cls.open(path)
        return cls(path, descriptor, is_made=is_made)

    def look(self) -> FileState:
        """Return its content; a half line at its end is cut off.

        Raises LogError: it holds something else than lines of ours; it is left as it is.
        """
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            return FileState(None)
        try:
            with mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ) as content:
                first = content.find(b"\n") + 1
                # One that begins as ours, and has no end, is a first line that was cut off.
                if not (first or FileBegin.OPENS.startswith(content[: len(FileBegin.OPENS)])):
                    raise CorruptRecordError('the first line is no "begin"')
                end = content.rfind(b"\n") + 1
                state = _file_state(content, end) if end else FileState(None)
        except (ValueError, OSError, CorruptRecordError) as error:
            raise LogError(
                f'"{self._path}" is no file of `changelog capture --into`: {error}',
                hint="name another file; this one is left as it is",
            ) from error
        if end < size:
            os.ftruncate(self._descriptor, end)
        return state

    def clear(self) -> None:
        """Remove the rows of a snapshot that was cut off."""
        os.ftruncate(self._descriptor, 0)

    def write(self, raw: bytes) -> None:
        """Add lines.

        Raises ChangelogError: they cannot be written: a disk is full.
        """
        self._output.write(raw)

    def settle(self) -> None:
        """Return once all is on the disk.

        Raises ChangelogError: it cannot be written there.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise ChangelogError(f'"{self._path}" cannot be written: {error.strerror}') from error

    def check(self) -> None:
        """Nobody has to read it."""

    def close(self) -> None:
        """Release the lock; remove the file if it was created here and got no line."""
        if self._is_made and os.fstat(self._descriptor).st_size == 0:
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _file_state(content: mmap.mmap, end: int) -> FileState:
    begin = begin_of(content[: content.find(b"\n")])
    last: ChangePlace | None = None
    while end > 0:
        start = content.rfind(b"\n", 0, end - 1) + 1
        line = content[start : end - 1]
        if last is None:
            last = place_of(line)
        if is_mark(line, "at") or is_mark(line, "copied"):
            return FileState(begin, is_copied=True, at=place_of(line).lsn, last=last)
        end = start
    return FileState(begin)


class Stdout:
    """Standard output, from which somebody reads."""

    def __init__(self, descriptor: int = 1) -> None:
        """Take the descriptor."""
        self._output = FileOutput(descriptor)

    def write(self, raw: bytes) -> None:
        """Write lines at once.

        Raises ClosedError: nobody reads any more; ChangelogError: they cannot be written.
        """
        self._output.write(raw)

    def settle(self) -> None:
        """All has left already."""

    def check(self) -> None:
        """Raise ClosedError where nobody reads any more."""
        self._output.check()
