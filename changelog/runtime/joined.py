"""What later packages add to this one, by their entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def joined(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, by name."""
    return sorted(_all().select(group=group), key=lambda each: each.name)


@cache
def _all() -> Any:  # noqa: ANN401 - its type differs between Python 3.11 and 3.12
    """Look once: it reads a file of every package that is installed."""
    return entry_points()
