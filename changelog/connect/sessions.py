"""Sessions of the page that were ended before their time: known to all workers, by their topic."""

from __future__ import annotations

import time

from changelog.connect.rules.state import ended_record
from changelog.connect.store import Store


class EndedSessions:
    """The sessions that have ended."""

    def __init__(self, store: Store) -> None:
        """Take the state that workers share."""
        self._store = store

    def end(self, name: str, until: int) -> None:
        """End a session, which would last until a time in seconds; forget sessions that are over.

        Raises:
            UnavailableLogError: the brokers do not answer.
            LogError: they refuse.
        """
        now = time.time()
        with self._store.read() as cluster:
            over = [session for session, end in cluster.ended.items() if end < now]
        records = [ended_record(name, until), *(ended_record(session, None) for session in over)]
        self._store.write(records)

    def has_ended(self, name: str) -> bool:
        """Tell whether a session was ended."""
        with self._store.read() as cluster:
            return name in cluster.ended
