"""The recipes of docs/recover.md: what a reader sees when something fails, and what mends it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.page_lines import plain

PAGE = Path(__file__).parents[2] / "docs" / "recover.md"
_SEES = re.compile(r"\*\*You see:\*\* (.+)")
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """Recipe of the page for one fault.

    Attributes:
        title: its heading.
        sees: the sentence behind "You see".
        quotes: what stands in it as code, but for commands and options: a program prints it like
            this, where `…` stands for anything.
        commands: what mends it, without comments, in order.
    """

    title: str
    sees: str
    quotes: tuple[str, ...]
    commands: tuple[str, ...]

    @property
    def codes(self) -> tuple[int, ...]:
        """Return the exit codes of the sentence, in its order."""
        return tuple(map(int, re.findall(r"\bends? with (\d)", self.sees)))

    def is_seen_in(self, said: str) -> bool:
        """Tell whether each quoted part was printed."""
        return all(
            re.search(".*?".join(map(re.escape, quote.split("…"))), said, re.DOTALL)
            for quote in self.quotes
        )


@cache
def recipes() -> Mapping[str, Recipe]:
    """Return the recipes by their titles, in the page's order."""
    found: dict[str, Recipe] = {}
    for part in PAGE.read_text("utf-8").split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        sees = _SEES.search(text)
        if sees:
            quotes = tuple(
                each
                for each in re.findall(r"`([^`]+)`", sees[1])
                if not each.startswith(("changelog ", "rebuild-view", "--"))
            )
            found[title] = Recipe(title, sees[1], quotes, _commands_in(text))
    return found


@cache
def first_commands() -> tuple[str, ...]:
    """Return the commands that come first, whatever has failed."""
    head = PAGE.read_text("utf-8").partition("\n## ")[0]
    return _commands_in(head)


def _commands_in(text: str) -> tuple[str, ...]:
    lines = (line for each in _COMMANDS.findall(text) for line in each.splitlines())
    return tuple(filter(None, map(plain, lines)))


def recipe(title: str) -> Recipe:
    """Return the recipe for one fault; a test that asks for it is the one that carries it out."""
    return recipes()[title]


def asides() -> Sequence[str]:
    """Return the commands of what is not in the table, in their order."""
    _, _, text = PAGE.read_text("utf-8").partition("\n## Not in the table\n")
    return re.findall(r"`((?:changelog|rebuild-view) [^`]+)`", text)
