"""Serves a view as a table of PostgreSQL: one table per generation, and one that readers open.

A generation is a table in the schema `changelog_views`, loaded by tasks and sealed by a primary key
on the view's key, which proves that each row has a key of its own. The view's `mode` says how it is
published: it is exchanged for the served one (`exchange.py`), or its rows are copied into a
permanent table (`in_place.py`), in one transaction either way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import orjson
import psycopg2
from psycopg2 import errorcodes, sql

from changelog.contract.base.errors import SinkError
from changelog.contract.rows.relation import TableName
from changelog.postgres.connection import Connection
from views.base.address import Address
from views.project.spec import check_view_name
from views.sinks.base import Opened, not_sealed, opened, refuse_published
from views.sinks.kept import KeptConnection
from views.sinks.postgres.column_types import ColumnForm, first_changed, forms_of
from views.sinks.postgres.copy import CopyWriter, load, remove_others
from views.sinks.postgres.exchange import Exchange
from views.sinks.postgres.forward import PostgresForward, columns_sent, values_sent
from views.sinks.postgres.in_place import InPlace
from views.sinks.postgres.options import PostgresOptions, SwapMode
from views.sinks.postgres.readers import Readers, briefly, briefly_waiting
from views.sinks.postgres.registry import LOADED, OPEN, SCHEMA, SEALED, GenerationRegistry, place
from views.sinks.postgres.server import PostgresClient
from views.sinks.postgres.stable import Stable
from views.sinks.shape import check_shape
from views.sinks.unique import assert_unique

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from changelog.contract.base.position import Position

_TYPE = re.compile(r'[A-Za-z_"][\w". ]*(\(\s*\d+(\s*,\s*-?\d+)?\s*\))?[\w ]*(\[\])?')
_SORTS = """SELECT set_config('maintenance_work_mem', '256MB', true)
WHERE pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes('256MB')"""
"""Memory to sort keys in by parallel workers, each of which needs 32 MB of it."""
_KEY_FAULTS = {errorcodes.UNIQUE_VIOLATION, errorcodes.NOT_NULL_VIOLATION}
_END_WRITERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s
AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
"""
"""Ends the connections that write a generation."""


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
        self._registry = GenerationRegistry(view, target)
        self._target = target
        self._table_key = tuple(options.columns.get(name, name) for name in key)
        stable = Stable(target, self._table_key)
        self._readers: Readers = (
            Exchange(self._registry, stable, options.auto_create)
            if options.mode is SwapMode.EXCHANGE
            else InPlace(self._registry, stable, options.auto_create, options.mode)
        )
        self._opened: Opened | None = None
        self._attempts: dict[str, int] = {}

    def check(self, schema: StructType) -> None:
        """Refuse names that PostgreSQL cannot have, and options for missing columns."""
        check_shape(schema, self._key)
        forms_of(schema, self._options, self._view)

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation with a table that nobody reads."""
        self.check(schema)
        forms = forms_of(schema, self._options, self._view)
        with self._server.connection() as connection, connection, connection.cursor() as cursor:
            self._check_types(cursor, forms)
            self._registry.make(cursor)
            fits = forms if not self._options.auto_create else ()
            self._readers.check(cursor, [(form.target, self._final(cursor, form)) for form in fits])
            relation = self._registry.add(cursor, generation)
            columns = sql.SQL(", ").join(
                sql.SQL("{} {}{}").format(
                    sql.Identifier(form.target),
                    sql.SQL(form.loaded),
                    # So that no scan looks for nulls when the key is created.
                    sql.SQL(" NOT NULL" if form.name in self._key else ""),
                )
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
        writer = CopyWriter(self._server, relation, forms, self._options.batch_rows, self._key)
        self._attempts = load(rows, writer)
        current.written = sum(self._attempts.values())

    def seal(self) -> Address:
        """End writing, and mark the generation as complete."""
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
                    self._readers.prepare(cursor, relation)
            except psycopg2.Error as error:
                if error.pgcode in _KEY_FAULTS:
                    assert_unique(rows, self._key)
                raise
            with ThreadPoolExecutor(1, "postgres-count") as beside:
                counted = beside.submit(self._count, relation)
                with connection.cursor() as cursor:
                    cursor.execute(sql.SQL("ANALYZE {}").format(place(relation)))
            if (count := counted.result()) != current.written:
                raise SinkError(
                    f"{current.written} rows were written to {SCHEMA}.{relation}, it has {count}"
                )
            with connection.cursor() as cursor:
                self._registry.set_state(cursor, number, SEALED, count)
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
        if self._options.types:
            location["types"] = orjson.dumps(sorted(self._options.types)).decode()
        return Address("postgres", location)

    @property
    def target(self) -> TableName:
        """Return the table that readers open."""
        return self._target

    @property
    def kept(self) -> KeptConnection:
        """Return the connection that each thread keeps."""
        return self._server.kept

    @property
    def database(self) -> PostgresClient:
        """Return the server."""
        return self._server

    @property
    def locks_readers_out(self) -> bool:
        """Tell whether readers wait from `move` until the transaction ends."""
        return self._options.mode is SwapMode.EXCHANGE

    def prepare(self, generation: int) -> None:
        """Give a sealed generation the indexes of the table that readers open."""
        with self._server.connection() as connection, connection, connection.cursor() as cursor:
            entry = self._registry.sealed(cursor, generation)
            self._readers.check(cursor)
            if self._readers.current(cursor) != generation:
                self._readers.prepare(cursor, entry.relation)

    def move(self, connection: Connection, generation: int) -> None:
        """Publish a generation within the transaction of a connection."""
        with connection.cursor() as cursor, briefly_waiting(cursor):
            self._registry.lock(cursor)
            entry = self._registry.sealed(cursor, generation)
            self._readers.wait(cursor, entry)
            self._readers.move(cursor, entry, generation)

    def publish(self, generation: int) -> None:
        """Switch readers to a sealed generation, atomically."""
        self.prepare(generation)

        def once() -> None:
            with self._server.connection() as connection, connection:
                self.move(connection, generation)

        self._server.patiently(once)

    def discard(self, generation: int) -> None:
        """Remove a generation's table, then its entry, so that a killed removal can be resumed."""
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

            self._server.patiently(lambda: briefly(connection, remove))

    def drop(self) -> None:
        """Remove the table that readers open, then each generation.

        A table that the user created stays, without rows. If an object depends on the table, such
        as an SQL view, that is an error, and it is not removed.
        """
        with self._server.connection() as connection:
            with connection.cursor() as cursor:
                self._readers.check(cursor)
                if not self._registry.is_known(cursor):
                    self._refuse_elsewhere(cursor)
                    return
                self._registry.check_whose(cursor)
            self._server.patiently(lambda: briefly(connection, self._readers.drop))
        for generation in self.generations():
            self.discard(generation)
        with self._server.connection() as connection, connection.cursor() as cursor:
            self._registry.forget(cursor)

    def published(self) -> int | None:
        """Return the generation that readers see.

        Raises SinkError: the table that readers open was created by others.
        """
        with self._server.connection() as connection, connection.cursor() as cursor:
            self._readers.check(cursor)
            return self._readers.current(cursor)

    def generations(self) -> list[int]:
        """List the generations of the registry."""
        with self._server.connection() as connection, connection.cursor() as cursor:
            return sorted(self._registry.entries(cursor))

    def holds_back(self, generation: int) -> str | None:  # noqa: ARG002 - of all sinks
        """Return the reason why rows cannot be replaced, or None."""
        return self._readers.holds_back()

    def delta_columns(self, schema: StructType) -> Sequence[Column]:
        """Return a row's columns as they are sent."""
        return columns_sent(forms_of(schema, self._options, self._view))

    def delta_values(self, schema: StructType, delta: pa.Table) -> Mapping[str, pa.Array]:
        """Return a row's columns as they are sent."""
        return values_sent(forms_of(schema, self._options, self._view), delta)

    def apply(
        self, generation: int, schema: StructType, delta: pa.Table, position: Position
    ) -> int:
        """Apply a delta to a sealed generation in one transaction."""
        forms = forms_of(schema, self._options, self._view)
        with self._server.connection() as connection, connection, connection.cursor() as cursor:
            forward = PostgresForward(
                self._registry,
                generation,
                forms,
                self._table_key,
                self._options.batch_rows,
                also=self._readers.also(cursor, generation),
            )
            return forward.apply(cursor, delta, position)

    def position(self, generation: int) -> Position | None:
        """Return the position of the last delta."""
        with self._server.connection() as connection, connection.cursor() as cursor:
            return self._registry.position(cursor, generation)

    def _refuse_elsewhere(self, cursor: Any) -> None:  # noqa: ANN401
        """Refuse options whose table is not the one that serves a view of this name."""
        if (other := self._registry.elsewhere(cursor)) is not None:
            raise SinkError(
                f'view "{self._view}" is not in {self._target}, but in {other}',
                hint=f"name that table in {self._view}.postgres.json, then drop the view",
            )

    def _check_types(self, cursor: Any, forms: Sequence[ColumnForm]) -> None:  # noqa: ANN401
        """Check that the server knows the types, and can cast to them and back."""
        for form in forms:
            if form.type == form.loaded:
                continue
            problem = "it is not the name of a type"
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

    def _final(self, cursor: Any, form: ColumnForm) -> str:  # noqa: ANN401
        """Return a column's final type in the server's notation."""
        cursor.execute(
            f"SELECT format_type(c.oid, c.typmod) FROM (SELECT pg_typeof(NULL::{form.type}) oid, "
            "-1 typmod) c"
        )
        plain = str(cursor.fetchone()[0])
        return form.type if "(" in form.type else plain

    def _retype(self, cursor: Any, relation: str, forms: Sequence[ColumnForm]) -> None:  # noqa: ANN401
        """Change columns to the types of the options, if no value changes by it.

        Raises SinkError: a value would change.
        """
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
        names = sql.SQL(", ").join(map(sql.Identifier, self._table_key))
        statement = sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})")
        cursor.execute(_SORTS)
        cursor.execute(statement.format(place(relation), names))

    def _count(self, relation: str) -> int:
        with self._server.connection() as connection, connection.cursor() as cursor:
            cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(place(relation)))
            row = cursor.fetchone()
        return int(row[0]) if row is not None else 0

    @staticmethod
    def _end_writers(connection: Connection, relation: str) -> None:
        """End connections of tasks that Spark has given up but that still write."""
        with connection.cursor() as cursor:
            cursor.execute(_END_WRITERS, [relation])
