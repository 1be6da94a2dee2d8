"""A query at PostgreSQL: COPY … TO STDOUT, which keeps nothing of it in memory."""

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
_WHAT = "the query cannot be run"


class PostgresRows:
    """The rows of one query, in a transaction that only reads and that it cannot end."""

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
        """Return names and types of the columns.

        Raises:
            SourceError: the query cannot be run; UnavailableSourceError while the server is away.
        """
        with source_errors(self._connection, _WHAT), self._connection.cursor() as cursor:
            # By itself, so that none of it stands behind the brackets that are put around it.
            check_single(self._connection, self._query)
            cursor.execute(f"SELECT * FROM (\n{self._query}\n) AS q LIMIT 0".encode())
            described = cursor.description or ()
        refs = [(column.type_code, _typmod(column)) for column in described]
        kinds = TypeResolver(self._connection).resolve(refs)
        return list(zip([column.name for column in described], kinds, strict=True))

    def lines(self) -> Iterator[Texts]:
        """Return the rows as lines of COPY's text, some at a time.

        Raises SourceError: the query fails; UnavailableSourceError when the server goes away.
        """
        statement = f"COPY (\n{self._query}\n) TO STDOUT"
        try:
            yield from copy_lines(
                self._connection, statement, most_rows=BATCH_ROWS, most_bytes=BATCH_BYTES
            )
        except psycopg2.Error as error:
            raise source_error(error, _WHAT, lost=bool(self._connection.closed)) from error

    def close(self) -> None:
        """End the query and its connection."""
        self._connection.close()


def _typmod(column: psycopg2.extensions.Column) -> int:
    """Return the modifier of a numeric's type, which the driver tells as its digits."""
    precision, scale = column.precision, column.scale
    if column.type_code != _NUMERIC or precision is None or scale is None:
        return _NO_TYPMOD
    if not 0 < precision <= _MOST_PRECISION:
        return _NO_TYPMOD
    return int(precision << 16 | scale) + _HEADER_BYTES
