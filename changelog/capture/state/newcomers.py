"""What one process remembers of tables that appeared while it runs.

A start refuses what it cannot capture, so that the settings are mended. A capture that runs has
promised nothing about a table that appears, and goes on with the others: it is excluded, with the
reason in the log, in frontiers and in `changelog status`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from changelog.contract.rows.relation import TableName

TRIED = "cannot be captured: "
"""How a reason begins that a start was refused for; it stands until somebody asks."""


@dataclass(slots=True)
class Newcomers:
    """Tables that are wanted, and were not captured when the process began.

    Attributes:
        excluded: why some are not captured.
        proven: tables with which an attempt has begun to stream.
        trying: those with which the present life is the first to try.
    """

    excluded: dict[TableName, str] = field(default_factory=dict)
    proven: set[TableName] = field(default_factory=set)
    trying: set[TableName] = field(default_factory=set)

    def refused(
        self, obstacles: Mapping[TableName, str], spoken: Iterable[TableName]
    ) -> dict[TableName, str]:
        """Return the tables to begin without: none in the first attempt, which refuses to begin.

        Args:
            obstacles: why tables cannot be captured.
            spoken: tables that the log has; without one of these it cannot go on.
        """
        if not self.proven:
            return {}
        known = set(spoken)
        return self.excluded | {t: why for t, why in obstacles.items() if t not in known}

    def listed(self, tables: Iterable[TableName]) -> None:
        """Note the tables that an attempt begins with."""
        self.trying = {*tables} - self.proven

    def began(self) -> None:
        """Note that the attempt streams."""
        self.proven |= self.trying
        self.trying = set()

    def blame(self, error: Exception) -> bool:
        """Exclude the new tables of an attempt that could not begin; False without any."""
        if not self.proven or not self.trying:
            return False
        said = str(error.args[0]) if error.args else type(error).__name__
        self.excluded.update(dict.fromkeys(self.trying, TRIED + said))
        self.trying = set()
        return True

    def note(self, tables: Iterable[TableName], reasons: Mapping[TableName, str]) -> None:
        """Note what stands against some tables now; what a start was refused for stays."""
        for table in tables:
            if table in reasons:
                self.excluded[table] = reasons[table]
            elif not self.excluded.get(table, "").startswith(TRIED):
                self.excluded.pop(table, None)
