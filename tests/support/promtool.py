"""Prometheus' own `promtool`: of this machine, or out of Debian's package, kept in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from changelog.stack.base.places import cache_dir

_PACKAGE = "prometheus"
"""19 MB; of its 96 MB the one program is kept."""
_PROGRAM = "usr/bin/promtool"


def promtool() -> Path:
    """Return the program; skips the test where there is none and none can be had."""
    found = shutil.which("promtool")
    return Path(found) if found else _unpacked()


def _unpacked() -> Path:
    store = cache_dir() / "promtool"
    store.mkdir(parents=True, exist_ok=True)
    program = store / "promtool"
    with FileLock(store / ".lock"):
        if not program.exists():
            if shutil.which("apt-get") is None:
                pytest.skip("no promtool here, and no Debian to have it from")
            part = store / "part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            # apt checks what it fetches by its own keys; its lists may be of long ago, or none.
            if not _apt("download", _PACKAGE, folder=part):
                _apt("update", folder=part)
                if not _apt("download", _PACKAGE, folder=part):
                    pytest.skip("no promtool here, and apt does not fetch it")
            (archive,) = part.glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, part], check=True, timeout=120)
            (part / _PROGRAM).rename(program)
            shutil.rmtree(part)
    return program


def _apt(*words: str, folder: Path) -> bool:
    # The user that apt fetches as may not enter the cache: as root it fetches as itself.
    ran = subprocess.run(
        ["apt-get", "-q", "-o", "APT::Sandbox::User=root", *words],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )  # fmt: skip
    return ran.returncode == 0
