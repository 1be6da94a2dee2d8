"""Wheels of this product, built and installed as the documents say, in folders of a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def cloned(folder: Path, commit: str = "HEAD") -> Path:
    """Return a copy of the repository at a commit, which builds with the environment that is here.

    Skips the test where the history does not reach that far.
    """
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True, timeout=120)
    there = subprocess.run(
        ["git", "checkout", "-q", commit], cwd=folder, capture_output=True, check=False, timeout=120
    )
    if there.returncode:
        pytest.skip(f"the history here does not have {commit}")
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    return folder


def as_here(text: str, venv: Path) -> str:
    """Return commands of the documents with what is here in place of what they name.

    uv takes the wheels of the lock from its cache, where pip fetches 700 MB each time.
    """
    bin_here = Path(sys.executable).parent
    for page, here in {
        "make ": "make -o .venv/.ready ",  # the environment is another folder's: it stays
        "python3.11 -m venv": f"{bin_here}/python -m venv",
        "/opt/changelog/bin/pip install": f"{bin_here}/uv pip install --python {venv}/bin/python",
        "/opt/changelog": str(venv),
    }.items():
        text = text.replace(page, here)
    return text


def build(repository: Path) -> None:
    """Build the wheel of a copy into its folder `dist`."""
    subprocess.run(
        ["make", "-o", ".venv/.ready", "wheel"],
        cwd=repository, check=True, timeout=600, capture_output=True,
    )  # fmt: skip


def install(repository: Path, venv: Path) -> None:
    """Install the wheel that was built, on the versions of its lock."""
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "--no-deps"]
    (wheel,) = (repository / "dist").glob("*.whl")
    for words in (
        ["--require-hashes", "-r", str(repository / "requirements-run.lock")],
        [str(wheel)],
    ):
        subprocess.run(
            [*uv, "--python", str(venv / "bin" / "python"), *words], check=True, timeout=1_800
        )
