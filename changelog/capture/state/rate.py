"""How fast capture may write, so that source and broker are spared (pure).

What was written is paid for by waiting behind it. What was not used is saved up for a moment only,
so that a pause is not followed by a burst.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from changelog.sections import CaptureSettings

SAVED_S = 0.2
"""For how long what is not used is saved up."""

ROUNDS = 10
"""In so many steps a second is spent: none is to take much longer than the others."""

_PAGE_BYTES, _PAGE_ROWS, _ROW_BYTES = 8192, 50, 100


@dataclass(frozen=True, slots=True)
class Rate:
    """Limits on writes per second: records, and bytes of their keys and values; 0 is no limit."""

    rows: int = 0
    bytes: int = 0

    def shared(self, count: int) -> Rate:
        """Return the part of each of some writers."""
        return Rate(
            *(max(1, amount // count) if amount else 0 for amount in (self.rows, self.bytes))
        )

    def most(self, at_once: int) -> int:
        """Return the number of rows to take at once.

        Their size is not known before they are there: small ones are supposed, since too few at
        once only cost time, and too many would be a burst.
        """
        limits = [at_once]
        limits += [self.rows // ROUNDS] if self.rows else []
        limits += [self.bytes // ROUNDS // _ROW_BYTES] if self.bytes else []
        return max(1, min(limits))

    def pages(self, most: int) -> int:
        """Return the number of a table's pages that take about a second."""
        limits = [most]
        limits += [self.bytes // _PAGE_BYTES] if self.bytes else []
        limits += [self.rows // _PAGE_ROWS] if self.rows else []
        return max(1, min(limits))


UNLIMITED = Rate()


def rate_of(capture: CaptureSettings) -> Rate:
    """Return the rate that the settings allow."""
    return Rate(capture.limit_rows, capture.limit_bytes)


class Throttle:
    """Says how long to wait for what was written."""

    def __init__(self, rate: Rate, now: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing spent; `now` is a clock in seconds."""
        self._rate, self._now = rate, now
        self._free_at = now()

    def spent(self, rows: int, size: int) -> None:
        """Note the number of written records and their bytes."""
        rate = self._rate
        cost_s = max(
            rows / rate.rows if rate.rows else 0.0,
            size / rate.bytes if rate.bytes else 0.0,
        )
        if cost_s:
            self._free_at = max(self._free_at, self._now() - SAVED_S) + cost_s

    def owed_s(self) -> float:
        """Return for how many seconds no record may be written; 0 when one may."""
        return max(0.0, self._free_at - self._now())
