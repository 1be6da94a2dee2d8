"""Heartbeats: a row at the source that capture updates, for databases on which nobody writes.

Frontiers need none, as keepalives move them. But a slot's oldest WAL is let go where the WAL says
which transactions run, which a server that nobody writes to does not; and who watches replicas or
backups by a table gets one. The row is written where the source can be written: of a standby that
is its primary, so that the standby's slot moves too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from changelog.contract.base.errors import SourceError
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors

log = logging.getLogger("changelog.capture")

_THERE = "SELECT to_regclass('changelog.heartbeat') IS NOT NULL"
_MAKE = """
CREATE SCHEMA IF NOT EXISTS changelog;
CREATE TABLE IF NOT EXISTS changelog.heartbeat (
    slot text PRIMARY KEY, beats bigint NOT NULL, at timestamptz NOT NULL
);
COMMENT ON TABLE changelog.heartbeat IS 'Written by changelog capture --heartbeat-table';
"""
# One text is one transaction: nobody waits long for a lock that others have on the table.
_BEAT = """
SET LOCAL lock_timeout = '500ms';
INSERT INTO changelog.heartbeat AS h VALUES (%s, 1, clock_timestamp())
    ON CONFLICT (slot) DO UPDATE SET beats = h.beats + 1, at = clock_timestamp();
"""


class Heartbeat:
    """Updates the row of one slot; an obstacle is logged, and capture goes on."""

    def __init__(self, slot: str, every_s: float, writer: Callable[[], Connection]) -> None:
        """Begin with the next call.

        Of the row of `slot`; `every_s` is 0 for no beat. `writer` gives the connection to write by.
        """
        self._slot = slot
        self._every_s = every_s
        self._writer = writer
        self._next = 0.0
        self._is_made = False
        self._last_error = ""

    def beat(self) -> None:
        """Write the row when it is time."""
        now = time.monotonic()
        if not self._every_s or now < self._next:
            return
        self._next = now + self._every_s
        try:
            self._write(self._writer())
        except SourceError as error:
            if str(error) != self._last_error:
                log.warning("%s; trying again each %g s", error, self._every_s)
            self._last_error = str(error)
        else:
            self._last_error = ""

    def _write(self, connection: Connection) -> None:
        failure = "cannot write the heartbeat"
        with source_errors(connection, failure), connection.cursor() as cursor:
            if not self._is_made:
                cursor.execute(_THERE)
                (self._is_made,) = cursor.fetchone() or (False,)
            if not self._is_made:
                cursor.execute(_MAKE)
                self._is_made = True
            cursor.execute(_BEAT, (self._slot,))
