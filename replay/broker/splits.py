"""Cut a topic so that each task of a scan has about as many records. Pure.

Splitting by offsets gives tasks of very different lengths on a log that was cleaned: most of its
records are near its end. So cuts follow the sampled density (`replay.broker.density`). It is not
known where between two samples the density changes; there `doubtful` asks for more samples, until
no task can be off by more than a fraction of its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from replay.broker.density import Density, Stratum

DOUBT = 0.25
"""How far a stratum may be off its estimate, as a fraction of one task's share."""

LEAST_RECORDS = 100_000
"""For a task: scanning these takes 0.1 s, and starting a task of Spark's Kafka source 0.05 s."""

MOST_RECORDS = 20_000_000
"""For a task: a minute or two, which is repeated when a worker is lost. With more tasks than
partitions a key has last records in several tasks, which Spark then has to sort."""

# The last stratum of a partition is halved until it is at most this part of the whole.
_LAST_PARTS = 256


def tasks_of(records: int, *, partitions: int, cores: int) -> int:
    """Return the number of tasks for a scan.

    One for each partition at least. More are worth it where cores would be idle, if each has
    enough to do; and where one would be so long that repeating it costs much.
    """
    return max(partitions, min(cores, records // LEAST_RECORDS), -(-records // MOST_RECORDS))


def doubtful(strata: Sequence[Stratum], share: float) -> list[int]:
    """Return the numbers of the strata of a partition that another sample should halve.

    `strata`: of the partition, in their order.
    """
    numbers = [
        number
        for number, (this, following) in enumerate(pairwise(strata))
        if this.end - this.start > 1
        and abs(_density(following) - _density(this)) * (this.end - this.start) > DOUBT * share
    ]
    # No sample follows the last one, so nothing shows whether its density changes.
    if strata and _is_long(strata):
        numbers.append(len(strata) - 1)
    return numbers


def _is_long(strata: Sequence[Stratum]) -> bool:
    last = strata[-1]
    return (last.end - last.start) * _LAST_PARTS > max(_LAST_PARTS, last.end - strata[0].start)


def layers(density: Density, tasks: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut a topic into about `tasks` ranges; each layer has at most one range a partition.

    Returns starts and ends of each layer. Together the layers hold every offset of every partition
    once; a partition has an empty range in a layer that it has no part in.
    """
    total = sum(_records(strata) for strata in density.strata)
    counts = [
        max(1, round(tasks * _records(strata) / total)) if total else 1 for strata in density.strata
    ]
    cuts = [_cuts(strata, count) for strata, count in zip(density.strata, counts, strict=True)]
    height = max((len(cut) - 1 for cut in cuts), default=0)
    return [
        (
            tuple(cut[min(number, len(cut) - 1)] for cut in cuts),
            tuple(cut[min(number + 1, len(cut) - 1)] for cut in cuts),
        )
        for number in range(height)
    ]


def _cuts(strata: Sequence[Stratum], count: int) -> list[int]:
    """Return the bounds of `count` ranges of about as many records; fewer when offsets are few."""
    if not strata:
        return [0]
    share = _records(strata) / count
    bounds, before = [strata[0].start], 0.0
    for stratum in strata:
        while stratum.records and len(bounds) < count:
            missing = len(bounds) * share - before
            if missing > stratum.records:
                break
            length = stratum.end - stratum.start
            bounds.append(stratum.start + round(length * missing / stratum.records))
        before += stratum.records
    return sorted({*bounds, strata[-1].end})


def _records(strata: Sequence[Stratum]) -> float:
    return sum(stratum.records for stratum in strata)


def _density(stratum: Stratum) -> float:
    return stratum.records / (stratum.end - stratum.start)
