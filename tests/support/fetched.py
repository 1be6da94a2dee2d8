"""Programs of others that tests run, each from a package registry, at one version.

What is fetched stays in the cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from changelog.stack.base.places import cache_dir


def fetched(program: str, package: str) -> Path:
    """Return the folder into which a package was installed; skips the test where it cannot be."""
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here, which fetches {package}")
    folder = cache_dir() / "emulators" / package.rpartition("/")[2]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if not folder.is_dir():
            part = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            words = ["install", package]
            if program == "npm":
                words += ["--prefix", str(part), "--no-audit", "--no-fund", "--silent"]
            environ = {**os.environ, "GOBIN": str(part)}
            ran = subprocess.run(
                [program, *words],
                env=environ,
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            if ran.returncode:
                pytest.skip(f"{program} does not fetch {package}: {ran.stderr[-200:]}")
            part.rename(folder)
    return folder
