"""Examples at the end of a command's help, each with its effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Command = TypeVar("Command", bound=Callable[..., None])
_EPILOG = "epilog"


def examples(*lines: str, more: str = "") -> str:
    """Return the end of a command's help: Markdown, a paragraph for each example.

    Each line is a command in backticks, and what it does.
    """
    title = "**Examples**" if len(lines) > 1 else "**Example**"
    return "\n\n".join(filter(None, (title, *lines, more)))


def with_examples(*lines: str, more: str = "") -> Callable[[Command], Command]:
    """Equip a command that joins by an entry point, which has no place to say it."""

    def equip(command: Command) -> Command:
        setattr(command, _EPILOG, examples(*lines, more=more))
        return command

    return equip


def epilog_of(command: Callable[..., None]) -> str | None:
    """Return the examples that `with_examples` has attached to a command."""
    epilog: str | None = getattr(command, _EPILOG, None)
    return epilog
