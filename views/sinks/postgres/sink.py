"""A view as a table of PostgreSQL: partitioned, one table per generation, one of them attached.

A generation is a table in the schema `changelog_views`, loaded by tasks, sealed by a primary key
on the view's key, which proves that each row has a key of its own. Publishing detaches the one that
serves and attaches the other, in one transaction whose lock on the table that readers open is
asked for briefly and again: no reader waits long behind it for another one.

A transaction that reads at the state of its beginning (REPEATABLE READ) sees no row that was
written later, and so would find a generation empty that was loaded after it began. Publishing waits
for such transactions, as PostgreSQL's CREATE INDEX CONCURRENTLY does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import psycopg2
from psycopg2 import errorcodes, sql

from changelog.contract.base.errors import SinkError
from views.base.address import Address
from views.project.spec import check_view_name
from views.sinks.base import Opened, not_sealed, opened, refuse_published
from views.sinks.postgres.copy import CopyWriter, load, remove_others
from views.sinks.postgres.forms import Form, forms_of
from views.sinks.postgres.forward import PostgresForward, columns_sent, values_sent
from views.sinks.postgres.options import PostgresOptions
from views.sinks.postgres.registry import LOADED, OPEN, SCHEMA, SEALED, Registry, place
from views.sinks.postgres.retype import first_changed
from views.sinks.postgres.server import BusyError, Connection, PostgresClient, is_busy
from views.sinks.postgres.stable import Stable, columns_of, foreign
from views.sinks.shape import check_shape
from views.sinks.unique import assert_unique

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from changelog.contract.base.position import Position

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '100ms'"
_TYPE = re.compile(r'[A-Za-z_"][\w". ]*(\(\s*\d+(\s*,\s*-?\d+)?\s*\))?[\w ]*(\[\])?')
_KEY_FAULTS = {errorcodes.UNIQUE_VIOLATION, errorcodes.NOT_NULL_VIOLATION}
_OLDER = """
SELECT pid, usename, state FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
AND pid <> pg_backend_pid() AND application_name NOT LIKE 'changelog%%'
AND backend_xmin IS NOT NULL AND xact_start < %s
AND (state <> 'active' OR query_start > xact_start) LIMIT 1
"""
"""Transactions older than a moment that may still read another table by their old snapshot: one
that consists of a single statement has locked all of its tables."""
_END_WRITERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s
AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
"""


