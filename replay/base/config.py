"""Settings of a replay: values made at the edge and passed down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CONNECT_PORT = 15002
"""Spark's own choice for Spark Connect."""

TASK_MEMORY_MB = 256
"""What a task holds where nobody says another."""


class OnBadRecord(Enum):
    """The reaction to a record that decides about a row and cannot be read."""

    FAIL = "fail"
    """The replay fails and names the record."""
    QUARANTINE = "quarantine"
    """Its row is left out, and the record is kept apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """Settings for the caution and the speed of a replay."""

    # how far our clock and the broker's may be apart; the verdict ends that much before its
    # deadline
    clock_allowance_ms: int = 5_000
    # what a replay does at least; its finish is estimated from this
    records_per_second: int = 50_000
    start_ms: int = 30_000  # what a replay takes whatever its size
    # what a task holds of the keys it has read, and of their last records, before it goes on in a
    # file
    task_memory_mb: int = TASK_MEMORY_MB
    on_bad_record: OnBadRecord = OnBadRecord.FAIL  # what follows when a record cannot be read

    def estimate_ms(self, records_at_most: int) -> int:
        """Estimate the duration of a replay, on the long side."""
        return self.start_ms + records_at_most * 1000 // self.records_per_second
