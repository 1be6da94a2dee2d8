"""Programs from the package index that want other versions than we have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

UV = str(Path(sys.executable).parent / "uv")


def environment_of(folder: Path, *packages: str) -> Path:
    """Install packages into an environment of their own; returns the folder of its commands."""
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    commands = folder / "bin"
    subprocess.run(
        [UV, "pip", "install", "-q", "--python", str(commands / "python"), *packages],
        check=True,
        timeout=900,
    )
    return commands
