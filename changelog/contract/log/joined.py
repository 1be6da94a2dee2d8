"""Logs of several captures side by side: each topic belongs to the frontier of its own capture.

No moment cuts two databases together. What is read of each is whole transactions up to a frontier
of its own; the joined frontier has the LSN and the epoch of the first of them, and the ends of all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields

from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedLog:
    """A topic that another capture than the project's own writes."""

    table: TableName  # the name under which views read it
    topic: str  # where its records lie
    frontier_topic: str  # where that capture writes its frontiers
    slot: str  # its replication slot


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedFrontier(Frontier):
    """A frontier of several logs, with the first log's epoch, LSN, slot and source."""

    # the frontier that a topic belongs to, as its capture wrote it; a topic without an entry is the
    # first one's
    others: Mapping[str, Frontier] = field(default_factory=dict)

    def of(self, topic: str, /) -> Frontier:
        """Return the frontier that a topic is read to."""
        return self.others.get(topic, self)


def joined(first: Frontier, parts: Mapping[str, tuple[TableName, Frontier]]) -> JoinedFrontier:
    """Return a frontier that also names topics of other frontiers.

    `parts` has each further topic, with the name that its table has for readers, and the frontier
    that it is read to.
    """

    def both(name: str) -> dict[str, object]:
        own = dict(getattr(first, name))
        for topic, (_, frontier) in parts.items():
            if (value := getattr(frontier, name).get(topic)) is not None:
                own[topic] = value
        return own

    of_topics = (
        "topic_ids", "ends", "leader_epochs", "grown", "since", "alive_from", "scopes", "whole",
    )  # fmt: skip
    values = {attribute.name: getattr(first, attribute.name) for attribute in fields(Frontier)}
    children = {
        name: frontier.children[their]
        for topic, (name, frontier) in parts.items()
        if (their := frontier.tables[topic]) in frontier.children
    }
    return JoinedFrontier(
        **{
            **values,
            **{name: both(name) for name in of_topics},
            "tables": {**first.tables, **{topic: name for topic, (name, _) in parts.items()}},
            "children": {**first.children, **children},
        },
        others={
            **(first.others if isinstance(first, JoinedFrontier) else {}),
            **{topic: frontier for topic, (_, frontier) in parts.items()},
        },
    )


def beside(frontier: Frontier, topics: Collection[str]) -> list[tuple[Frontier, list[str]]]:
    """Return the other frontiers that some topics are read to, each with its topics."""
    frontiers: dict[tuple[str, str], tuple[Frontier, list[str]]] = {}
    first = (frontier.system_id, frontier.slot)
    for topic in topics:
        own = frontier.of(topic)
        place = (own.system_id, own.slot)
        if place != first:
            frontiers.setdefault(place, (own, []))[1].append(topic)
    return list(frontiers.values())
