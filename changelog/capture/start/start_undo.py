"""Undo a failed first start: remove the slot, publication, topics and subjects that it created.

Most obstacles are found before anything is created. Some errors appear only later (a registry that
rejects a schema, a slot that cannot be created). They leave no objects either: the slot would
retain WAL for a log that nobody continues, and the publication would make updates fail of tables
that have no replica identity.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from psycopg2 import sql

from changelog.capture.start.environment import Environment
from changelog.capture.start.outlook import SlotStanding
from changelog.config import Project
from changelog.contract.base.errors import ChangelogError
from changelog.contract.log.form import Output
from changelog.contract.log.topic import frontier_topic
from changelog.kafka.cluster import describe
from changelog.postgres.connection import Connection
from changelog.sink.by_hand import delete_topics
from changelog.sink.frontier import FrontierLog
from changelog.source.connect.connect import connect, source_errors
from changelog.source.connect.replica_identity import Identity, restore
from changelog.source.stream.slot import SlotBusyError, drop_slot, inspect_slot
from changelog.source.tables.ddl import has_ddl, remove_ddl
from changelog.source.tables.publication import (
    PublicationFacts,
    WantedPublication,
    make_publication,
    read_publication,
)

log = logging.getLogger("changelog.capture")

SLOT_S, _NAP_S = 10.0, 0.1
"""How long to wait until the server releases our previous connection's slot; how often to try."""


@dataclass(slots=True)
class StartUndo:
    """A record of what existed before a start, so that the start can be undone."""

    # whether anything was captured: a later start continues that, so nothing is undone
    has_begun: Callable[[], bool]
    # the identities of tables before they got REPLICA IDENTITY FULL
    identities: list[Identity] = field(default_factory=list)
    _is_first: bool | None = None
    _slots: list[str] = field(default_factory=list)
    _publications: dict[str, PublicationFacts | None] = field(default_factory=dict)
    _topics: list[str] = field(default_factory=list)
    _subjects: list[str] = field(default_factory=list)
    _had_triggers: bool = True

    @property
    def is_first_start(self) -> bool:
        """Tell whether this process has begun the log, and has captured nothing yet."""
        return bool(self._is_first) and not self.has_begun()

    def look(self, environment: Environment, slot_standing: SlotStanding) -> None:
        """Note the existing objects before the first attempt of this process creates any."""
        if self._is_first is not None:
            return
        self._is_first = slot_standing.record is None and slot_standing.backfill is None
        if not self._is_first:
            return
        settings, source = environment.settings, environment.connection
        slots = settings.capture.slots
        self._slots = [name for name in slots if inspect_slot(source, name) is None]
        if settings.capture.create_publication and environment.can_write:
            publications = {name: read_publication(source, name) for name in slots.values()}
            self._publications = publications
        self._topics = environment.missing_topics
        self._had_triggers = not settings.capture.ddl or has_ddl(source)
        topics = [topic for topic in environment.topics.values() if topic in self._topics]
        self._subjects = _absent(settings, topics)

    def take_back(self, settings: Project) -> None:
        """Remove the created objects and log each; warn of an object that cannot be removed."""
        if self.has_begun():
            return
        source, writer = settings.postgres, settings.primary or settings.postgres
        steps: list[tuple[str, Callable[[], str]]] = []
        if self._is_first:
            steps += [(f'slot "{name}"', partial(_drop_slot, source, name)) for name in self._slots]
            steps += [
                (f'publication "{name}"', partial(_unpublish, writer, name, before))
                for name, before in self._publications.items()
            ]
            if not self._had_triggers:
                steps.append(("event triggers", partial(_on_server, writer, _remove_triggers)))
        if self.identities:
            steps.append(("replica identities", partial(_on_server, writer, self._restore)))
        if self._is_first:
            steps.append(("topics", partial(self._delete_topics, settings)))
            steps.append(("subjects", partial(self._remove_subjects, settings)))
        gone = []
        for subject, step in steps:
            try:
                gone.append(step())
            except ChangelogError as error:
                log.warning("this start leaves behind: %s: %s", subject, error)
        if names := ", ".join(filter(None, gone)):
            log.info("nothing was captured: this start takes back what it has made: %s", names)

    def _restore(self, connection: Connection) -> str:
        restore(connection, self.identities)
        return "REPLICA IDENTITY FULL of " + ", ".join(
            str(identity.table) for identity in self.identities
        )

    def _delete_topics(self, settings: Project) -> str:
        """Delete the new topics that are empty, but for the announcement of the slot."""
        own, slot = frontier_topic(settings.topic_prefix), settings.slot
        there = describe(settings.kafka, [*self._topics, own])
        with FrontierLog(settings.kafka, own) as frontiers:
            others = {*frontiers.slots()} - {slot} if own in there else set[str]()
            ends = frontiers.ends([name for name in there if name != own])
            gone = [name for name in ends if name in self._topics and not any(ends[name])]
            if own in there and own in self._topics and not others:
                gone.append(own)
            elif own in there and frontiers.backfill(slot) is not None:
                frontiers.forget_backfill(slot)
        if gone:
            delete_topics(settings.kafka, gone)
        return f"topics {', '.join(sorted(gone))}" if gone else ""

    def _remove_subjects(self, settings: Project) -> str:
        names = _present(settings, self._subjects)
        if names:
            from changelog.sink.registry import SchemaRegistry  # noqa: PLC0415 - a third of a start

            with closing(SchemaRegistry(settings.registry)) as registry:
                for name in names:
                    registry.remove(name)
        return f"subjects {', '.join(names)}" if names else ""


def _absent(settings: Project, topics: Sequence[str]) -> list[str]:
    named = [f"{topic}-{part}" for topic in topics for part in ("key", "value")]
    there = {*_present(settings, named)}
    return [name for name in named if name not in there]


def _present(settings: Project, subjects: Sequence[str]) -> list[str]:
    if not subjects or settings.capture.form.output is not Output.AVRO:
        return []
    from changelog.sink.registry import SchemaRegistry  # noqa: PLC0415 - a third of a start

    with closing(SchemaRegistry(settings.registry)) as registry:
        return registry.present(subjects)


def _on_server(dsn: str, act: Callable[[Connection], str]) -> str:
    """Call a function with a connection to the server; return its result."""
    with closing(connect(dsn)) as connection:
        return act(connection)


def _remove_triggers(connection: Connection) -> str:
    if not has_ddl(connection):
        return ""
    remove_ddl(connection)
    return "the event triggers of schema changes"


def _drop_slot(dsn: str, name: str) -> str:
    """Drop a slot, waiting a limited time for the server to release it."""
    deadline = time.monotonic() + SLOT_S
    with closing(connect(dsn)) as connection:
        while inspect_slot(connection, name) is not None:
            try:
                drop_slot(connection, name)
            except SlotBusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_NAP_S)
            else:
                return f'slot "{name}"'
    return ""


def _unpublish(dsn: str, name: str, before: PublicationFacts | None) -> str:
    """Drop a publication that is new, or restore the tables of one that existed before."""
    with closing(connect(dsn)) as connection:
        now = read_publication(connection, name)
        if now is None or now == before:
            return ""
        if before is not None:
            old = WantedPublication(tables=before.tables, operations=before.operations)
            make_publication(connection, name, old)
            return f'tables of publication "{name}"'
        drop = sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name))
        failure = f'cannot drop the publication "{name}"'
        with source_errors(connection, failure), connection.cursor() as cursor:
            cursor.execute(drop)
    return f'publication "{name}"'
