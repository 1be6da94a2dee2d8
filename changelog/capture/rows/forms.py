"""Checks that the form of a topic's records stays the same while the topic exists.

A reader of the topic would meet records that it cannot read. And where the sort decides about the
topic's settings, altering these would lose what it holds: the cleaner drops records without a key.
"""

from __future__ import annotations

from collections.abc import Mapping

from changelog.contract.base.errors import TopicSettingsError
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import Scope
from changelog.contract.rows.relation import TableName
from changelog.kafka.cluster import TopicDescription


def check_forms(
    frontier: Frontier,
    topics: Mapping[TableName, str],
    scopes: Mapping[TableName, Scope],
    there: Mapping[str, TopicDescription],
) -> None:
    """Check that the topics of a frontier hold records of the sort that is asked for now.

    Of the topics that are there, one that was made anew since the frontier is free.

    Raises TopicSettingsError: one holds others, or has other partitions where they must stay; names
    each.
    """
    conflicts = []
    for table, topic in sorted(topics.items()):
        is_same = topic in there and there[topic].topic_id == frontier.topic_ids.get(topic)
        if not is_same or frontier.tables.get(topic) != table:
            continue
        before, now = frontier.scope_of(topic).sort, scopes[table].sort
        if before != now:
            conflicts.append(f'topic "{topic}" holds {before}, table {table.said} would give {now}')
        elif not scopes[table].keyed:
            partitions = {topic: len(frontier.ends.get(topic, ()))}
            conflicts += grown(partitions, {topic: there[topic].partitions})
    _refuse(conflicts)


def check_not_grown(partitions: Mapping[str, int], ends: Mapping[str, tuple[int, ...]]) -> None:
    """Check that topics have as many partitions as they had.

    Where records have no key, their partition follows from their position and this number: after
    a crash, capture looks there for what it has written already.

    Raises TopicSettingsError: one has more; names each.
    """
    _refuse(grown(partitions, {topic: len(ends[topic]) for topic in partitions if topic in ends}))


def grown(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return a line for each topic whose number of partitions has changed."""
    return [
        f'topic "{topic}" of a table without a key has {count} partitions and had {before[topic]}'
        for topic, count in sorted(now.items())
        if count != before[topic]
    ]


def _refuse(conflicts: list[str]) -> None:
    if conflicts:
        raise TopicSettingsError(
            "; ".join(conflicts),
            hint="choose another --slot and --topic-prefix, or drop the slot with `changelog "
            "slot drop` and delete these topics and their subjects: the next start makes them anew",
        )
