"""The position that a sink of a followed view has reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from changelog.contract.base.position import Position


@dataclass(frozen=True, slots=True)
class Reach:
    """The position that a sink of a followed view has reached.

    Attributes:
        position: the first that it does not hold; of what lies before it, it holds all.
        behind_s: for how long it has lacked the oldest rows that it lacks; 0 where it lacks none.
        is_left: whether it lacks more than is kept for it, so that it catches up by a round of
            Spark's.
        why: what keeps it from having them, empty where nothing is known to.
    """

    position: Position
    behind_s: float = 0.0
    is_left: bool = False
    why: str = ""

    @property
    def is_behind(self) -> bool:
        """Tell whether it lacks rows."""
        return self.behind_s > 0

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        fields: dict[str, Any] = {
            "epoch": self.position.epoch,
            "lsn": str(self.position.commit_lsn),
            "seconds_behind": round(self.behind_s, 3),
        }
        if self.is_left:
            fields["left_behind"] = True
        if self.why:
            fields["error"] = self.why
        return fields

    def shown(self, sink: str) -> str:
        """Return the text about a sink that lags: how far, and where it is."""
        how = ", left behind" if self.is_left else ""
        return f"{sink} {self.behind_s:,.0f} s behind, at {self.position.commit_lsn}{how}"
