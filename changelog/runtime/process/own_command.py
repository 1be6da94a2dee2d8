"""A command of ours as a child of this process: it ends with it, however that ends.

Run as a program: the process id of the parent, the command's name, its words.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

_PR_SET_PDEATHSIG = 1


def own_command(words: Sequence[str]) -> list[str]:
    """Return the command line that runs `rebuild-view` with these words as our child.

    The thread that starts it has to live as long as the child: Linux ends the child with it.
    """
    return [sys.executable, "-m", __name__, str(os.getpid()), *words]


def main() -> None:
    """Run the command."""
    parent, name, *words = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):
            return
    sys.argv = [name, *words]
    entry_point = next(iter(entry_points(group="console_scripts", name=name)))
    entry_point.load()()


if __name__ == "__main__":
    main()
