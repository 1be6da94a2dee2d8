"""Runs a query in PostgreSQL by COPY … TO STDOUT, which holds no result in memory."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2

from changelog.contract.rows.types import ColumnType
from changelog.native import Texts
from changelog.native.libpq import check_single, copy_lines
from changelog.publish.rows import BATCH_BYTES, BATCH_ROWS, bare
from changelog.source.connect.connect import connect, source_error, source_errors
from changelog.source.tables.pgtypes import TypeResolver

_NUMERIC = 1700
_NO_TYPMOD = -1
_HEADER_BYTES = 4
_MOST_PRECISION = 1000
_FAILURE = "the query cannot be run"


class PostgresRows:
    """The rows of a query in PostgreSQL, in a read-only transaction that the query cannot end."""

    def __init__(self, dsn: str, query: str) -> None:
        """Connect.

        Raises UnavailableSourceError: no server answers; ConfigurationError: the address cannot be
        used, or the server refuses it.
        """
        self._query = bare(query)
        self._connection = connect(dsn, application_name="changelog publish")
        with source_errors(self._connection, "cannot read"), self._connection.cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")

    def columns(self) -> list[tuple[str, ColumnType]]:
        """Return the names and types of the columns.

        Raises SourceError: the query cannot be run; UnavailableSourceError: the server does not
        answer.
        """
        with source_errors(self._connection, _FAILURE), self._connection.cursor() as cursor:
            # Checked alone first: within the brackets below a second statement could hide.
            check_single(self._connection, self._query)
            cursor.execute(f"SELECT * FROM (\n{self._query}\n) AS q LIMIT 0".encode())
            described = cursor.description or ()
        refs = [(column.type_code, _typmod(column)) for column in described]
        kinds = TypeResolver(self._connection).resolve(refs)
        return list(zip([column.name for column in described], kinds, strict=True))

    def lines(self) -> Iterator[Texts]:
        """Return the rows as lines of COPY's text, in batches.

        Raises SourceError: the query fails; UnavailableSourceError: the server no longer answers.
        """
        statement = f"COPY (\n{self._query}\n) TO STDOUT"
        try:
            yield from copy_lines(
                self._connection, statement, most_rows=BATCH_ROWS, most_bytes=BATCH_BYTES
            )
        except psycopg2.Error as error:
            raise source_error(error, _FAILURE, lost=bool(self._connection.closed)) from error

    def close(self) -> None:
        """Close the connection, which ends the query."""
        self._connection.close()


def _typmod(column: psycopg2.extensions.Column) -> int:
    """Return the type modifier of a numeric, from the precision and scale that psycopg2 reports."""
    precision, scale = column.precision, column.scale
    if column.type_code != _NUMERIC or precision is None or scale is None:
        return _NO_TYPMOD
    if not 0 < precision <= _MOST_PRECISION:
        return _NO_TYPMOD
    return int(precision << 16 | scale) + _HEADER_BYTES
