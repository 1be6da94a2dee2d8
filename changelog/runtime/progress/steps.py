"""Steps of work that are counted for whoever watches; what draws them is loaded elsewhere."""

from __future__ import annotations


class Steps:
    """Things that are asked or done one by one. This class itself shows nobody anything."""

    def more(self, steps: int) -> None:
        """Note that there are so many more steps than was known."""

    def begin(self, step: str) -> None:
        """Note what is at work now."""

    def done(self, steps: int = 1) -> None:
        """Note that so many more steps are done."""


UNSEEN = Steps()
"""For work that nobody watches."""
