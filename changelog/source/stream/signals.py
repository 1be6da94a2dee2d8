"""The signal table: rows that ask a running capture for something, by plain SQL.

A trigger writes each row that is inserted into the WAL as a transactional message. So a request
needs no publication and no polling, it is taken at its exact place among the changes, and one that
is rolled back was never asked. The rows themselves stay where they are, and are the user's to
delete; only what a pause waits for is looked up in the table, see `pause_of`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from changelog.contract.base.errors import ProtocolError
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors
from changelog.source.connect.versions import SENDS_MESSAGES, need
from changelog.source.stream.message import DROP_IF_EMPTY, OWN_PREFIX

SIGNAL_PREFIX = f"{OWN_PREFIX}.signal"  # of the messages that the trigger writes

RESNAPSHOT, PAUSE, RESUME, CHECKPOINT = KINDS = ("resnapshot", "pause", "resume", "checkpoint")

# The function is its owner's: who may insert needs no right to write messages.
_INSTALL = f"""
CREATE SCHEMA IF NOT EXISTS changelog;
CREATE TABLE IF NOT EXISTS changelog.changelog_signal (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    payload jsonb NOT NULL DEFAULT '{{}}',
    slot text,
    asked_by text NOT NULL DEFAULT session_user,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE changelog.changelog_signal IS
    'Requests to changelog capture: remove it by `changelog signal remove`';
CREATE OR REPLACE FUNCTION changelog.emit_signal() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog AS $function$
BEGIN
    PERFORM pg_logical_emit_message(true, '{SIGNAL_PREFIX}', json_build_object(
        'id', NEW.id, 'kind', NEW.kind, 'payload', NEW.payload, 'slot', NEW.slot)::text);
    RETURN NULL;
END $function$;
DROP TRIGGER IF EXISTS emit_signal ON changelog.changelog_signal;
CREATE TRIGGER emit_signal AFTER INSERT ON changelog.changelog_signal
    FOR EACH ROW EXECUTE FUNCTION changelog.emit_signal();
ALTER TABLE changelog.changelog_signal ENABLE ALWAYS TRIGGER emit_signal;
GRANT USAGE ON SCHEMA changelog TO PUBLIC;
GRANT SELECT ON changelog.changelog_signal TO PUBLIC;
"""
_REMOVE = """
DROP TABLE IF EXISTS changelog.changelog_signal;
DROP FUNCTION IF EXISTS changelog.emit_signal();
"""
_IS_THERE = "SELECT to_regclass('changelog.changelog_signal') IS NOT NULL"
_PAUSE = """
SELECT EXISTS (SELECT FROM changelog.changelog_signal WHERE id = %(id)s AND kind = 'pause'),
       (SELECT min(id) FROM changelog.changelog_signal
         WHERE id > %(id)s AND kind = 'resume' AND coalesce(slot = %(slot)s, true)),
       pg_current_snapshot()::text
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A request that stands in the table of signals."""

    id: int  # of its row; what frontiers name
    kind: str  # one of `KINDS`, or something that nobody knows
    payload: Mapping[str, object]  # what belongs to it; an empty one for anything but a JSON object
    slot: str | None  # which capture is asked; None for each of the database

    @classmethod
    def parse(cls, content: bytes) -> Signal:
        """Read the message of the trigger; raises ProtocolError if it is another message."""
        try:
            raw = json.loads(content)
            payload, slot = raw["payload"], raw["slot"]
            return cls(
                id=int(raw["id"]),
                kind=str(raw["kind"]),
                payload=payload if isinstance(payload, dict) else {},
                slot=None if slot is None else str(slot),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(
                f'a message of the prefix "{SIGNAL_PREFIX}" is not one of the signal table'
            ) from error


@dataclass(frozen=True, slots=True)
class Pause:
    """State of a pause in the signal table at one moment."""

    is_there: bool  # whether its row is visible
    resumed_by: int | None  # the row that ended it; None while none has
    snapshot: str  # what this look could see, as `pg_current_snapshot()` says it


def pause_of(connection: Connection, signal_id: int, slot: str) -> Pause | None:
    """Look up whether a pause still holds, or return None if there is no signal table.

    Raises SourceError: the table cannot be read.
    """
    failure = "cannot read changelog.changelog_signal"
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(_IS_THERE)
        (there,) = cursor.fetchone() or (False,)
        if not there:
            return None
        cursor.execute(_PAUSE, {"id": signal_id, "slot": slot})
        is_there, resumed_by, snapshot = cursor.fetchone() or (False, None, "")
    return Pause(is_there, resumed_by, snapshot)


def install_signals(connection: Connection) -> None:
    """Make the table and its trigger, or renew them; rows that are there stay.

    Raises SourceError: the server refuses.
    """
    failure = "cannot make the signal table"
    need(
        connection.server_version,
        SENDS_MESSAGES,
        "the signal table",
        hint="its rows come as messages of the stream, which older servers do not send",
    )
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(_INSTALL)


def remove_signals(connection: Connection) -> None:
    """Remove what `install_signals` has made; the schema goes when nothing else is in it.

    Raises SourceError: the server refuses.
    """
    failure = "cannot remove the signal table"
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(_REMOVE + DROP_IF_EMPTY)
