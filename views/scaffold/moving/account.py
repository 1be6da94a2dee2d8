"""An account of a translated file: each of its keys is carried, so by default, or not carried.

A translator says of each key what became of it. Keys of which it says nothing are named at the end
as not carried: so a key cannot be dropped in silence, whatever a translator forgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_SALT = re.compile(r"(\.with\.salt\.).+")
"""Debezium has the salt of a masked column, a secret, in the name of a key."""
Path = tuple[str | int, ...]
"""The keys and places that lead to a value."""


class Outcome(StrEnum):
    """An outcome of one key."""

    CARRIED = "carried"
    SAME = "by default"
    """A default here means the same, or is so always."""
    LEFT = "NOT carried"


@dataclass(frozen=True, slots=True)
class Line:
    """One key and its outcome."""

    file: str
    key: str
    outcome: Outcome
    text: str  # where it went; or why it did not, and what to do instead

    def __str__(self) -> str:
        """Return the line as people read it."""
        return f"{self.outcome:<11}  {self.file}: {self.key}  {self.text}"


@dataclass(slots=True)
class Account:
    """An account of one file, while it is translated."""

    file: str
    content: Any = field(repr=False)  # as JSON has it
    _lines: list[tuple[Path, Outcome, str]] = field(default_factory=list)
    _covered: set[Path] = field(default_factory=set)

    def carried(self, path: Path, text: str) -> None:
        """Note that a key, with all below it, went somewhere."""
        self.tell(path, Outcome.CARRIED, text)

    def same(self, path: Path, text: str) -> None:
        """Note that a key, with all below it, asks for a default."""
        self.tell(path, Outcome.SAME, text)

    def left(self, path: Path, text: str) -> None:
        """Note that a key, with all below it, is not carried."""
        self.tell(path, Outcome.LEFT, text)

    def tell(self, path: Path, outcome: Outcome, text: str) -> None:
        """Add the outcome of a key, with all below it."""
        self._covered.add(path)
        self._lines.append((path, outcome, text))

    def note(self, path: Path, text: str, outcome: Outcome = Outcome.LEFT) -> None:
        """Say something of a key that does not speak for what is below it."""
        self._lines.append((path, outcome, text))

    def lines(self) -> list[Line]:
        """Return a line for each outcome, in the file's order, also for keys without one."""
        rest = [
            (leaf, Outcome.LEFT, "it is not known here; look for it in docs/moving.md")
            for leaf in leaves(self.content)
            if not any(leaf[:length] in self._covered for length in range(len(leaf) + 1))
        ]
        order = {path: place for place, path in enumerate(_paths(self.content))}
        lines = sorted([*self._lines, *rest], key=lambda line: order.get(line[0], len(order)))
        return [Line(self.file, spelled(path), outcome, text) for path, outcome, text in lines]


def leaves(content: object) -> Iterator[Path]:
    """Yield the path of each value that holds no other."""
    paths = list(_paths(content))
    above = {path[:-1] for path in paths if path}
    yield from (path for path in paths if path not in above)


def _paths(content: object, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _paths(value, (*path, key))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from _paths(value, (*path, place))


def spelled(path: Path) -> str:
    """Return a path as people write it, without secrets.

    >>> spelled(("nodes", "children", 0, "table"))
    'nodes.children[0].table'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return _SALT.sub(r"\1***", text.removeprefix(".")) or "(the file)"
