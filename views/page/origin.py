"""Where a row of a view comes from, asked of `rebuild-view --explain`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ORIGIN_S = 120.0
MOST_CHARACTERS = 100_000


def origin(folder: Path, view: str, key: str) -> str:
    """Return what is said of a row, or why nothing is.

    Args:
        folder: of the project.
        view: its name.
        key: of the row, as `--explain` takes it.
    """
    command = [sys.executable, "-m", "views", "--project", str(folder), view, f"--explain={key}"]
    try:
        ran = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=ORIGIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {ORIGIN_S:.0f} s"
    except ValueError:
        return "that is no key"
    said = (ran.stdout + ran.stderr).strip()
    if len(said) > MOST_CHARACTERS:
        return f"{said[:MOST_CHARACTERS]}\n… ({len(said):,} characters in all)"
    return said or "nothing was said"
