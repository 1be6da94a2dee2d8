"""Files of Debian's packages, kept in the cache: apt fetches and checks, nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from changelog.stack.base.places import cache_dir


def from_debian(package: str, *wanted: str) -> list[Path]:
    """Return files of a package; skips the test where none can be had.

    Args:
        package: its name.
        wanted: patterns of paths in it, each of one file; nothing else is kept.
    """
    store = cache_dir() / "debian" / package
    store.mkdir(parents=True, exist_ok=True)
    with FileLock(store / ".lock"):
        if _found(store, wanted) is None:
            _unpack(package, wanted, store)
        found = _found(store, wanted)
    assert found is not None, f"Debian's {package} has no {wanted}"
    return found


def _found(store: Path, wanted: tuple[str, ...]) -> list[Path] | None:
    found = [path for pattern in wanted for path in store.glob(pattern)]
    return found if len(found) == len(wanted) else None


def _unpack(package: str, wanted: tuple[str, ...], store: Path) -> None:
    if shutil.which("apt-get") is None:
        pytest.skip(f"no {package} here, and no Debian to have it from")
    part = store / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    # apt checks what it fetches by its own keys; its lists may be of long ago, or none.
    if not _apt("download", package, folder=part):
        _apt("update", folder=part)
        if not _apt("download", package, folder=part):
            pytest.skip(f"no {package} here, and apt does not fetch it")
    (archive,) = part.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, part], check=True, timeout=120)
    for pattern in wanted:
        for path in part.glob(pattern):
            place = store / path.relative_to(part)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
    shutil.rmtree(part)


def _apt(*words: str, folder: Path) -> bool:
    # The user that apt fetches as may not enter the cache: as root it fetches as itself.
    ran = subprocess.run(
        ["apt-get", "-q", "-o", "APT::Sandbox::User=root", *words],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )  # fmt: skip
    return ran.returncode == 0
