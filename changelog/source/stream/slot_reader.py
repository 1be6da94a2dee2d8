"""Who reads a slot: a capture that lives, or a connection whose other end is gone.

PostgreSQL holds a slot for a connection until it notices that nobody is there, up to
`wal_sender_timeout`. A capture that lives sends a status each few seconds, and the server shows
when the last one was sent: that tells the two apart long before.
"""

from __future__ import annotations

from dataclasses import dataclass

from changelog.postgres.connection import Connection
from changelog.source.connect.connect import row_of
from changelog.source.connect.versions import for_version

_ASK = """
SELECT s.active_pid, r.reply_time::text, coalesce(nullif(host(r.client_addr), ''), 'this machine')
  FROM pg_replication_slots s LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid
 WHERE s.slot_name = %s AND s.active_pid IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class SlotReader:
    """A connection that reads a slot."""

    pid: int  # its process at the server
    # when its last status was sent; None where there was none, or it is hidden from this role
    replied: str | None
    address: str  # where it comes from


def slot_reader(connection: Connection, slot: str) -> SlotReader | None:
    """Look up who reads a slot, or return None if nobody does."""
    failure = f'cannot ask who reads the slot "{slot}"'
    row = row_of(connection, failure, for_version(_ASK, connection.server_version), (slot,))
    return None if row is None else SlotReader(*row)


class ReaderPulse:
    """Tells from one look to the next whether a reader lives.

    One status may have been under way when its sender died. So a reader lives when it has sent
    one between two looks, and is still there at a third: after such a last status comes the end
    of the connection.
    """

    def __init__(self) -> None:
        self._last: SlotReader | None = None
        self._has_replied = False

    def lives(self, reader: SlotReader) -> bool:
        """Note a look; return whether the reader is known to live."""
        last, self._last = self._last, reader
        if last is None or last.pid != reader.pid:
            self._has_replied = False
            return False
        if self._has_replied:
            return True
        self._has_replied = last.replied is not None and last.replied != reader.replied
        return False
