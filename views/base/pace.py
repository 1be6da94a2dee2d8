"""Progress of a long piece of work: the part that is done, the rate, and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Tell = Callable[[str], None]
"""Is told in a few words how far the work is."""
_EVERY_S = 0.5
_MINUTE_S = 60
_TEN = 10


def quiet(_text: str) -> None:
    """Report nothing."""


class Pace:
    """Tells how far a piece of work is, twice a second at most; several threads may add to it."""

    def __init__(
        self,
        tell: Tell,
        subject: str,
        total: int,
        unit: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin now.

        `subject`: of the work, such as `topic "t": read`. `total`: of the units, at most. `unit`:
        its name in the plural.
        """
        self._tell, self._subject, self._total, self._unit = tell, subject, total, unit
        self._clock, self._begun = clock, clock()
        self._told, self._done = self._begun, 0
        self._lock = threading.Lock()

    def add(self, more: int, subject: str = "") -> None:
        """Count more units as done; a new `subject` replaces the present one."""
        with self._lock:
            self._done, self._subject = self._done + more, subject or self._subject
            now = self._clock()
            if more and now - self._told >= _EVERY_S:
                self._told = now
                self._tell(self._text(now - self._begun))

    def _text(self, seconds: float) -> str:
        rate = self._done / seconds
        seconds_left = max(0, self._total - self._done) / rate
        return (
            f"{self._subject} {self._done:,} of at most {self._total:,} {self._unit}, "
            f"{rate_text(rate)}/s, {duration_text(seconds_left)} left"
        )


def rate_text(rate: float) -> str:
    """Return a rate for people; of a slow one two digits."""
    return f"{rate:,.0f}" if rate >= _TEN else f"{rate:.2g}"


def duration_text(seconds: float) -> str:
    """Return a time for people, in minutes and seconds."""
    minutes, rest = divmod(round(seconds), _MINUTE_S)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
