"""A digest of this code, which has to be the same on all machines that run tasks."""

from __future__ import annotations

import hashlib
from functools import cache

from changelog.runtime.imports import PACKAGES, ROOT

_KINDS = ("*.py", "*.h")


@cache
def fingerprint() -> str:
    """Return a hash of our packages' modules, and of the compiled part's interface."""
    digest = hashlib.sha256()
    for folder in (ROOT / package for package in PACKAGES):
        for path in sorted(module for kind in _KINDS for module in folder.rglob(kind)):
            digest.update(f"{path.relative_to(folder)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
