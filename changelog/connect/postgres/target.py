"""Rows and the places in the topics, written to PostgreSQL in one transaction.

A place is moved only from where this writer last saw it. Who was overtaken moves none, and its
transaction is rolled back: no record is written twice, and none is left out, whoever dies when.
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
    """Operation on a table that a record asks for."""

    place: tuple[str, int, int]  # topic, partition and offset
    operations: Sequence[Operation]  # in their order
    # types in SQL that its schemas say, by column
    columns: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()  # columns of its key's schema


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that PostgreSQL or the table's columns do not take, and why."""

    place: tuple[str, int, int]
    reason: str


class SinkDatabase:
    """A database, by one connection; one thread uses it."""

    def __init__(self, settings: SinkConnectorSettings) -> None:
        """Connect, and make the table of places where it is missing.

        Raises:
            UnavailableError: no server answers.
            SinkError: it refuses.
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
        """Close the connection; what is not committed is not written."""
        self._session.close()

    def places(self) -> dict[Partition, int]:
        """Return the place of this connector in each partition that it has one in."""
        with self._session.transaction() as cursor:
            return self._places.read(cursor)

    def set_places(self, places: Mapping[Partition, int | None]) -> None:
        """Put places somewhere else, or forget them (None): for a connector that is stopped."""
        with self._session.transaction() as cursor:
            self._places.put(cursor, places)

    def begin(self, places: Mapping[Partition, int]) -> None:
        """Write where partitions begin of which there is no place yet.

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
        """Write the operations of records and move the places, all or nothing.

        Requests come in the order of each partition; `moves` says from where to where. `refuse` is
        told of the records that cannot be written, perhaps none, before anything stands; what it
        raises undoes all.

        Raises:
            OvertakenError: a place is no longer where this writer left it.
            UnavailableError: the server is away; nothing of this is written, or all of it.
            SinkError: it refuses what no single record causes.
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
        """Write records; after a failure halve them, until each bad record is alone."""
        cursor.execute("SAVEPOINT batch")
        try:
            self._execute(cursor, topic, requests)
        except (BadRecordError, psycopg2.Error) as error:
            if isinstance(error, psycopg2.Error) and not is_of_a_row(error):
                raise
            cursor.execute("ROLLBACK TO SAVEPOINT batch")
            self._tables.forget(topic)  # it may have got a column meanwhile
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
        """Try the one record that is left once more, by the table as it is now."""
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
        operations = [operation for one in requests for operation in one.operations]
        table = self._tables.table(cursor, topic, *_shape(requests))
        if table is not None:
            execute(cursor, table, operations, self._settings.mode)
        elif not all(isinstance(operation, DeleteRow) for operation in operations):
            raise SinkError(
                f'there is no table for topic "{topic}", and its records do not say the types of '
                "its columns",
                hint="make it, or give col.names and col.types beside auto.create",
            )


def _shape(requests: Sequence[WriteRequest]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the columns that records declare, and the columns of their keys."""
    columns: dict[str, str] = {}
    for columns_of in {id(one.columns): one.columns for one in requests}.values():
        columns |= columns_of
    return columns, next((one.keys for one in requests if one.keys), ())


def _by_topic(requests: Sequence[WriteRequest]) -> Iterable[tuple[str, list[WriteRequest]]]:
    by_topic: dict[str, list[WriteRequest]] = {}
    for request in requests:
        if request.operations:
            by_topic.setdefault(request.place[0], []).append(request)
    return by_topic.items()
