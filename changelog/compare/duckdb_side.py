"""A relation that DuckDB reads as a side of a comparison: files of Parquet, a database file.

DuckDB computes the digests as PostgreSQL does. It works in a scratch folder, with little memory,
and reaches nothing but the folder of the copy.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from changelog.compare.duckdb_texts import (
    JSON_FUNCTION,
    expression,
    member,
    native_of,
    quoted,
    row,
)
from changelog.compare.forms import Form, Kind, Native
from changelog.compare.plan import Column, Plan
from changelog.compare.side import SUM_BITS, Digest, Key, Row
from changelog.compare.texts import jsonb_text, row_text
from changelog.contract.base.errors import ConfigurationError, SinkError

if TYPE_CHECKING:
    import duckdb

MEMORY_LIMIT = "96MiB"
_PROBED = 1_000
_GLOB = frozenset("*?[{")
_TRIES = 3
_PAUSE_S = 0.3
_SETTINGS = {
    "preserve_insertion_order": "false",
    "memory_limit": MEMORY_LIMIT,
}


class DuckdbSide:
    """A relation of DuckDB's; `place` says where it is, `relation` is its SQL."""

    def __init__(self, place: str, folder: Path) -> None:
        """Open a database in memory that reaches a folder, and a scratch folder."""
        from changelog.runtime.closed_database import (  # noqa: PLC0415 - an extra
            closed_database,
        )

        self.place = place
        self.relation = ""
        self._folder = tempfile.TemporaryDirectory(prefix="changelog-verify-")
        self.database: duckdb.DuckDBPyConnection = closed_database(
            {**_SETTINGS, "temp_directory": self._folder.name}, [folder]
        )
        self.database.execute("SET TimeZone = 'UTC'")
        self.database.create_function(
            JSON_FUNCTION,
            jsonb_text,
            ["VARCHAR"],
            "VARCHAR",
        )

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold open what is read; overridden where that keeps others out."""
        yield

    def columns(self) -> Mapping[str, Native]:
        """Return the columns of the relation."""
        rows = self._fetched(f"DESCRIBE SELECT * FROM {self.relation}")
        return {name: native_of(kind) for name, kind, *_ in rows}

    def bind(self, plan: Plan) -> None:
        """Take the plan of the comparison."""
        self._plan = plan
        self._members = [self._member(column, f"c{n}") for n, column in enumerate(plan.columns)]
        self._canonical = ", ".join(
            f"{self._expression(column)} AS c{n}" for n, column in enumerate(plan.columns)
        )
        key = [f"c{n}" for n in range(len(plan.key))]
        self._key = ", ".join(key)
        self._key_row = row(self._members[: len(key)])
        self._digest = f"CAST('0x' || md5({row(self._members)})[1:16] AS UBIGINT)"

    def _expression(self, column: Column) -> str:
        """Return the SQL of a column's canonical text.

        JSON that stands there as PostgreSQL writes it, by the first rows, is not written again:
        that takes most of the time. Other texts then differ, and are compared by value.
        """
        name = quoted(column.target)
        if column.form == Form(Kind.JSON) and column.target_native.name in {"VARCHAR", "JSON"}:
            first = self._fetched(
                f"SELECT CAST({name} AS VARCHAR) FROM {self.relation}"
                f" WHERE {name} IS NOT NULL LIMIT {_PROBED}"
            )
            if all(jsonb_text(text) == text for (text,) in first):
                return f"CAST({name} AS VARCHAR)"
        return expression(column.form, column.target_native, name)

    @staticmethod
    def _member(column: Column, text: str) -> str:
        return member(column.form, column.target_native, text)

    def _bucket(self) -> str:
        """Return the SQL of a row's bucket."""
        count = self._plan.buckets.count
        if not self._plan.buckets.by_value:
            return f"((CAST('0x' || md5({self._key_row})[1:8] AS UBIGINT) >> 1) % {count})::BIGINT"
        mixed = "0"
        for number in range(len(self._plan.key)):
            whole = f"coalesce(CAST(c{number} AS BIGINT), 0)"
            mixed = f"(({mixed} * 31 + {whole} % {count}) % {count})"
        return mixed

    def _of_texts(self) -> str:
        """Return the SQL of the rows as canonical texts, of the sample alone."""
        buckets = self._plan.buckets
        rows = f"SELECT {self._canonical} FROM {self.relation}"
        if not buckets.taken:
            return rows
        # A remainder has the sign of its number in SQL.
        place = f"({self._bucket()} * {buckets.stride} - {buckets.first}) % {buckets.count}"
        is_taken = f"({place} + {buckets.count}) % {buckets.count} < {buckets.taken}"
        return f"SELECT * FROM ({rows}) WHERE {is_taken}"

    def digests(self) -> dict[int, Digest]:
        """Return the digest of each bucket that has rows."""
        statement = (
            f"SELECT {self._bucket()} AS bucket, count(*), sum({self._digest})"
            f" FROM ({self._of_texts()}) GROUP BY 1"
        )
        rows = self._fetched(statement)
        return {bucket: Digest(count, int(total) % SUM_BITS) for bucket, count, total in rows}

    def rows(self, buckets: Sequence[int]) -> Iterator[tuple[Key, int]]:
        """Return keys and digests of the rows of some buckets."""
        statement = (
            f"SELECT {self._digest}, {self._key}"
            f" FROM (SELECT {self._canonical} FROM {self.relation})"
            f" WHERE {self._bucket()} IN (SELECT unnest($1::BIGINT[]))"
        )
        for digest, *texts in self._fetched(statement, [list(buckets)]):
            yield tuple(texts), digest

    def look(self, keys: Sequence[Key]) -> list[Row]:
        """Return the rows of some keys as they are now."""
        width = len(self._plan.key)
        listed = ", ".join(f"c{n}" for n in range(len(self._plan.columns)))
        statement = (
            f"SELECT {listed} FROM (SELECT {self._canonical} FROM {self.relation})"
            f" WHERE {self._key_row} IN (SELECT unnest($1::VARCHAR[]))"
        )
        texts = self._fetched(statement, [[row_text(key) for key in keys]])
        return [Row(tuple(row[:width]), tuple(row[width:])) for row in texts]

    def _fetched(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; files that are exchanged meanwhile are read again."""
        import duckdb  # noqa: PLC0415 - an extra

        for tries in range(_TRIES):
            try:
                with self.opened():
                    return self.database.execute(statement, list(values)).fetchall()
            except duckdb.IOException as error:
                if tries == _TRIES - 1:
                    raise SinkError(f"{self.place} cannot be read: {_message(error)}") from error
                time.sleep(_PAUSE_S)
            except duckdb.Error as error:
                raise SinkError(f"{self.place} cannot be read: {_message(error)}") from error
        return []

    def close(self) -> None:
        """Close the database and remove the scratch folder."""
        self.database.close()
        self._folder.cleanup()


class ParquetSide(DuckdbSide):
    """Files of Parquet, named by a path or a pattern."""

    def __init__(self, pattern: str) -> None:
        """Look for the files.

        Raises ConfigurationError: there is none, or one is no Parquet.
        """
        path = os.path.abspath(pattern)  # noqa: PTH100 - Path has no way to drop `..` of a pattern
        fixed = Path(*takewhile(_GLOB.isdisjoint, Path(path).parts))
        super().__init__(f"parquet:{pattern}", fixed if fixed.is_dir() else fixed.parent)
        path += "/" * pattern.endswith("/")
        self.relation = f"read_parquet({_literal(path)}, union_by_name = true)"
        _check(self, "look at the path; a pattern stands in quotes: 'parquet:/data/*.parquet'")


class DuckdbFileSide(DuckdbSide):
    """A table or view of a DuckDB file, which is open only while it is read."""

    def __init__(self, file: str, table: str) -> None:
        """Look for the table.

        Raises ConfigurationError: there is no file, or no table of this name.
        """
        path = Path(file).absolute()
        super().__init__(f"duckdb:{file}/{table}", path.parent)
        self._file = str(path)
        parts = ".".join(quoted(part) for part in table.split("."))
        self.relation = f"copy.{parts}" if "." in table else f"copy.main.{parts}"
        _check(self, "duckdb:FILE/TABLE, or FILE/SCHEMA.TABLE")

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Attach the file, to read it only."""
        self.database.execute(f"ATTACH {_literal(self._file)} AS copy (READ_ONLY)")
        try:
            yield
        finally:
            self.database.execute("DETACH copy")


def _check(side: DuckdbSide, hint: str) -> None:
    try:
        side.columns()
    except SinkError as error:
        side.close()
        raise ConfigurationError(str(error.args[0]), hint=hint) from error
    except BaseException:
        side.close()
        raise


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _message(error: Exception) -> str:
    return " ".join(str(error).split("\n\n")[0].split())
