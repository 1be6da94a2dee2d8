"""Topics that have lost records: what a frontier says of them against where they start and end.

The cleaner never moves the start of a topic. DeleteRecords does, and so does a `cleanup.policy`
that deletes, if only for a while; what was there is missing from the state that the log gives,
and nobody can say which rows.

Nor does a topic end before the frontier's ends, unless its leader has not the records of the one
before: an election that was unclean, or a disk that lost its last writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from changelog.contract.base.errors import RecordsRemovedError
from changelog.contract.base.pattern import pasted, quoted
from changelog.contract.log.frontier import Frontier

Starts = Mapping[str, Sequence[int]]
"""Per topic the first offset of each partition that is still there."""
Ends = Mapping[str, Sequence[int]]
"""Per topic the end of each partition."""


def watched(frontier: Frontier) -> list[str]:
    """Return the keyed topics of a frontier: they must not lose records, as the others may."""
    return [topic for topic in frontier.tables if frontier.scope_of(topic).keyed]


def removed(
    frontier: Frontier, topic: str, starts: Starts, ends: Ends | None = None
) -> RecordsRemovedError | None:
    """Return the error about a topic that has lost records, or None if all are there.

    Args:
        frontier: what is known of it.
        topic: its name.
        starts: where it starts now.
        ends: where it ends now; None where the frontier is no older than that.
    """
    gaps = [
        *frontier.missing_of(topic, starts.get(topic, ())),
        *frontier.lost_of(topic, (ends or {}).get(topic, ())),
    ]
    if not gaps:
        return None
    table = frontier.tables[topic]
    return RecordsRemovedError(
        f'topic "{topic}": {"; ".join(gaps)}, so rows of table {table.said} may be missing',
        hint=f"`changelog resnapshot {pasted(quoted(*table))}` and start again",
    )
