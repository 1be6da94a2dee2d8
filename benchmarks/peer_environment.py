"""Environments in which other programs are installed from the package index.

They want other versions than we have.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.figures import say

_UV = str(Path(sys.executable).parent / "uv")


def environment_of(folder: Path, *packages: str) -> Path:
    """Install packages into an environment of their own; returns the folder of its commands."""
    subprocess.run(
        [_UV, "venv", "-q", "--seed", "--python", sys.executable, str(folder)], check=True
    )
    commands = folder / "bin"
    pip = [_UV, "pip", "install", "-q", "--python", str(commands / "python")]
    subprocess.run([*pip, *packages], check=True, timeout=900)
    return commands


def installed(place: Path, name: str, version: str, *more: str, extras: str = "") -> Path:
    """Install a program below a folder, unless it is there; returns the folder of its commands.

    `extras`: such as `[postgres]`; `more`: further packages.
    """
    commands = place.absolute() / f"{name}-{version}" / "bin"
    if not (commands / name).exists():
        say(f"{name} {version} is installed")
        environment_of(commands.parent, f"{name}{extras}=={version}", *more)
    return commands
