"""Wall time of each stage of a verification."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StageTimes:
    """Seconds of wall time, by stage; several verifications may share them."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._reported: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Add the time spent inside the block to a stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + time.monotonic() - began

    def news(self) -> dict[str, float]:
        """Return the seconds that each stage took since the last call."""
        spent = {
            name: seconds - self._reported.get(name, 0.0) for name, seconds in self._spent.items()
        }
        self._reported = dict(self._spent)
        return {name: round(seconds, 3) for name, seconds in spent.items() if seconds > 0}
