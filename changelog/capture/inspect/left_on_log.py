"""Topics and subjects that a capture leaves on Kafka and in the registry, by its frontiers.

Which topics are its own the log itself says: those of its frontiers, with the ids that they had,
and those that it is copying. The frontier topic goes last, so that a removal that was cut off
finds the rest again. A topic that another slot's frontiers name too is not this capture's alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from changelog.capture.inspect.parts import Found, MadePart, NotOurs
from changelog.config import Project
from changelog.contract.log.topic import (
    ddl_topic,
    frontier_topic,
    locks_topic,
    messages_topic,
    schema_topic,
    sequences_topic,
    topic_name,
)
from changelog.kafka.cluster import describe
from changelog.kafka.scan import OffsetRange, scan
from changelog.sink.by_hand import delete_topics
from changelog.sink.frontier import FrontierLog
from changelog.sink.registry import SchemaRegistry

_SUBJECT = re.compile(rb"[a-zA-Z0-9._-]+-(?:key|value)#[0-9a-f]{16}")
"""The key of a record of capture's own topic of schemas."""


@dataclass(slots=True)
class _Topics:
    """Topics by name, each with the id that the log knows it by; empty where it knows none."""

    own: dict[str, str] = field(default_factory=dict)  # of this slot
    others: set[str] = field(default_factory=set)  # names that frontiers of other slots speak of
    slots: list[str] = field(default_factory=list)  # these other slots
    strange: list[str] = field(default_factory=list)  # of ours by name, and made by somebody else


def left_on_log(settings: Project) -> list[Found]:
    """List the topics and subjects that the capture of a project has left; removes nothing.

    Raises LogError: brokers or registry do not answer, or the frontier topic is not ours.
    """
    frontiers = frontier_topic(settings.topic_prefix)
    topics = _named(settings, frontiers)
    there = describe(settings.kafka, {*topics.own, frontiers})
    for name, topic_id in list(topics.own.items()):
        if name in there and topic_id and there[name].topic_id != topic_id:
            topics.strange.append(name)
    stay = topics.others | set(topics.strange)
    gone = [name for name in sorted(topics.own) if name not in stay]
    here = [name for name in gone if name in there]
    parts = [*_topics(settings, here, topics), *_subjects(settings, gone)]
    return [*parts, _frontiers(settings, frontiers, topics)] if frontiers in there else parts


def _topics(settings: Project, here: list[str], topics: _Topics) -> Iterator[Found]:
    for name in topics.strange:
        yield NotOurs("topics", f"{name} was made anew by somebody else since the last frontier")
    both = sorted(topics.others & topics.own.keys())
    if both:
        named = ", ".join(topics.slots)
        yield NotOurs("topics", f"{', '.join(both)}: the captures of {named} have them too")
    if here:
        remove = partial(delete_topics, settings.kafka, here)
        title = f"{len(here)}: {', '.join(here)}"
        yield MadePart(kind="topics", text=title, remove=remove, names=tuple(here))


def _frontiers(settings: Project, topic: str, topics: _Topics) -> Found:
    if topics.slots:
        return NotOurs("frontiers", f"{topic}: it has those of {', '.join(topics.slots)} too")
    remove = partial(delete_topics, settings.kafka, [topic])
    title = f"{topic}, which tells what else there is"
    return MadePart(kind="frontiers", text=title, remove=remove, names=(topic,))


def _subjects(settings: Project, topics: list[str]) -> Iterator[Found]:
    if not settings.registry.url or not topics:
        return
    with closing(SchemaRegistry(settings.registry)) as registry:
        named = registry.present(f"{topic}-{part}" for topic in topics for part in ("key", "value"))
    if not named:
        return

    def remove() -> None:
        with closing(SchemaRegistry(settings.registry)) as registry:
            for name in named:
                registry.remove(name)

    title = f"{len(named)}: {', '.join(named)}"
    yield MadePart(kind="subjects", text=title, remove=remove, names=tuple(named))


def _named(settings: Project, frontiers: str) -> _Topics:
    """Return the topics that the frontier topic names, and the project's topics without tables."""
    topics = _Topics()
    with FrontierLog(settings.kafka, frontiers) as log:
        slots = log.slots()
        for slot in slots:
            names = _of_slot(log, slot, settings.topic_prefix)
            if slot == settings.slot:
                topics.own = names
            else:
                topics.slots.append(slot)
                topics.others |= names.keys()
    if slots:
        for name in _beside(settings):
            topics.own.setdefault(name, "")
            if topics.slots:
                topics.others.add(name)
    return topics


def _of_slot(log: FrontierLog, slot: str, prefix: str) -> dict[str, str]:
    record, backfill = log.last(slot), log.backfill(slot)
    names: dict[str, str] = {}
    if record is not None:
        names.update(record.frontier.topic_ids)
        tables = record.frontier.excluded
        names.update({topic_name(table, prefix): "" for table in tables})
    if backfill is not None:
        for topic, table_backfill in backfill.tables.items():
            names.setdefault(topic, table_backfill.topic_id)
    return names


def _beside(settings: Project) -> Iterator[str]:
    prefix = settings.topic_prefix
    yield from (messages_topic(prefix), sequences_topic(prefix), ddl_topic(prefix))
    yield locks_topic(prefix)
    schemas = schema_topic(prefix)
    if not settings.registry.url and _holds_ours_alone(settings, schemas):
        yield schemas


def _holds_ours_alone(settings: Project, topic: str) -> bool:
    """Tell whether a topic of schemas is capture's: registries have one of that name too."""
    if topic not in describe(settings.kafka, [topic]):
        return False
    with FrontierLog(settings.kafka, topic) as log:
        ends = log.ends([topic])[topic]
    ranges = [OffsetRange(topic, number, 0, end) for number, end in enumerate(ends)]
    return all(_SUBJECT.fullmatch(record.key() or b"") for record in scan(settings.kafka, ranges))
