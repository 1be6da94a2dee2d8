"""Estimate the density of records in a log where the cleaner has left gaps. Pure.

A partition is cut into strata of equal length, and the first records of each show how dense it is.
So the length of a read can be estimated, and the read split, by records instead of by offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

POINTS = 16
"""Strata of a partition that are sampled, unless a caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """A range of offsets of one partition, and about how many records are there."""

    start: int  # its first offset
    end: int  # the first offset behind it
    records: float  # in it; an estimate unless all were read

    @classmethod
    def measured(cls, start: int, end: int, offsets: Sequence[int], *, is_whole: bool) -> Self:
        """Estimate from the offsets of the first records; `is_whole` if these are all of them."""
        if is_whole or not offsets:
            return cls(start, end, float(len(offsets)))
        return cls(start, end, len(offsets) * (end - start) / (offsets[-1] + 1 - start))


@dataclass(frozen=True, slots=True)
class Density:
    """The density of records in a topic, by strata of each partition."""

    strata: tuple[tuple[Stratum, ...], ...]

    @property
    def offsets(self) -> int:
        """Return the number of offsets, gaps counted."""
        return sum(stratum.end - stratum.start for strata in self.strata for stratum in strata)

    @property
    def records(self) -> int:
        """Return about how many records there are."""
        return round(sum(stratum.records for strata in self.strata for stratum in strata))

    @property
    def ratio(self) -> float | None:
        """Return the number of records for each offset, or None if there are no offsets."""
        return None if self.offsets == 0 else self.records / self.offsets


def strata_of(start: int, end: int, points: int) -> list[tuple[int, int]]:
    """Cut a range into at most `points` parts of about equal length, each of them non-empty."""
    count = min(points, end - start)
    bounds = [start + (end - start) * n // count for n in range(count + 1)] if count > 0 else []
    return list(pairwise(bounds))
