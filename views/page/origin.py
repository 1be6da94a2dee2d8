"""The origin of a row of a view, asked of `rebuild-view --explain`."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

ORIGIN_S = 120.0
MOST_CHARACTERS = 100_000
_TURN = threading.Lock()
"""One at a time: each is a process, perhaps one with Spark."""


def origin(folder: Path, view: str, key: str) -> str:
    """Return the text about a row's origin, or the reason why there is none.

    Args:
        folder: of the project.
        view: its name.
        key: of the row, as `--explain` takes it.
    """
    if not _TURN.acquire(blocking=False):
        return "another row is being looked up: ask again"
    try:
        return _origin(folder, view, key)
    finally:
        _TURN.release()


def _origin(folder: Path, view: str, key: str) -> str:
    command = [sys.executable, "-m", "views", "--project", str(folder), view, f"--explain={key}"]
    try:
        ran = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=ORIGIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {ORIGIN_S:.0f} s"
    except ValueError:
        return "that is no key"
    output = (ran.stdout + ran.stderr).strip()
    if len(output) > MOST_CHARACTERS:
        return f"{output[:MOST_CHARACTERS]}\n… ({len(output):,} characters in all)"
    return output or "nothing was said"