class PostgresSink:
    """A view in PostgreSQL."""

    def __init__(
        self, *, view: str, key: Sequence[str], server: PostgresClient, options: PostgresOptions
    ) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._server = server
        self._options = options
        target = options.target(view)
        self._registry = Registry(view, target)
        self._stable = Stable(target, tuple(options.columns.get(name, name) for name in key))
        self._opened: Opened | None = None
        self._attempts: dict[str, int] = {}

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation with a table that nobody reads."""
        check_shape(schema, self._key)
        forms = forms_of(schema, self._options, self._view)
        with self._server.connection() as connection, connection, connection.cursor() as cursor:
            self._check_types(cursor, forms)
            self._registry.make(cursor)
            self._check_stable(cursor, forms)
            relation = self._registry.add(cursor, generation)
            columns = sql.SQL(", ").join(
                sql.SQL("{} {}").format(sql.Identifier(form.target), sql.SQL(form.loaded))
                for form in forms
            )
            cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(place(relation), columns))
        self._opened = Opened(generation, schema)

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once."""
        current = opened(self._opened, self._view)
        current.begin(rows)
        relation = self._registry.relation(current.generation)
        forms = forms_of(current.schema, self._options, self._view)
        writer = CopyWriter(self._server, relation, forms, self._options.batch_rows)
        self._attempts = load(rows, writer)
        current.written = sum(self._attempts.values())

    def seal(self) -> Address:
        """End writing, and mark the generation as whole."""
        current = opened(self._opened, self._view)
        rows, number = current.finished(), current.generation
        relation = self._registry.relation(number)
        forms = forms_of(current.schema, self._options, self._view)
        with self._server.connection() as connection:
            self._end_writers(connection, relation)
            try:
                with connection, connection.cursor() as cursor:
                    self._registry.set_state(cursor, number, LOADED)
                    remove_others(cursor, relation, list(self._attempts))
                    self._retype(cursor, relation, forms)
                    self._make_key(cursor, relation)
                    held = self._count(cursor, relation)
                    if held != current.written:
                        raise SinkError(
                            f"{current.written} rows were written to {SCHEMA}.{relation}, "
                            f"it holds {held}"
                        )
                    if self._stable.found(cursor) is not None:
                        self._stable.prepare(cursor, relation)
            except psycopg2.Error as error:
                if error.pgcode in _KEY_FAULTS:
                    assert_unique(rows, self._key)
                raise
            with connection.cursor() as cursor:
                cursor.execute(sql.SQL("ANALYZE {}").format(place(relation)))
                self._registry.set_state(cursor, number, SEALED, held)
        self._opened = None
        return self.address(number)

    def rows(self, generation: int) -> int:
        """Return the number of rows of a sealed generation."""
        with self._server.connection() as connection, connection.cursor() as cursor:
            rows = self._registry.sealed(cursor, generation).rows
        if rows is None:
            raise not_sealed(self._view, generation, [generation])
        return rows

    def address(self, generation: int) -> Address:
        """Return the table of a sealed generation."""
        with self._server.connection() as connection, connection.cursor() as cursor:
            relation = self._registry.sealed(cursor, generation).relation
        location = {"url": self._server.url, "table": f"{SCHEMA}.{relation}"}
        if self._options.columns:
            location["columns"] = orjson.dumps(self._options.columns).decode()
        return Address("postgres", location)

    def publish(self, generation: int) -> None:
        """Attach a sealed generation in place of the one that serves, in one transaction."""
        with self._server.connection() as connection:
            with connection, connection.cursor() as cursor:
                entry = self._registry.sealed(cursor, generation)
                self._check_stable(cursor)
                if self._stable.found(cursor) is not None and self._current(cursor) != generation:
                    self._stable.prepare(cursor, entry.relation)
            self._server.patiently(lambda: self._wait(connection, entry.sealed_at))
            self._server.patiently(lambda: self._move(connection, generation))

    def discard(self, generation: int) -> None:
        """Remove a generation's table; its entry goes last, so that what is killed is ended."""
        refuse_published(self._view, generation, self.published())
        with self._server.connection() as connection:
            with connection.cursor() as cursor:
                entry = self._registry.entries(cursor).get(generation)
                if entry is None:
                    return
                self._registry.set_state(cursor, generation, OPEN)
            self._end_writers(connection, entry.relation)

            def remove(cursor: Any) -> None:  # noqa: ANN401 - psycopg2's
                statement = sql.SQL("DROP TABLE IF EXISTS {}")
                cursor.execute(statement.format(place(entry.relation)))
                self._registry.remove(cursor, generation)

            self._server.patiently(lambda: self._briefly(connection, remove))

    def drop(self) -> None:
        """Remove the table that readers open, then each generation.

        A table that the user made stays, without rows. What depends on the table, such as an SQL
        view, is not removed: it is an error.
        """
        with self._server.connection() as connection:
            with connection.cursor() as cursor:
                self._check_stable(cursor)
                if not self._registry.is_known(cursor):
                    self._refuse_elsewhere(cursor)
                    return
                self._registry.check_whose(cursor)
            self._server.patiently(lambda: self._briefly(connection, self._drop_stable))
        for generation in self.generations():
            self.discard(generation)
        with self._server.connection() as connection, connection.cursor() as cursor:
            self._registry.forget(cursor)

    def published(self) -> int | None:
        """Return the generation that is attached.

        Raises:
            SinkError: the table that readers open is somebody else's.
        """
        with self._server.connection() as connection, connection.cursor() as cursor:
            self._check_stable(cursor)
            return self._current(cursor)

    def generations(self) -> list[int]:
        """List the generations of the registry."""
        with self._server.connection() as connection, connection.cursor() as cursor:
            return sorted(self._registry.entries(cursor))

    def holds_back(self, generation: int) -> str | None:  # noqa: ARG002 - of all sinks
        """Return None: a transaction changes all rows in one step."""
        return None

    def delta_columns(self, schema: StructType) -> Sequence[Column]:
        """Return a row's columns as they are sent."""
        return columns_sent(forms_of(schema, self._options, self._view))

    def delta_values(self, schema: StructType, delta: pa.Table) -> Mapping[str, pa.Array]:
        """Return a row's columns as they are sent."""
        return values_sent(forms_of(schema, self._options, self._view), delta)

    def apply(
        self, generation: int, schema: StructType, delta: pa.Table, position: Position
    ) -> None:
        """Let a sealed generation hold what a delta says, in one transaction."""
        forms = forms_of(schema, self._options, self._view)
        forward = PostgresForward(
            self._registry, generation, forms, self._stable.key, self._options.batch_rows
        )
        with self._server.connection() as connection, connection, connection.cursor() as cursor:
            forward.apply(cursor, delta, position)

    def position(self, generation: int) -> Position | None:
        """Return the position of the last delta."""
        with self._server.connection() as connection, connection.cursor() as cursor:
            return self._registry.position(cursor, generation)

    def _current(self, cursor: Any) -> int | None:  # noqa: ANN401
        made = self._registry.made(cursor)
        if made is None or made != self._stable.found(cursor):
            return None
        attached = self._stable.partition(cursor, made)
        held = self._registry.entries(cursor).items()
        return next((number for number, entry in held if entry.relation == attached), None)

    def _refuse_elsewhere(self, cursor: Any) -> None:  # noqa: ANN401
        """Raise when a view of this name is served by another table than the options say."""
        if (other := self._registry.elsewhere(cursor)) is not None:
            raise SinkError(
                f'view "{self._view}" is not in {self._stable.target}, but in {other}',
                hint=f"name that table in {self._view}.postgres.json, then drop the view",
            )

    def _check_stable(self, cursor: Any, forms: Sequence[Form] = ()) -> None:  # noqa: ANN401
        """Raise when the table that readers open is somebody else's, or does not fit."""
        found, made = self._stable.found(cursor), self._registry.made(cursor)
        if self._options.auto_create:
            if found is not None and found != made:
                raise foreign(self._stable.target)
        elif forms:
            wanted = [(form.target, self._final(cursor, form)) for form in forms]
            reason = self._stable.unfit(cursor, wanted)
            if reason is not None:
                raise SinkError(
                    f"{self._stable.target} does not fit: {reason}",
                    hint=self._stable.definition(wanted).as_string(cursor),
                )

    def _check_types(self, cursor: Any, forms: Sequence[Form]) -> None:  # noqa: ANN401
        """Have the server say whether it knows the types, and can cast to them and back."""
        for form in forms:
            if form.type == form.loaded:
                continue
            problem = "that is no name of a type"
            if _TYPE.fullmatch(form.type):
                try:
                    cursor.execute("SAVEPOINT types")
                    cursor.execute(f"SELECT NULL::{form.loaded}::{form.type}::{form.loaded}")
                    continue
                except psycopg2.Error as error:
                    cursor.execute("ROLLBACK TO SAVEPOINT types")
                    problem = str(error.diag.message_primary)
            raise SinkError(
                f'{self._view}.postgres.json: type "{form.type}" of column "{form.target}", in '
                f"place of {form.loaded}: {problem}"
            )

    def _final(self, cursor: Any, form: Form) -> str:  # noqa: ANN401
        """Return a column's type as the server writes it."""
        cursor.execute(
            f"SELECT format_type(c.oid, c.typmod) FROM (SELECT pg_typeof(NULL::{form.type}) oid, "
            "-1 typmod) c"
        )
        plain = str(cursor.fetchone()[0])
        return form.type if "(" in form.type else plain

    def _retype(self, cursor: Any, relation: str, forms: Sequence[Form]) -> None:  # noqa: ANN401
        """Bring columns to the types that the options ask for, where no value changes by it."""
        changes = []
        for form in forms:
            if form.type == form.loaded:
                continue
            value = first_changed(cursor, place(relation), form)
            if value is not None:
                raise SinkError(
                    f'column "{form.target}" holds {value!r}, which {form.type} does not hold '
                    "exactly",
                    hint=f"give it another type in {self._view}.postgres.json, or leave it out",
                )
            change = f"ALTER {{0}} TYPE {form.type} USING {{0}}::{form.type}"
            changes.append(sql.SQL(change).format(sql.Identifier(form.target)))
        if changes:
            statement = sql.SQL("ALTER TABLE {} {}")
            cursor.execute(statement.format(place(relation), sql.SQL(", ").join(changes)))

    def _make_key(self, cursor: Any, relation: str) -> None:  # noqa: ANN401
        names = sql.SQL(", ").join(map(sql.Identifier, self._stable.key))
        statement = sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})")
        cursor.execute(statement.format(place(relation), names))

    @staticmethod
    def _count(cursor: Any, relation: str) -> int:  # noqa: ANN401
        cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(place(relation)))
        return int(cursor.fetchone()[0])

    @staticmethod
    def _end_writers(connection: Connection, relation: str) -> None:
        """End connections of tasks that Spark has given up and that write still."""
        with connection.cursor() as cursor:
            cursor.execute(_END_WRITERS, [relation])

    @staticmethod
    def _wait(connection: Connection, sealed_at: datetime | None) -> None:
        """Raise BusyError while a transaction could find the generation empty."""
        with connection.cursor() as cursor:
            cursor.execute(_OLDER, [sealed_at])
            found = cursor.fetchone()
        if found is not None:
            raise BusyError(
                f"a transaction of {found[1]} (process {found[0]}, {found[2]}) began before the "
                "generation was written, and would find it empty"
            )

    def _move(self, connection: Connection, generation: int) -> None:
        def move(cursor: Any) -> None:  # noqa: ANN401
            self._registry.lock(cursor)
            entry = self._registry.sealed(cursor, generation)
            found = self._stable.found(cursor)
            if found is None:
                self._stable.make(cursor, entry.relation)
                self._stable.attach(cursor, entry.relation)
            elif self._current(cursor) != generation:
                attached = self._stable.partition(cursor, found)
                if not self._options.auto_create:
                    wanted = columns_of(cursor, place(entry.relation))
                    if reason := self._stable.unfit(cursor, wanted):
                        raise SinkError(f"{self._stable.target} does not fit: {reason}")
                self._stable.move(cursor, entry.relation, attached)
            self._registry.note_made(cursor, self._stable.found(cursor))

        self._briefly(connection, move)

    def _drop_stable(self, cursor: Any) -> None:  # noqa: ANN401
        found = self._stable.found(cursor)
        if found is not None and found == self._registry.made(cursor):
            attached = self._stable.partition(cursor, found)
            if attached is not None:
                statement = sql.SQL("ALTER TABLE {} DETACH PARTITION {}")
                cursor.execute(statement.format(self._stable.name, place(attached)))
            if self._options.auto_create:
                cursor.execute(sql.SQL("DROP TABLE {}").format(self._stable.name))
        self._registry.note_made(cursor, None)

    @staticmethod
    def _briefly(connection: Connection, act: Callable[[Any], None]) -> None:
        """Do something in one transaction that waits for no lock longer than a moment.

        Raises:
            BusyError: somebody holds a lock that it needs.
        """
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(_LOCK_TIMEOUT)
                act(cursor)
        except psycopg2.Error as error:
            if is_busy(error):
                raise BusyError("a transaction holds a lock on the view's table") from error
            raise
