"""Which code this is: what tasks import on another machine has to be the same."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_KINDS = ("*.py", "*.h")
PACKAGES = ("changelog", "replay", "views")


@cache
def fingerprint() -> str:
    """Give a hash of the modules that are installed here, and of the compiled part's interface."""
    found = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in sorted(spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(each for kind in _KINDS for each in Path(folder).rglob(kind)):
                found.update(f"{path.relative_to(folder)}\n".encode())
                found.update(path.read_bytes())
    return found.hexdigest()
