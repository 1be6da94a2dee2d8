"""Environments in which other programs are installed from the package index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.figures import say


def installed(place: Path, name: str, version: str, *more: str, extras: str = "") -> Path:
    """Install a program below a folder, unless it is there; returns the folder of its commands.

    `extras`: such as `[postgres]`; `more`: further packages.
    """
    commands = place.absolute() / f"{name}-{version}" / "bin"
    if not (commands / name).exists():
        say(f"{name} {version} is installed")
        subprocess.run([sys.executable, "-m", "venv", str(commands.parent)], check=True)
        pip = [str(commands / "python"), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, f"{name}{extras}=={version}", *more], check=True)
    return commands
