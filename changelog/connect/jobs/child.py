"""A command of ours as the child of a worker: it ends with the worker, however that ends.

Run as a program: the worker's process id, the command's name, its words.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib.metadata import entry_points

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the command."""
    parent, name, *words = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):
            return
    sys.argv = [name, *words]
    found = next(iter(entry_points(group="console_scripts", name=name)))
    found.load()()


if __name__ == "__main__":
    main()
