"""Rows and the places in the topics, written to PostgreSQL in one transaction.

A place is moved only from where this writer last saw it. Who was overtaken moves none, and its
transaction is rolled back: no record is written twice, and none is left out, whoever dies when.
Rows go as JSON, which PostgreSQL itself reads by the types of the columns.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import psycopg2
from psycopg2 import errorcodes, extensions, sql

from changelog.connect.rules.events import (
    BadRecordError,
    Delete,
    Number,
    Operation,
    json_of,
    parse_json,
)
from changelog.connect.rules.settings import SinkSettings
from changelog.contract.base.errors import ConfigurationError, SinkError, UnavailableError
from changelog.contract.base.secret import redacted

PLACES = "changelog_connect_offsets"
"""The table of places, in the first schema of the user's search path."""

_SESSION = "-c statement_timeout=0 -c datestyle=ISO -c timezone=UTC -c lock_timeout=60000"
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_LATER = {
    errorcodes.ADMIN_SHUTDOWN,
    errorcodes.CRASH_SHUTDOWN,
    errorcodes.CANNOT_CONNECT_NOW,
    errorcodes.TOO_MANY_CONNECTIONS,
    errorcodes.SERIALIZATION_FAILURE,
    errorcodes.DEADLOCK_DETECTED,
    errorcodes.LOCK_NOT_AVAILABLE,
}
_REFUSALS = ("authentication failed", "no password supplied", "pg_hba.conf", "does not exist",
             "certificate", "does not support ssl", "not permitted to log in")  # fmt: skip
_OF_A_ROW = ("21", "22", "23", "54", "P0")  # classes of errors that a row's own values cause
_CREATE_LOCK = 0x636F6E6E6563
_WHOLE = {"smallint", "integer", "bigint"}
_MOMENTS = ("date", "time", "interval")
Partition = tuple[str, int]


class OvertakenError(UnavailableError):
    """Another task has moved a place: what was read is to be read again from there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a record asks for; `place` says which record it is."""

    place: tuple[str, int, int]
    operations: Sequence[Operation]


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that PostgreSQL or the table's columns do not take, and why."""

    place: tuple[str, int, int]
    reason: str


@dataclass(frozen=True, slots=True)
class _Table:
    name: sql.Composable
    text: str
    types: Mapping[str, str]


