"""Offsets in topics, stored in the database that their records are written to.

An offset is moved in the transaction of the rows, and only from the value that its writer last saw.
If another writer has moved it, the transaction is rolled back: whoever dies at whatever moment, no
record is written twice and none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg2 import errors, extensions

from changelog.connect.postgres.tables import CREATE_LOCK
from changelog.contract.base.errors import UnavailableError

PLACES = "changelog_connect_offsets"
"""The table of the offsets, in the first schema of the user's search path."""

Partition = tuple[str, int]


class OvertakenError(UnavailableError):
    """Another writer has moved an offset: the records have to be read again from there."""


class Places:
    """The stored offsets of one writer; each call is part of the caller's transaction."""

    def __init__(self, owner: str, owner_kind: str) -> None:
        """Take the name of the writer, and its kind for messages."""
        self._owner, self._owner_kind = owner, owner_kind

    @staticmethod
    def make(cursor: extensions.cursor) -> None:
        """Create the table if it is missing, and add the columns that an older one lacks."""
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK,))
        cursor.execute(
            "SELECT (SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass(%s)"
            " AND attname = 'topic_id'), to_regclass(%s) IS NULL",
            (PLACES, PLACES),
        )
        has_ids, is_missing = cursor.fetchone() or (0, True)
        if is_missing:
            cursor.execute(
                f"CREATE TABLE {PLACES} (connector text, topic text, partition int,"
                " next_offset bigint NOT NULL, topic_id text,"
                " PRIMARY KEY (connector, topic, partition))"
            )
        elif not has_ids:
            cursor.execute(f"ALTER TABLE {PLACES} ADD COLUMN topic_id text")

    def read(self, cursor: extensions.cursor) -> dict[Partition, int]:
        """Return the stored offset of each partition that has one."""
        cursor.execute(
            f"SELECT topic, partition, next_offset FROM {PLACES} WHERE connector = %s",
            (self._owner,),
        )
        return {(topic, partition): place for topic, partition, place in cursor.fetchall()}

    def topic_ids(self, cursor: extensions.cursor) -> dict[Partition, str]:
        """Return the topic id that each offset belongs to, where it is known.

        A topic that was deleted and created again has another id.
        """
        cursor.execute(
            f"SELECT topic, partition, topic_id FROM {PLACES}"
            " WHERE connector = %s AND topic_id IS NOT NULL",
            (self._owner,),
        )
        return {(topic, partition): topic_id for topic, partition, topic_id in cursor.fetchall()}

    def put(
        self,
        cursor: extensions.cursor,
        places: Mapping[Partition, int | None],
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Set offsets, or delete them (None), while the writer does not run."""
        for (topic, partition), place in places.items():
            key = (self._owner, topic, partition)
            cursor.execute(
                f"DELETE FROM {PLACES} WHERE (connector, topic, partition) = (%s, %s, %s)", key
            )
            if place is not None:
                cursor.execute(
                    f"INSERT INTO {PLACES} VALUES (%s, %s, %s, %s, %s)",
                    (*key, place, (topic_ids or {}).get(topic)),
                )

    def begin(
        self,
        cursor: extensions.cursor,
        places: Mapping[Partition, int],
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Insert the first offset of partitions that have none yet.

        Raises OvertakenError: another writer was first.
        """
        for (topic, partition), place in places.items():
            try:
                cursor.execute(
                    f"INSERT INTO {PLACES} VALUES (%s, %s, %s, %s, %s)",
                    (self._owner, topic, partition, place, (topic_ids or {}).get(topic)),
                )
            except errors.UniqueViolation:
                raise self._overtaken(topic, partition) from None

    def move(self, cursor: extensions.cursor, moves: Mapping[Partition, tuple[int, int]]) -> None:
        """Move offsets from the values that this writer last saw.

        Raises OvertakenError: one has another value by now.
        """
        for (topic, partition), (old, new) in sorted(moves.items()):
            cursor.execute(
                f"UPDATE {PLACES} SET next_offset = %s"
                " WHERE (connector, topic, partition, next_offset) = (%s, %s, %s, %s)",
                (new, self._owner, topic, partition, old),
            )
            self._check_moved(cursor, topic, partition)

    def _check_moved(self, cursor: extensions.cursor, topic: str, partition: int) -> None:
        if cursor.rowcount != 1:
            raise self._overtaken(topic, partition)

    def _overtaken(self, topic: str, partition: int) -> OvertakenError:
        return OvertakenError(
            f'another {self._owner_kind} "{self._owner}" has moved the offset of '
            f'partition {partition} of topic "{topic}"'
        )
