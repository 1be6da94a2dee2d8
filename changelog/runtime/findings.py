"""Findings of a check, each problem with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from rich.table import Table

from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.secret import redacted

T = TypeVar("T")


class Level(Enum):
    """The level of a finding."""

    OK = "ok"
    MAKES = "would do"
    NOTE = "note"
    PROBLEM = "problem"


_COLOURS = {Level.OK: "green", Level.MAKES: "cyan", Level.NOTE: "yellow", Level.PROBLEM: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str  # the thing
    state: Level  # how it stands
    text: str  # what was found, or would be done
    hint: str = ""  # the way out of a problem, or an empty text
    exit_code: int = 0  # what a command would end with for it; 0 where it would go on

    def to_json(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return {
            "check": self.check,
            "state": self.state.value,
            "found": self.text,
            "hint": self.hint,
            "exit_code": self.exit_code,
        }


@dataclass(slots=True)
class Findings:
    """The findings of a check, in the order of checking."""

    all: list[Finding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return the code of the first problem; 0 when there is none."""
        return next((finding.exit_code for finding in self.all if finding.exit_code), 0)

    def add(self, check: str, state: Level, result: str) -> None:
        """Add a finding that is no problem."""
        self.all.append(Finding(check=check, state=state, text=redacted(result)))

    def ask(self, check: str, look: Callable[[], T]) -> T | None:
        """Run a check and return its result; a refusal is noted as a problem, and gives None."""
        try:
            return look()
        except ChangelogError as error:
            self.refused(check, error)
            return None

    def refused(self, check: str, error: ChangelogError) -> None:
        """Note a problem."""
        self.all.append(
            Finding(
                check=check,
                state=Level.PROBLEM,
                text=redacted(str(error.args[0]) if error.args else type(error).__name__),
                hint=redacted(error.hint),
                exit_code=error.exit_code,
            )
        )

    def passes(self, check: str, look: Callable[[], object], result: str) -> bool:
        """Run a check that raises or passes; tell whether it passes."""
        before = len(self.all)
        self.ask(check, look)
        if len(self.all) > before:
            return False
        self.add(check, Level.OK, result)
        return True

    def to_json(self) -> dict[str, object]:
        """Return all as one JSON object."""
        return {
            "ok": not self.exit_code,
            "exit_code": self.exit_code,
            "problems": [finding.text for finding in self.all if finding.state is Level.PROBLEM],
            "checks": [finding.to_json() for finding in self.all],
        }

    def table(self, title: str) -> Table:
        """Return all for people, under a title."""
        shown = Table(title=title)
        for name in ("what", "", "found", "way out"):
            shown.add_column(name, overflow="fold")
        for finding in self.all:
            colour = _COLOURS[finding.state]
            state = f"[{colour}]{finding.state.value}[/{colour}]"
            shown.add_row(finding.check, state, _plain(finding.text), _plain(finding.hint))
        return shown


def _plain(text: str) -> str:
    """Keep rich from reading brackets as its own."""
    return text.replace("[", r"\[")
