"""A snapshot worker: chunks to copy on standard input, their row counts on standard output.

Ends with its parent: at the end of its input, and by the kernel's hand when the parent is killed.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys

from changelog.capture.snapshot import copy_chunk
from changelog.contract.errors import ChangelogError

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            return
    results = sys.stdout.buffer
    while True:
        try:
            context, job = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
        except EOFError:
            return
        try:
            result: int | ChangelogError = copy_chunk(context, job)
        except ChangelogError as error:
            result = error
        pickle.dump(result, results)
        results.flush()


if __name__ == "__main__":
    main()
