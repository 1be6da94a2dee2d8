"""Judge which changes of a table, seen in the catalogue, delay a frontier (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from changelog.contract.base.lsn import Lsn
from changelog.contract.log.standing import Sighting, Standing


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on a table at the stream's position."""

    passed: int  # how many of the sightings, from the first on, wait for nothing in the stream
    change: str = ""  # the silent change, or empty
    # whether a truncation that the stream has yet to bring may explain a change: until then no
    # frontier may be written
    unexplained: bool = False
    # whether columns were added or dropped that the stream has not reached: a frontier would be
    # right about the rows, but not about the columns
    columns: bool = False


def judge(
    standing: Standing, sighted: Sequence[Sighting], truncated: Collection[int], reached: Lsn
) -> Judgement:
    """Compare a table's last standing with its sightings since, in their order.

    `truncated` are the transactions that truncated the table according to the stream, which is at
    `reached`.
    """
    before, passed, waits, awaits_columns = standing, 0, False, False
    for sighting in sighted:
        now, is_reached = sighting.standing, reached >= sighting.before
        unexplained = not is_reached and now.is_unexplained(before, truncated)
        change = "" if unexplained else now.change_since(before, truncated)
        if change:
            return Judgement(passed, change)
        columns = not is_reached and now.has_other_columns(before)
        if not (waits or awaits_columns or unexplained or columns):
            passed += 1
        waits, awaits_columns = waits or unexplained, awaits_columns or columns
        before = now
    return Judgement(passed, unexplained=waits, columns=awaits_columns)
