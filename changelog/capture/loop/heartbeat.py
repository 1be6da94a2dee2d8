"""Heartbeats: a row at the source that capture updates, for databases on which nobody writes.

Frontiers need none, because keepalives move them. But PostgreSQL drops a slot's oldest WAL only
after a record of the running transactions, and an idle server writes no such record. The row also
serves whoever monitors replicas or backups by a table. For a standby the row is written on its
primary, which moves the standby's slot too.
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
# PostgreSQL runs one query text as one transaction, so SET LOCAL holds for the INSERT. The timeout:
# the stream must not wait for somebody who has locked the table.
_BEAT = """
SET LOCAL lock_timeout = '500ms';
INSERT INTO changelog.heartbeat AS h VALUES (%s, 1, clock_timestamp())
    ON CONFLICT (slot) DO UPDATE SET beats = h.beats + 1, at = clock_timestamp();
"""


class Heartbeat:
    """Updates the row of one slot; an error is logged, and capture continues."""

    def __init__(self, slot: str, every_s: float, writer: Callable[[], Connection]) -> None:
        """Update the row of `slot` every `every_s` seconds, never if that is 0.

        The first `beat` writes. `writer` returns the connection to write with.
        """
        self._slot = slot
        self._every_s = every_s
        self._writer = writer
        self._next_at = 0.0
        self._has_table = False
        self._last_error = ""

    def beat(self) -> None:
        """Write the row when it is time."""
        now = time.monotonic()
        if not self._every_s or now < self._next_at:
            return
        self._next_at = now + self._every_s
        try:
            self._write_row(self._writer())
        except SourceError as error:
            if str(error) != self._last_error:  # once, not with each beat
                log.warning("%s; trying again every %g s", error, self._every_s)
            self._last_error = str(error)
        else:
            self._last_error = ""

    def _write_row(self, connection: Connection) -> None:
        failure = "cannot write the heartbeat"
        with source_errors(connection, failure), connection.cursor() as cursor:
            if not self._has_table:
                cursor.execute(_THERE)
                (self._has_table,) = cursor.fetchone() or (False,)
            if not self._has_table:
                cursor.execute(_MAKE)
                self._has_table = True
            cursor.execute(_BEAT, (self._slot,))
