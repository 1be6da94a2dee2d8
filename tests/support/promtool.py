"""Prometheus' own `promtool`: of this machine, or out of Debian's package, kept in the cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.debian import from_debian


def promtool() -> Path:
    """Return the program; skips the test where there is none and none can be had."""
    if found := shutil.which("promtool"):
        return Path(found)
    (program,) = from_debian("prometheus", "usr/bin/promtool")  # 19 MB, for one program of it
    return program
