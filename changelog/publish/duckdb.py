"""Runs a query on a DuckDB file, and writes its values as PostgreSQL writes them.

| DuckDB | PostgreSQL |
|---|---|
| BOOLEAN, VARCHAR, ENUM, JSON, UUID, BLOB | boolean, text, text, json, uuid, bytea |
| TINYINT to INTEGER, UTINYINT, USMALLINT | integer |
| BIGINT, UINTEGER | bigint |
| UBIGINT, HUGEINT, UHUGEINT | numeric |
| DECIMAL(p, s) | numeric(p, s) |
| FLOAT, DOUBLE | real, double precision |
| DATE, TIME, TIMESTAMP (to microseconds), TIMESTAMP WITH TIME ZONE | the same |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb

from changelog.contract.base.errors import ConfigurationError, SourceError
from changelog.contract.rows.types import ColumnType, column_type
from changelog.native import Texts
from changelog.publish.rows import BATCH_ROWS, bare
from changelog.runtime.closed_database import shut

_TYPES = {
    "BOOLEAN": ("bool", "boolean"),
    "TINYINT": ("int4", "integer"),
    "SMALLINT": ("int4", "integer"),
    "INTEGER": ("int4", "integer"),
    "UTINYINT": ("int4", "integer"),
    "USMALLINT": ("int4", "integer"),
    "BIGINT": ("int8", "bigint"),
    "UINTEGER": ("int8", "bigint"),
    "UBIGINT": ("numeric", "numeric"),
    "HUGEINT": ("numeric", "numeric"),
    "UHUGEINT": ("numeric", "numeric"),
    "FLOAT": ("float4", "real"),
    "DOUBLE": ("float8", "double precision"),
    "VARCHAR": ("text", "text"),
    "JSON": ("json", "json"),
    "UUID": ("uuid", "uuid"),
    "BLOB": ("bytea", "bytea"),
    "DATE": ("date", "date"),
    "TIME": ("time", "time without time zone"),
    "TIMESTAMP": ("timestamp", "timestamp without time zone"),
    "TIMESTAMP_S": ("timestamp", "timestamp without time zone"),
    "TIMESTAMP_MS": ("timestamp", "timestamp without time zone"),
    "TIMESTAMP WITH TIME ZONE": ("timestamptz", "timestamp with time zone"),
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TEXT = "CAST({} AS VARCHAR)"
_WRITTEN = {
    "bool": "CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END",
    "bytea": "'\\x' || lower(hex({}))",
    "date": "replace(CAST({} AS VARCHAR), ' (BC)', ' BC')",
    "timestamp": "replace(CAST(CAST({} AS TIMESTAMP) AS VARCHAR), ' (BC)', ' BC')",
    "float4": "CASE WHEN isinf({0}) THEN CASE WHEN {0} > 0 THEN 'Infinity' ELSE '-Infinity' END"
    " WHEN isnan({0}) THEN 'NaN' ELSE CAST({0} AS VARCHAR) END",
}
_WRITTEN["float8"], _WRITTEN["timestamptz"] = _WRITTEN["float4"], _WRITTEN["date"]
_ESCAPED = (
    "coalesce(replace(replace(replace(replace({}, '\\', '\\\\'), chr(9), '\\t'), chr(10), '\\n'),"
    " chr(13), '\\r'), '\\N')"
)


class DuckRows:
    """The rows of a query on a DuckDB file, which is opened read-only."""

    def __init__(self, file: Path, query: str) -> None:
        """Open the file.

        Raises ConfigurationError: the file does not exist or cannot be opened, or the query is not
        a single SELECT; SourceError: the query cannot be run.
        """
        if not file.is_file():
            raise ConfigurationError(f"there is no file {file}", hint="--from duckdb:FILE")
        self._query = bare(query)
        try:
            self._connection = duckdb.connect(str(file), read_only=True)
            self._connection.execute("SET TimeZone = 'UTC'")
            shut(self._connection)
        except duckdb.Error as error:
            raise ConfigurationError(f"cannot open {file}: {_message(error)}") from error
        try:
            self._check_single()
        except BaseException:
            self.close()
            raise

    def _check_single(self) -> None:
        """Refuse everything but a single SELECT: other statements write files or load extensions.

        Raises ConfigurationError: it is something else; SourceError: it cannot be parsed.
        """
        try:
            statements = self._connection.extract_statements(self._query)
        except duckdb.Error as error:
            raise SourceError(f"the query cannot be run: {_message(error)}") from error
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise ConfigurationError(
                "the query is not a single SELECT", hint="give one query that only reads"
            )

    def columns(self) -> list[tuple[str, ColumnType]]:
        """Return the names and types of the columns.

        Raises SourceError: the query cannot be run; ConfigurationError: a column has a type that
        records cannot have.
        """
        return [(name, kind) for name, _, kind in self._described()]

    def _described(self) -> list[tuple[str, str, ColumnType]]:
        try:
            rows = self._connection.execute(f"DESCRIBE (\n{self._query}\n)").fetchall()
        except duckdb.Error as error:
            raise SourceError(f"the query cannot be run: {_message(error)}") from error
        return [(row[0], *_type(row[0], row[1])) for row in rows]

    def lines(self) -> Iterator[Texts]:
        """Return the rows as lines of COPY's text, in batches.

        Raises SourceError: the query fails.
        """
        cells = ", ".join(
            _ESCAPED.format(_WRITTEN.get(base, _TEXT).format(_quoted(name)))
            for name, base, _ in self._described()
        )
        statement = f"SELECT concat_ws(chr(9), {cells}) AS line FROM (\n{self._query}\n) AS q"
        texts = Texts()
        try:
            for batch in self._connection.sql(statement).to_arrow_reader(BATCH_ROWS):
                texts.clear()
                for line in batch.column(0).to_pylist():
                    texts.add(line.encode())
                yield texts
        except duckdb.Error as error:
            raise SourceError(f"the query cannot be run: {_message(error)}") from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _type(name: str, text: str) -> tuple[str, ColumnType]:
    """Return the PostgreSQL type as which a column is written: its base name, and its type.

    Raises ConfigurationError: there is none.
    """
    if match := _DECIMAL.fullmatch(text):
        return "numeric", column_type("numeric", f"numeric({match[1]},{match[2]})")
    plain = "VARCHAR" if text.startswith("ENUM(") else text
    if plain not in _TYPES:
        raise ConfigurationError(
            f'the column "{name}" has the type {text}, which records cannot have',
            hint="cast it in the query, with to_json(…) or CAST(… AS VARCHAR)",
        )
    base, formatted = _TYPES[plain]
    return base, column_type(base, formatted)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _message(error: duckdb.Error) -> str:
    return " ".join(str(error).split())