class Target:
    """A database, by one connection; one thread uses it."""

    def __init__(self, settings: SinkSettings) -> None:
        """Connect, and make the table of places where it is missing.

        Raises:
            UnavailableError: no server answers.
            SinkError: it refuses.
            ConfigurationError: the address cannot be used.
        """
        self._settings = settings
        self._tables: dict[str, _Table] = {}
        self._connection = self._connected()
        try:
            with self._transaction() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
                cursor.execute("SELECT to_regclass(%s) IS NULL", (PLACES,))
                if cursor.fetchone() == (True,):
                    cursor.execute(
                        f"CREATE TABLE {PLACES} (connector text, topic text, partition int,"
                        " next_offset bigint NOT NULL, PRIMARY KEY (connector, topic, partition))"
                    )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; what is not committed is not written."""
        self._connection.close()

    def places(self) -> dict[Partition, int]:
        """Return the place of this connector in each partition that it has one in."""
        with self._transaction() as cursor:
            cursor.execute(
                f"SELECT topic, partition, next_offset FROM {PLACES} WHERE connector = %s",
                (self._settings.name,),
            )
            return {(topic, partition): place for topic, partition, place in cursor.fetchall()}

    def set_places(self, places: Mapping[Partition, int | None]) -> None:
        """Put places somewhere else, or forget them (None): for a connector that is stopped."""
        with self._transaction() as cursor:
            for (topic, partition), place in places.items():
                where = (self._settings.name, topic, partition)
                if place is None:
                    cursor.execute(
                        f"DELETE FROM {PLACES} WHERE (connector, topic, partition) = (%s, %s, %s)",
                        where,
                    )
                else:
                    cursor.execute(
                        f"INSERT INTO {PLACES} VALUES (%s, %s, %s, %s)"
                        " ON CONFLICT (connector, topic, partition)"
                        " DO UPDATE SET next_offset = EXCLUDED.next_offset",
                        (*where, place),
                    )

    def begin(self, places: Mapping[Partition, int]) -> None:
        """Write where partitions begin of which there is no place yet.

        Raises:
            OvertakenError: another task was first.
        """
        with self._transaction() as cursor:
            for (topic, partition), place in places.items():
                cursor.execute(
                    f"INSERT INTO {PLACES} VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                    (self._settings.name, topic, partition, place),
                )
                self._check_moved(cursor, topic, partition)

    def write(
        self,
        asked: Sequence[Asked],
        moves: Mapping[Partition, tuple[int, int]],
        *,
        refuse: Callable[[Sequence[Refused]], None],
    ) -> None:
        """Write what records ask for and move the places, all or nothing.

        Args:
            asked: in the order of each partition.
            moves: from where to where, of each partition.
            refuse: told of the records that cannot be written, perhaps none, before anything
                stands; what it raises undoes all.

        Raises:
            OvertakenError: a place is no longer where this writer left it.
            UnavailableError: the server is away; nothing of this is written, or all of it.
            SinkError: it refuses what no single record causes.
        """
        with self._transaction() as cursor:
            for (topic, partition), (old, new) in sorted(moves.items()):
                cursor.execute(
                    f"UPDATE {PLACES} SET next_offset = %s"
                    " WHERE (connector, topic, partition, next_offset) = (%s, %s, %s, %s)",
                    (new, self._settings.name, topic, partition, old),
                )
                self._check_moved(cursor, topic, partition)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            refused: list[Refused] = []
            for topic, records in _by_topic(asked):
                refused += self._apply(cursor, self._table(cursor, topic), topic, records)
            refuse(refused)

    def _check_moved(self, cursor: extensions.cursor, topic: str, partition: int) -> None:
        if cursor.rowcount != 1:
            raise OvertakenError(
                f'another task of connector "{self._settings.name}" has moved its place in '
                f'partition {partition} of topic "{topic}"'
            )

    def _apply(
        self, cursor: extensions.cursor, table: _Table, topic: str, asked: Sequence[Asked]
    ) -> list[Refused]:
        """Write records; where that fails halve them, until those that are bad are alone."""
        cursor.execute("SAVEPOINT batch")
        try:
            self._execute(cursor, table, [each for one in asked for each in one.operations])
        except (BadRecordError, psycopg2.Error) as error:
            if isinstance(error, psycopg2.Error) and not _is_of_a_row(error):
                raise
            cursor.execute("ROLLBACK TO SAVEPOINT batch")
            table = self._table(cursor, topic, anew=True)  # it may have got a column meanwhile
            half = len(asked) // 2
            if half:
                first = self._apply(cursor, table, topic, asked[:half])
                return first + self._apply(cursor, table, topic, asked[half:])
            return self._alone(cursor, table, asked[0])
        cursor.execute("RELEASE SAVEPOINT batch")
        return []

    def _alone(self, cursor: extensions.cursor, table: _Table, asked: Asked) -> list[Refused]:
        """Try the one record that is left once more, by the table as it is now."""
        try:
            self._execute(cursor, table, asked.operations)
        except BadRecordError as error:
            reason = str(error)
        except psycopg2.Error as error:
            if not _is_of_a_row(error):
                raise
            reason = f"{error.diag.message_primary} ({error.pgcode})"
        else:
            cursor.execute("RELEASE SAVEPOINT batch")
            return []
        cursor.execute("ROLLBACK TO SAVEPOINT batch")
        return [Refused(asked.place, redacted(reason))]

    def _execute(
        self, cursor: extensions.cursor, table: _Table, operations: Sequence[Operation]
    ) -> None:
        if not self._settings.upsert:
            rows = [each.row for each in operations if not isinstance(each, Delete)]
            for names, some in _runs(rows):
                self._insert(cursor, table, names, some)
            return
        for deletes, rows in self._folded(table, operations):
            if deletes:
                self._delete(cursor, table, deletes)
            for names, some in _by_names(rows):
                self._insert(cursor, table, names, some)

    def _folded(
        self, table: _Table, operations: Sequence[Operation]
    ) -> Iterator[tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]]:
        """Return what is deleted and then written, one row a key.

        Keys are told apart as PostgreSQL does; where their type is not one that we know to do so
        for, each operation goes alone.
        """
        deleted: dict[object, Mapping[str, Any]] = {}
        rows: dict[object, Mapping[str, Any]] = {}
        for each in operations:
            said = each.key if isinstance(each, Delete) else each.row
            key = tuple(
                _same(table.types.get(name, ""), said[name]) for name in self._settings.keys
            )
            if None in key:
                yield list(deleted.values()), list(rows.values())
                deleted, rows = {}, {}
                yield ([said], []) if isinstance(each, Delete) else ([], [said])
            elif isinstance(each, Delete):
                rows.pop(key, None)
                deleted[key] = said
            else:
                rows[key] = {**rows.get(key, {}), **said}
        yield list(deleted.values()), list(rows.values())

    def _insert(
        self,
        cursor: extensions.cursor,
        table: _Table,
        names: tuple[str, ...],
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        statement = sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT {columns}"
            " FROM json_populate_recordset(NULL::{table}, %s::json)"
        ).format(table=table.name, columns=columns)
        if self._settings.upsert:
            keys = self._settings.keys
            changed = [sql.Identifier(name) for name in names if name not in keys]
            conflict = sql.SQL(" ON CONFLICT ({}) DO ").format(_names(keys))
            update = sql.SQL(", ").join(
                sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in changed
            )
            done = sql.SQL("UPDATE SET ") + update if changed else sql.SQL("NOTHING")
            statement += conflict + done
        cursor.execute(statement, (_document(table, rows),))

    def _delete(
        self, cursor: extensions.cursor, table: _Table, keys: Sequence[Mapping[str, Any]]
    ) -> None:
        picked = [{name: each[name] for name in self._settings.keys} for each in keys]
        same = sql.SQL(" AND ").join(
            sql.SQL("old.{0} = gone.{0}").format(sql.Identifier(name))
            for name in self._settings.keys
        )
        cursor.execute(
            sql.SQL(
                "DELETE FROM {table} AS old"
                " USING json_populate_recordset(NULL::{table}, %s::json) AS gone WHERE {same}"
            ).format(table=table.name, same=same),
            (_document(table, picked),),
        )

    def _table(self, cursor: extensions.cursor, topic: str, *, anew: bool = False) -> _Table:
        if anew or topic not in self._tables:
            self._tables[topic] = self._looked_at(cursor, topic)
        return self._tables[topic]

    def _looked_at(self, cursor: extensions.cursor, topic: str) -> _Table:
        text = self._settings.table.replace("${topic}", topic)
        parts = text.split(".")
        if len(parts) > 2 or not all(parts):  # noqa: PLR2004 - schema and table
            raise ConfigurationError(
                f'"{text}" is no name of a table', hint="target.tablename: table or schema.table"
            )
        name = sql.Identifier(*parts)
        if self._settings.create:
            self._create(cursor, name)
        quoted = name.as_string(cursor)
        cursor.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
            " AND attgenerated = ''",
            (quoted,),
        )
        types: dict[str, str] = dict(cursor.fetchall())
        if not types:
            raise SinkError(f"there is no table {quoted}", hint="make it, or auto.create=true")
        wrong = {*self._settings.columns, *self._settings.keys} - types.keys()
        if wrong:
            raise SinkError(
                f"table {quoted} has no column {', '.join(sorted(wrong))}",
                hint="col.names and pk.fields name its columns",
            )
        return _Table(name, quoted, types)

    def _create(self, cursor: extensions.cursor, name: sql.Identifier) -> None:
        cursor.execute("SELECT to_regclass(%s) IS NULL", (name.as_string(cursor),))
        if cursor.fetchone() != (True,):
            return
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
        given = zip(self._settings.columns, self._settings.types, strict=True)
        # Types are checked to be names with numbers in brackets when the settings are read.
        parts = [
            sql.SQL("{} ").format(sql.Identifier(each)) + sql.SQL(kind) for each, kind in given
        ]
        if self._settings.keys:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(_names(self._settings.keys)))
        cursor.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(name, sql.SQL(", ").join(parts))
        )

    def _connected(self) -> extensions.connection:
        try:
            given = extensions.parse_dsn(self._settings.url)
        except psycopg2.Error:
            # Without libpq's own words: they quote the string, and so a password.
            raise ConfigurationError(
                "connection.url is not an address of PostgreSQL",
                hint="an example: postgresql://host:5432/database",
            ) from None
        settings = {**_DEFAULTS, **given}
        settings["options"] = f"{given.get('options', '')} {_SESSION}".strip()
        settings["application_name"] = f"connect-{self._settings.name}"
        if self._settings.user:
            settings["user"] = self._settings.user
        if self._settings.password:
            settings["password"] = self._settings.password
        self._secret = settings.get("password", "")
        try:
            connection: extensions.connection = psycopg2.connect(**settings)
        except psycopg2.Error as error:
            said = self._clean(str(error))
            if any(words in said.lower() for words in _REFUSALS):
                raise SinkError(
                    f"the database refuses the connection: {said}",
                    hint="look at connection.url, connection.user and connection.password",
                ) from None
            raise UnavailableError(f"the database does not answer: {said}") from None
        connection.set_client_encoding("UTF8")
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[extensions.cursor]:
        try:
            with self._connection, self._connection.cursor() as cursor:
                yield cursor
        except psycopg2.Error as error:
            code, said = error.pgcode, self._clean(error.diag.message_primary or str(error))
            if self._connection.closed or code is None or code in _LATER:
                raise UnavailableError(f"the database does not go on: {said}") from error
            raise SinkError(f"the database refuses: {said} ({code})") from error

    def _clean(self, text: str) -> str:
        said = redacted(" ".join(text.split()))
        return said.replace(self._secret, "***") if self._secret else said


def _is_of_a_row(error: psycopg2.Error) -> bool:
    code = error.pgcode or ""
    return code.startswith(_OF_A_ROW) or code == errorcodes.DATATYPE_MISMATCH


def _names(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _by_topic(asked: Sequence[Asked]) -> Iterable[tuple[str, list[Asked]]]:
    found: dict[str, list[Asked]] = {}
    for each in asked:
        if each.operations:
            found.setdefault(each.place[0], []).append(each)
    return found.items()


_Groups = Iterable[tuple[tuple[str, ...], list[Mapping[str, Any]]]]


def _by_names(rows: Sequence[Mapping[str, Any]]) -> _Groups:
    """Return rows by the columns that they have: what a row leaves out keeps its value."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(sorted(row)), []).append(row)
    return found.items()


