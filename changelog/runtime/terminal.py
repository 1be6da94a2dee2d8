"""Standard error for people, standard output for programs. What draws is slow to load.

`FileOutput` writes whole batches of lines and keeps nothing back: Python's own buffer would keep
what a closed pipe did not take, and fail once more at the end.
"""

from __future__ import annotations

import errno
import os
import select
import sys

from rich.console import Console

from changelog.contract.base.errors import ChangelogError

_PLAIN_WIDTH = 120  # where there is no terminal to ask


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Go on, silent: rich would end the command."""
        self.quiet = True


console = _Console(stderr=True, width=None if sys.stderr.isatty() else _PLAIN_WIDTH, emoji=False)
"""For people; standard output is kept for results. A value such as `root:x:0` is shown as it is."""


class ClosedError(Exception):
    """The reader of the output is gone: `| head` has its lines."""


class FileOutput:
    """Writes bytes to a file descriptor."""

    def __init__(self, descriptor: int = 1, name: str = "standard output") -> None:
        """Write to a descriptor, by default standard output."""
        self._descriptor, self._name = descriptor, name
        self._watch = select.poll()
        self._watch.register(descriptor, 0)  # for what is told unasked: an error, the far end gone

    def write(self, raw: bytes) -> None:
        """Write all of it.

        Raises ClosedError: nobody reads any more; ChangelogError: it cannot be written: a disk is
        full.
        """
        rest = memoryview(raw)
        try:
            while rest:
                rest = rest[self._some(rest) :]
        except BrokenPipeError:
            raise ClosedError from None
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            raise ChangelogError(
                f"{self._name} cannot be written: {error.strerror}",
                hint="make room, and go on where the lines end" if full else "",
            ) from error

    def _some(self, rest: memoryview) -> int:
        try:
            return os.write(self._descriptor, rest)
        except BlockingIOError:  # a terminal or pipe that another program made non-blocking
            room = select.poll()
            room.register(self._descriptor, select.POLLOUT)
            room.poll()
            return 0

    def check(self) -> None:
        """Raise ClosedError where nobody reads any more, although nothing is written."""
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in self._watch.poll(0)):
            raise ClosedError
