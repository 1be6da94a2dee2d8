"""An object that a capture has made: a part to remove, or the reason why it is not ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePart:
    """Something that a capture, or a rebuild, has made."""

    kind: str  # what it is: `slot`, `publication`, `topics`, …
    text: str  # what it holds, for people
    remove: Callable[[], None]  # removes it; nothing there any more is no error
    names: tuple[str, ...] = ()  # of what goes, one by one

    def __str__(self) -> str:
        """Return kind and content, for the question before the removal."""
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class NotOurs:
    """Something that bears a name of ours, and stays."""

    kind: str  # as of a part
    text: str  # what it is, and why it stays


Found = MadePart | NotOurs