def _runs(rows: Sequence[Mapping[str, Any]]) -> _Groups:
    """Return rows that are appended, in their order."""
    found: list[tuple[tuple[str, ...], list[Mapping[str, Any]]]] = []
    for row in rows:
        names = tuple(sorted(row))
        if not found or found[-1][0] != names:
            found.append((names, []))
        found[-1][1].append(row)
    return found


def _document(table: _Table, rows: Sequence[Mapping[str, Any]]) -> str:
    made = [{name: _fitting(table, name, value) for name, value in row.items()} for row in rows]
    return json_of(made).decode()


def _fitting(table: _Table, name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a value as PostgreSQL's reader of JSON takes it for a column.

    Raises:
        BadRecordError: there is no such column, or the value may mean several things there.
    """
    kind = table.types.get(name)
    if kind is None:
        raise BadRecordError(f"table {table.text} has no column for the field {name}")
    if kind in {"json", "jsonb"} and isinstance(value, str) and not isinstance(value, Number):
        parse_json(value.encode(), f"text for {name}")
        return Number(value)  # JSON as text, which goes as it is
    if kind == "bytea" and isinstance(value, str) and not value.startswith("\\x"):
        try:
            return "\\x" + base64.b64decode(value, validate=True).hex()
        except (binascii.Error, ValueError):
            raise BadRecordError(f"the field {name} is neither base64 nor hex") from None
    if kind.startswith(_MOMENTS) and isinstance(value, (int, Number)):
        raise BadRecordError(
            f"the field {name} is a number, its column a {kind}: ISO 8601 texts have one meaning"
        )
    return value


def _same(kind: str, value: Any) -> object:  # noqa: ANN401 - any JSON
    """Return what is equal for equal keys; None where that is PostgreSQL's to say."""
    text = str(value)
    if isinstance(value, (bool, list, dict)):
        return None
    try:
        if kind in _WHOLE:
            return int(text)
        if kind == "numeric":
            number = Decimal(text)
            return number if number.is_finite() else None
    except (ValueError, InvalidOperation):
        return None
    if kind in {"text", "character varying"}:
        return text
    return text.lower() if kind == "uuid" and len(text) == 36 else None  # noqa: PLR2004 - as usual
