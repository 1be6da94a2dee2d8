"""Writes rows and the offsets in the topics to PostgreSQL, in one transaction.

An offset is moved only from the value that this writer last saw; if another writer has moved it,
the transaction is rolled back. So no record is written twice and none is left out, whoever dies at
whatever moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg2
from psycopg2 import extensions

from changelog.connect.postgres.places import Partition, Places
from changelog.connect.postgres.rows import execute
from changelog.connect.postgres.session import Session, is_of_a_row, of_sink
from changelog.connect.postgres.tables import SinkTables, check_version
from changelog.connect.rules.records.events import DeleteRow, Operation
from changelog.connect.rules.records.reading import BadRecordError
from changelog.connect.rules.settings import SinkConnectorSettings
from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The operations on a table that a record asks for."""

    place: tuple[str, int, int]  # topic, partition and offset
    operations: Sequence[Operation]  # in their order
    # SQL types by column, as the record's schemas declare them
    columns: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()  # columns of the schema of the record's key


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that cannot be decoded or written, with the reason."""

    place: tuple[str, int, int]
    reason: str


class SinkDatabase:
    """A sink's database, over one connection for one thread."""

    def __init__(self, settings: SinkConnectorSettings) -> None:
        """Connect, and create the table of the offsets if it is missing.

        Raises:
            UnavailableError: no server answers.
            SinkError: the server refuses.
            ConfigurationError: the address cannot be used.
        """
        self._settings = settings
        self._tables = SinkTables(settings)
        self._places = Places(settings.name, "task of connector")
        self._session = Session(of_sink(settings))
        try:
            check_version(self._session.connection)
            with self._session.transaction() as cursor:
                Places.make(cursor)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._session.close()

    def places(self) -> dict[Partition, int]:
        """Return the stored offset of each partition that this connector has one for."""
        with self._session.transaction() as cursor:
            return self._places.read(cursor)

    def set_places(self, places: Mapping[Partition, int | None]) -> None:
        """Set offsets of a stopped connector, or delete them (None)."""
        with self._session.transaction() as cursor:
            self._places.put(cursor, places)

    def begin(self, places: Mapping[Partition, int]) -> None:
        """Insert the first offset of partitions that have none yet.

        Raises OvertakenError: another task was first.
        """
        with self._session.transaction() as cursor:
            self._places.begin(cursor, places)

    def write(
        self,
        requests: Sequence[WriteRequest],
        moves: Mapping[Partition, tuple[int, int]],
        *,
        refuse: Callable[[Sequence[RefusedRecord]], None],
    ) -> None:
        """Write the operations of records and move the offsets, in one transaction.

        Requests come in the order of their partitions; `moves` has the old and new offset of each.
        `refuse` is called with the records that cannot be written, perhaps none, before the
        transaction is committed; an error that it raises rolls the transaction back.

        Raises:
            OvertakenError: an offset no longer has the value that this writer last saw.
            UnavailableError: the server does not answer; all of this may be written or nothing.
            SinkError: the server refuses for a reason that lies in no single record.
        """
        with self._session.transaction() as cursor:
            self._places.move(cursor, moves)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            refused: list[RefusedRecord] = []
            for topic, records in _by_topic(requests):
                refused += self._apply(cursor, topic, records)
            refuse(refused)

    def _apply(
        self, cursor: extensions.cursor, topic: str, requests: Sequence[WriteRequest]
    ) -> list[RefusedRecord]:
        """Write records; if that fails, write each half, until each bad record is alone."""
        cursor.execute("SAVEPOINT batch")
        try:
            self._execute(cursor, topic, requests)
        except (BadRecordError, psycopg2.Error) as error:
            if isinstance(error, psycopg2.Error) and not is_of_a_row(error):
                raise
            cursor.execute("ROLLBACK TO SAVEPOINT batch")
            self._tables.forget(topic)  # the table may have got a column meanwhile
            half = len(requests) // 2
            if half:
                first = self._apply(cursor, topic, requests[:half])
                return first + self._apply(cursor, topic, requests[half:])
            return self._alone(cursor, topic, requests[0])
        cursor.execute("RELEASE SAVEPOINT batch")
        return []

    def _alone(
        self, cursor: extensions.cursor, topic: str, request: WriteRequest
    ) -> list[RefusedRecord]:
        """Write a single record again, by the table's columns as they are now, or refuse it."""
        try:
            self._execute(cursor, topic, [request])
        except BadRecordError as error:
            reason = str(error)
        except psycopg2.Error as error:
            if not is_of_a_row(error):
                raise
            reason = f"{error.diag.message_primary} ({error.pgcode})"
        else:
            cursor.execute("RELEASE SAVEPOINT batch")
            return []
        cursor.execute("ROLLBACK TO SAVEPOINT batch")
        self._tables.forget(topic)
        return [RefusedRecord(request.place, redacted(reason))]

    def _execute(
        self, cursor: extensions.cursor, topic: str, requests: Sequence[WriteRequest]
    ) -> None:
        operations = [operation for request in requests for operation in request.operations]
        table = self._tables.table(cursor, topic, *_shape(requests))
        if table is not None:
            execute(cursor, table, operations, self._settings.mode)
        elif not all(isinstance(operation, DeleteRow) for operation in operations):
            raise SinkError(
                f'there is no table for topic "{topic}", and its records do not have the types of '
                "the columns",
                hint="create it, or set col.names and col.types in addition to auto.create",
            )


def _shape(requests: Sequence[WriteRequest]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the columns that records declare, and the columns of their keys."""
    columns: dict[str, str] = {}
    # Records of one schema share one mapping, so there are few different ones.
    for declared in {id(request.columns): request.columns for request in requests}.values():
        columns |= declared
    return columns, next((request.keys for request in requests if request.keys), ())


def _by_topic(requests: Sequence[WriteRequest]) -> Iterable[tuple[str, list[WriteRequest]]]:
    by_topic: dict[str, list[WriteRequest]] = {}
    for request in requests:
        if request.operations:
            by_topic.setdefault(request.place[0], []).append(request)
    return by_topic.items()
