"""Topics that have lost their beginning: what a frontier says is dead against where they start.

The cleaner never moves the start of a topic. DeleteRecords does, and so does a `cleanup.policy`
that deletes, if only for a while; what was there is missing from the state that the log gives,
and nobody can say which rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from changelog.contract.base.errors import RecordsRemovedError
from changelog.contract.log.frontier import Frontier

Starts = Mapping[str, Sequence[int]]
"""Per topic the first offset of each partition that is still there."""


def watched(frontier: Frontier) -> list[str]:
    """Return the topics of a frontier that must not lose records: without a key, those expire."""
    return [topic for topic in frontier.tables if frontier.scope_of(topic).keyed]


def removed(frontier: Frontier, topic: str, starts: Starts) -> RecordsRemovedError | None:
    """Return what to say of a topic whose beginning is missing; None when all is there."""
    found = frontier.missing_of(topic, starts.get(topic, ()))
    if not found:
        return None
    return RecordsRemovedError(
        f'topic "{topic}": {"; ".join(found)}, so rows of table "{frontier.tables[topic]}" may be '
        "missing",
        hint=f"`changelog resnapshot {frontier.tables[topic]}` and start again",
    )
