"""Steps of work that are counted for whoever watches; what draws them is loaded elsewhere."""

from __future__ import annotations


class Steps:
    """Things that are asked or done one by one. This class itself shows nobody anything."""

    def more(self, steps: int) -> None:
        """Add expected steps."""

    def begin(self, step: str) -> None:
        """Note the step at work."""

    def done(self, steps: int = 1) -> None:
        """Add finished steps."""


UNSEEN = Steps()  # for work that nobody watches
