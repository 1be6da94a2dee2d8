"""Objects that a capture leaves at PostgreSQL: its slot, its publication, its schema's objects.

The slot is looked at first: a process that reads it would make the rest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from psycopg2 import sql

from changelog.capture.inspect.parts import Found, MadePart, NotOurs
from changelog.config import Project
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import connect, source_errors
from changelog.source.stream.message import DROP_IF_EMPTY
from changelog.source.stream.signals import remove_signals
from changelog.source.stream.slot import PLUGIN, check_idle, drop_slot, inspect_slot
from changelog.source.tables.ddl import has_ddl, remove_ddl
from changelog.source.tables.publication import PublicationFacts, read_publication

_NEIGHBOURS = """
SELECT slot_name FROM pg_replication_slots
 WHERE database = current_database() AND plugin = %s AND NOT slot_name = ANY (%s) ORDER BY slot_name
"""
_TABLES = """
SELECT to_regclass('changelog.heartbeat') IS NOT NULL,
       to_regclass('changelog.changelog_signal') IS NOT NULL
"""
_OTHER_BEATS = "SELECT count(*) FROM changelog.heartbeat WHERE slot <> %s"
_OWN_BEAT = "DELETE FROM changelog.heartbeat WHERE slot = %s"
_DROP_HEARTBEAT = "DROP TABLE IF EXISTS changelog.heartbeat;"


def check_no_capture(settings: Project) -> None:
    """Check that nobody reads the project's slot.

    Raises SlotBusyError: a process does; SourceError: PostgreSQL does not answer.
    """
    with closing(connect(settings.postgres)) as connection:
        statuses = [inspect_slot(connection, slot) for slot in settings.capture.slots]
    for status in statuses:
        if status is not None:
            check_idle(status)


def left_at_source(settings: Project) -> list[Found]:
    """List the objects that the capture of a project has left at its source; removes nothing.

    Raises SourceError: PostgreSQL does not answer, or does not let us look.
    """
    # A standby has slots of its own, and all else is its primary's.
    where, slots = settings.primary or settings.postgres, settings.capture.slots
    with closing(connect(settings.postgres)) as reader, closing(connect(where)) as writer:
        return [
            *(part for slot in slots for part in _slot(reader, settings, slot)),
            *(part for name in slots.values() for part in _publication(writer, settings, name)),
            *_schema(writer, settings),
        ]


def _slot(connection: Connection, settings: Project, name: str) -> Iterator[Found]:
    status = inspect_slot(connection, name)
    if status is None:
        return
    if status.plugin != PLUGIN or not status.of_this_database:
        whose = f"is of {status.plugin or 'no plugin'}, database {status.database or 'none'}"
        yield NotOurs("slot", f'"{name}" {whose}: not of this capture')
        return
    if status.is_followed:
        yield NotOurs("slot", f'"{name}" is the primary\'s, which this standby follows')
        return
    kept = f", for which {status.retained_bytes or 0:,} bytes of WAL are kept"
    remove = _connected(settings.postgres, lambda source: _drop_slot(source, name))
    yield MadePart(kind="slot", text=f'"{name}"{kept}', remove=remove, names=(name,))


def _drop_slot(connection: Connection, name: str) -> None:
    if inspect_slot(connection, name) is not None:
        drop_slot(connection, name)


def _publication(connection: Connection, settings: Project, name: str) -> Iterator[Found]:
    facts = read_publication(connection, name)
    if facts is None:
        return
    if reason := _why_not_ours(facts, settings):
        yield NotOurs("publication", f'"{name}" {reason}')
        return
    title = f'"{name}" of {len(facts.sent)} tables'
    statement = sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name))
    remove = _running(settings, statement, f'cannot drop the publication "{name}"')
    yield MadePart(kind="publication", text=title, remove=remove, names=(name,))


def _why_not_ours(facts: PublicationFacts, settings: Project) -> str:
    if not settings.capture.create_publication:
        return "was made by somebody else (create_publication = false)"
    if facts.all_tables or facts.schemas:
        return "is for all tables, which none of capture's own is"
    return ""


def _schema(connection: Connection, settings: Project) -> Iterator[Found]:
    with source_errors(connection, "cannot look for what capture has made"):
        cursor = connection.cursor()
        cursor.execute(_NEIGHBOURS, (PLUGIN, [*settings.capture.slots]))
        neighbours = [f'"{name}"' for (name,) in cursor.fetchall()]
        cursor.execute(_TABLES)
        heartbeat, signals = cursor.fetchone() or (False, False)
        others = 0
        if heartbeat:
            cursor.execute(_OTHER_BEATS, (settings.slot,))
            (others,) = cursor.fetchone() or (0,)
    if heartbeat:
        yield _heartbeat(settings, others)
    for kind, is_there, title, remove in (
        ("signals", signals, "the table changelog.changelog_signal", remove_signals),
        ("triggers", has_ddl(connection), "the event triggers of schema changes", remove_ddl),
    ):
        if is_there and neighbours:
            yield NotOurs(kind, f"{title}: the slots {', '.join(neighbours)} may need it too")
        elif is_there:
            where = settings.primary or settings.postgres
            yield MadePart(kind=kind, text=title, remove=_connected(where, remove))


def _heartbeat(settings: Project, others: int) -> Found:
    title, failure = "the table changelog.heartbeat", "cannot remove the heartbeat"
    if others:
        own = sql.SQL(_OWN_BEAT.replace("%s", "{}")).format(sql.Literal(settings.slot))
        title = f"its row in {title}, which others have too"
        return MadePart(kind="heartbeat", text=title, remove=_running(settings, own, failure))
    drop = sql.SQL(_DROP_HEARTBEAT + DROP_IF_EMPTY)
    return MadePart(kind="heartbeat", text=title, remove=_running(settings, drop, failure))


def _running(settings: Project, statement: sql.Composable, failure: str) -> Callable[[], None]:
    def run(connection: Connection) -> None:
        with source_errors(connection, failure), connection.cursor() as cursor:
            cursor.execute(statement)

    return _connected(settings.primary or settings.postgres, run)


def _connected(dsn: str, act: Callable[[Connection], None]) -> Callable[[], None]:
    """Return an action with a connection of its own: the question may have waited for long."""

    def run() -> None:
        with closing(connect(dsn)) as connection:
            act(connection)

    return run
