"""Parquet files or a table of a DuckDB file, read by DuckDB as a side of a comparison.

DuckDB computes the digests as PostgreSQL does. It uses a scratch folder and little memory, and can
reach no files outside the folder of the copy.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from glob import iglob
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from changelog.compare.duckdb_texts import (
    JSON_FUNCTION,
    expression,
    literal,
    member,
    native_of,
    quoted,
    row,
    scale_of,
    sent,
)
from changelog.compare.forms import CompareForm, Native, TypeFamily, is_sent
from changelog.compare.plan import ComparedColumn, ComparePlan
from changelog.compare.side import SENT_PROBE, SUM_BITS, Digest, Key, SideRow
from changelog.compare.texts import jsonb_text, row_text
from changelog.contract.base.errors import ConfigurationError, SinkError, VerdictError
from changelog.runtime.process.scratch import ScratchFolder
from changelog.runtime.process.signals import interrupts_held

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from changelog.native.sent_rows import SentRows

T = TypeVar("T")
MEMORY_LIMIT_MIB = 96
_MEMORY_FACTOR = 4
"""How much more memory a read gets that had too little: DuckDB takes 2,048 rows at once, however
long their values are."""
_PROBED = 1_000
_AT_ONCE = 2_048
_LAYOUTS = {
    TypeFamily.INTEGER: "INT64",
    TypeFamily.NUMERIC: "NUMERIC",
    TypeFamily.REAL: "FLOAT4",
    TypeFamily.DOUBLE: "FLOAT8",
    TypeFamily.TEXT: "TEXT",
    TypeFamily.BOOLEAN: "BOOL",
    TypeFamily.BYTES: "BYTEA",
    TypeFamily.DATE: "DATE",
    TypeFamily.TIMESTAMP: "TIMESTAMP",
}
"""The layout in which values of a family are hashed."""
_GLOB = frozenset("*?[{")
_PAUSES_S = (0.3, 0.6, 1.2, 2.4)
"""Waits after failed attempts to read a copy whose file is locked or being overwritten."""
_RECENT_S = 10.0
"""A file that was written so recently may still be incomplete."""
_RENAMED = re.compile(r"(.+)_[0-9]+", re.DOTALL)
_INTERRUPTED = "Query interrupted"
"""The message with which DuckDB ends a statement of the main thread at Ctrl-C."""
_LOCKED = "Could not set lock on file"
_LOCKED_BY = re.compile(r"Conflicting lock is held in (.+?) \(PID (\d+)\)")
_SETTINGS = {
    "preserve_insertion_order": "false",
    "memory_limit": f"{MEMORY_LIMIT_MIB}MiB",
}
Files = dict[str, tuple[int, int, int]]
"""The inode, size and time of change of each file by its path: other ones after each write."""


class LockedCopyError(SinkError):
    """Another process has a DuckDB file open for writing, so that nobody else can read it."""


class SentSql(NamedTuple):
    """The hashing of rows as PostgreSQL sends them, and the SQL of the columns that it takes."""

    rows: SentRows
    columns: str


class DuckdbSide(ABC):
    """A relation that DuckDB reads: `place` is its address for messages, `relation` its SQL."""

    def __init__(self, place: str, folder: Path | None) -> None:
        """Open a database in memory that can reach `folder`, or only its own scratch folder."""
        self.place = place
        self.relation = ""
        self._was_read = False
        self._is_interrupted = False
        self._memory_mib = MEMORY_LIMIT_MIB
        self._folder = ScratchFolder("verify")
        with interrupts_held():  # an import that Ctrl-C ends counts as a module that is missing
            self.database = self._opened(folder or Path(self._folder.name))

    def _opened(self, folder: Path) -> duckdb.DuckDBPyConnection:
        """Open the database; it reads files of a folder."""
        from changelog.runtime.closed_database import (  # noqa: PLC0415 - an extra
            closed_database,
        )

        database = closed_database({**_SETTINGS, "temp_directory": self._folder.name}, [folder])
        database.execute("SET TimeZone = 'UTC'")
        database.create_function(JSON_FUNCTION, jsonb_text, ["VARCHAR"], "VARCHAR")
        return database

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the relation for one statement; overridden where an open file locks others out."""
        yield

    def files(self) -> Files:
        """Return the state of the files of the relation."""
        states = {}
        for path in self._paths():
            with suppress(OSError):  # it was removed just now
                stat = os.stat(path)  # noqa: PTH116 - the pattern gives texts
                states[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return states

    @abstractmethod
    def _paths(self) -> Iterable[str]:
        """Return the paths of the relation's files."""

    def columns(self) -> Mapping[str, Native]:
        """Return the columns of the relation."""
        rows = self._fetched(f"DESCRIBE SELECT * FROM {self.relation}")
        return {name: native_of(kind) for name, kind, *_ in rows}

    def sent_probe(self) -> int | None:
        """Return the probe of sides that hash rows as most servers do; None if C is missing."""
        from changelog.native.choice import (  # noqa: PLC0415 - opens the library
            IS_COMPILED,
        )

        return SENT_PROBE if IS_COMPILED else None

    def bind(self, plan: ComparePlan) -> None:
        """Take the plan of the comparison."""
        self._plan = plan
        texts = [self._expression(column) for column in plan.columns]
        names = [f"c{n}" for n in range(len(texts))]
        self._members = [*map(self._member, plan.columns, names)]
        self._canonical = ", ".join(
            f"{text} AS {name}" for text, name in zip(texts, names, strict=True)
        )
        self._key_aliases, self._key_texts = names[: len(plan.key)], texts[: len(plan.key)]
        self._key = ", ".join(self._key_aliases)
        self._key_row = self._row_of(self._key_aliases)
        self._digest = f"CAST('0x' || substr(md5({row(self._members)}), 1, 16) AS UBIGINT)"
        self._sent = self._bind_sent(texts) if plan.hashes else None

    def _bind_sent(self, texts: Sequence[str]) -> SentSql:
        """Return the SQL of the values that are hashed, with the canonical texts of the columns."""
        from changelog.native.sent_rows import (  # noqa: PLC0415 - there may be no library
            SentColumn,
            SentLayout,
            SentRows,
        )

        columns, values = [], []
        for column, text in zip(self._plan.columns, texts, strict=True):
            native, family = column.target_native, column.form.kind
            if is_sent(column.form, column.native, native):
                columns.append(SentColumn(SentLayout[_LAYOUTS[family]], scale_of(native)))
                values.append(sent(family, native, self._column(column.target)))
            else:
                columns.append(SentColumn(SentLayout.TEXT))
                values.append(text)
        return SentSql(
            SentRows(columns), ", ".join(f"{sql} AS s{n}" for n, sql in enumerate(values))
        )

    def _expression(self, column: ComparedColumn) -> str:
        """Return the SQL of a column's canonical text.

        Rewriting JSON takes most of the time, so it is left as it is where the first rows have it
        as PostgreSQL writes it. Rows that have it otherwise then differ, and are compared by value.
        """
        name = self._column(column.target)
        if column.form == CompareForm(TypeFamily.JSON) and column.target_native.name in {
            "VARCHAR",
            "JSON",
        }:
            first = self._fetched(
                f"SELECT CAST({name} AS VARCHAR) FROM {self.relation}"
                f" WHERE {name} IS NOT NULL LIMIT {_PROBED}"
            )
            if all(jsonb_text(text) == text for (text,) in first):
                return f"CAST({name} AS VARCHAR)"
        return expression(column.form, column.target_native, name)

    def _column(self, name: str) -> str:
        """Return the SQL of a column."""
        return quoted(name)

    @staticmethod
    def _member(column: ComparedColumn, text: str) -> str:
        return member(column.form, column.target_native, text)

    def _row_of(self, key: Sequence[str]) -> str:
        """Return the SQL of a key's text, from the SQL of the canonical texts of its columns."""
        return row([*map(self._member, self._plan.columns, key)])

    def _bucket(self, key: Sequence[str]) -> str:
        """Return the SQL of a row's bucket, from the SQL of the canonical texts of its key."""
        count = self._plan.buckets.count
        if not self._plan.buckets.by_value:
            return (
                f"((CAST('0x' || substr(md5({self._row_of(key)}), 1, 8) AS UBIGINT) >> 1)"
                f" % {count})::BIGINT"
            )
        mixed = "0"
        for column in self._plan.key:
            whole = f"coalesce(CAST({self._column(column.target)} AS BIGINT), 0)"
            mixed = f"(({mixed} * 31 + {whole} % {count}) % {count})"
        return mixed

    def _of_rows(self, columns: str) -> str:
        """Return the SQL of the sampled rows: their buckets, and columns."""
        buckets = self._plan.buckets
        rows = f"SELECT {self._bucket(self._key_texts)} AS bucket, {columns} FROM {self.relation}"
        if not buckets.sampled:
            return rows
        # In SQL a remainder has the sign of the dividend.
        place = f"(bucket * {buckets.stride} - {buckets.first}) % {buckets.count}"
        is_sampled = f"({place} + {buckets.count}) % {buckets.count} < {buckets.sampled}"
        return f"SELECT * FROM ({rows}) WHERE {is_sampled}"

    def _rows_with(self, condition: str) -> str:
        """Return the SQL of the rows that meet a condition on their key, as canonical texts.

        The condition is on `_key_texts`: the other columns, whose texts cost most of a comparison,
        are written of these rows alone.
        """
        return f"SELECT {self._canonical} FROM {self.relation} WHERE {condition}"

    def digests(self) -> dict[int, Digest]:
        """Return the digest of each bucket that has rows."""
        if self._sent is not None:
            return self._tried(partial(self._sent_digests, self._sent))
        statement = (
            f"SELECT bucket, count(*), sum({self._digest})"
            f" FROM ({self._of_rows(self._canonical)}) GROUP BY 1"
        )
        rows = self._fetched(statement)
        return {bucket: Digest(count, int(total) % SUM_BITS) for bucket, count, total in rows}

    def _sent_digests(self, sent_sql: SentSql) -> dict[int, Digest]:
        from changelog.native.sent_rows import (  # noqa: PLC0415 - there may be no library
            BucketSums,
        )

        sums = BucketSums(self._plan.buckets.count)
        for batch in self._arrow_batches(self._of_rows(sent_sql.columns)):
            bucket, *values = batch.columns
            sums.add(bucket, sent_sql.rows.hashes(values))
        return {bucket: Digest(rows, total) for bucket, rows, total in sums.items()}

    def rows(self, buckets: Sequence[int]) -> Iterator[tuple[Key, int]]:
        """Return keys and digests of the rows of some buckets."""
        is_asked = f"{self._bucket(self._key_texts)} IN (SELECT unnest($1::BIGINT[]))"
        values = [list(buckets)]
        if self._sent is not None:
            yield from self._tried(partial(self._sent_rows, self._sent, is_asked, values))
            return
        statement = f"SELECT {self._digest}, {self._key} FROM ({self._rows_with(is_asked)})"
        for digest, *texts in self._fetched(statement, values):
            yield tuple(texts), digest

    def _sent_rows(
        self, sent_sql: SentSql, condition: str, values: Sequence[Any]
    ) -> list[tuple[Key, int]]:
        key = ", ".join(self._key_texts)
        statement = f"SELECT {key}, {sent_sql.columns} FROM {self.relation} WHERE {condition}"
        width = len(self._key_texts)
        rows: list[tuple[Key, int]] = []
        for batch in self._arrow_batches(statement, values):
            hashes = sent_sql.rows.hashes(batch.columns[width:])
            keys = zip(*(column.to_pylist() for column in batch.columns[:width]), strict=True)
            rows += zip(keys, hashes, strict=True)
        return rows

    def _arrow_batches(
        self, statement: str, values: Sequence[Any] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as they are read; errors of reading are DuckDB's."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        reader = self.database.sql(statement, params=list(values)).to_arrow_reader(_AT_ONCE)
        try:
            yield from reader
        except (pa.ArrowException, OSError) as error:
            raise _error_of_duckdb(str(error)) from error

    def look(self, keys: Sequence[Key]) -> list[SideRow]:
        """Return the rows of some keys as they are now."""
        width = len(self._plan.key)
        listed = ", ".join(f"c{n}" for n in range(len(self._plan.columns)))
        is_asked = f"{self._row_of(self._key_texts)} IN (SELECT unnest($1::VARCHAR[]))"
        condition = " AND ".join([*self._between(keys), is_asked])
        statement = f"SELECT {listed} FROM ({self._rows_with(condition)})"
        texts = self._fetched(statement, [[row_text(key) for key in keys]])
        return [SideRow(tuple(row[:width]), tuple(row[width:])) for row in texts]

    def _between(self, keys: Sequence[Key]) -> Iterator[str]:
        """Yield a range of the first key column, by which DuckDB skips parts of a file."""
        if not self._plan.buckets.by_value:
            return
        numbers = [int(first) for first, *_ in keys if first is not None]
        if numbers and len(numbers) == len(keys):
            column = self._column(self._plan.key[0].target)
            yield f"{column} BETWEEN {min(numbers)} AND {max(numbers)}"

    def _fetched(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, tried again while the copy's files are being changed."""
        return self._tried(lambda: self.database.execute(statement, list(values)).fetchall())

    def _tried(self, read: Callable[[], T]) -> T:
        """Read the relation, again while the copy's files are being changed."""
        import duckdb  # noqa: PLC0415 - an extra

        tries = 0
        while True:
            if self._is_interrupted:
                raise SinkError(f"{self.place}: the comparison was interrupted")
            files = self.files()
            try:
                with self.opened():
                    result = read()
            except RuntimeError as error:
                if str(error) == _INTERRUPTED:
                    raise KeyboardInterrupt from error
                raise
            except duckdb.OutOfMemoryException as error:
                self._take_memory(error)
            except duckdb.Error as error:
                failure = self._failure(error)
                # A file that is locked at the first read most likely stays locked; one that was
                # read before is opened by its writer only now and then.
                if isinstance(failure, LockedCopyError) and not self._was_read:
                    raise failure from error
                time.sleep(_PAUSES_S[tries])
                tries += 1
                is_changing = self.files() != files
                if is_changing and tries == len(_PAUSES_S):
                    raise self._overwritten(tries) from error
                if tries == len(_PAUSES_S) or not (is_changing or self._may_pass(failure, error)):
                    raise failure from error
            else:
                self._was_read = True
                return result

    def _take_memory(self, cause: duckdb.Error) -> None:
        """Raise the limit of memory, for one thread.

        Raises SinkError: it would be more than half of the machine's.
        """
        more = self._memory_mib * _MEMORY_FACTOR
        if more > machine_mib() / 2:
            raise SinkError(
                f"{self.place} cannot be read in {self._memory_mib:,} MiB of memory: {_AT_ONCE:,} "
                "rows are read at once, and their values are too long",
                hint="compare without the longest column: name the others by --columns",
            ) from cause
        self._memory_mib = more
        self.database.execute("SET threads = 1")
        self.database.execute(f"SET memory_limit = '{more}MiB'")

    def _overwritten(self, tries: int) -> VerdictError:
        return VerdictError(
            f"{self.place} was overwritten while it was read, {tries} times in a row, so it could "
            "not be compared",
            hint="write each file under another name and rename it when it is complete, or "
            "compare when nothing is being written",
        )

    def _may_pass(self, failure: SinkError, cause: duckdb.Error) -> bool:
        """Return whether a read that failed may succeed later, although no file has changed yet."""
        import duckdb  # noqa: PLC0415 - an extra

        if isinstance(failure, LockedCopyError):
            return True
        files = self.files()
        if not files:
            return self._was_read  # its writer may just have removed it
        # The errors of half-written files; DuckDB has no type of its own for most of them.
        if type(cause) not in {duckdb.Error, duckdb.IOException, duckdb.InvalidInputException}:
            return False
        return time.time() - max(changed_ns for *_, changed_ns in files.values()) / 1e9 < _RECENT_S

    def _failure(self, error: duckdb.Error) -> SinkError:
        if _LOCKED not in str(error):
            return SinkError(f"{self.place} cannot be read: {_message(error)}")
        holder = _LOCKED_BY.search(str(error))
        program = f"process {holder[2]} ({holder[1]})" if holder else "another process"
        return LockedCopyError(
            f"{self.place} cannot be read: {program} has the file open for writing",
            hint="close its connection to the file, or compare a copy of the file; DuckDB allows "
            "either one process that writes or several that only read",
        )

    def writer(self, key: Key) -> str:  # noqa: ARG002 - of any key
        """Return an empty text: files and documents do not tell who wrote a row."""
        return ""

    def identity(self) -> Mapping[str, str]:
        """Return no facts: the address says all."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Return facts about what was read."""
        return ()

    def interrupt(self) -> None:
        """End the work of another thread with an error: its statement, and any later one."""
        self._is_interrupted = True
        self.database.interrupt()

    def close(self) -> None:
        """Close the database and remove the scratch folder."""
        self.database.close()
        self._folder.cleanup()


class ParquetSide(DuckdbSide):
    """Files of Parquet, named by a path or a pattern."""

    def __init__(self, pattern: str) -> None:
        """Check that the files can be read.

        Raises ConfigurationError: it is a folder, there are no files, or one is not Parquet;
        VerdictError: one is being overwritten.
        """
        if Path(pattern).is_dir():
            raise ConfigurationError(
                f"{pattern} is a folder",
                hint="name its files: 'parquet:FOLDER/*.parquet', or 'parquet:FOLDER/**/*.parquet' "
                "if it has folders by the value of a column",
            )
        path = os.path.abspath(pattern)  # noqa: PTH100 - Path has no way to drop `..` of a pattern
        fixed = Path(*takewhile(_GLOB.isdisjoint, Path(path).parts))
        super().__init__(f"parquet:{pattern}", fixed if fixed.is_dir() else fixed.parent)
        path += "/" * pattern.endswith("/")
        self._pattern = path
        self.relation = f"read_parquet({literal(path)}, union_by_name = true)"
        check_columns(
            self,
            "check the path, and that each file is complete; a pattern has to be quoted: "
            "'parquet:/data/*.parquet'",
        )

    def columns(self) -> Mapping[str, Native]:
        """Return the columns of the files.

        Raises ConfigurationError: the names of two differ only in case.
        """
        columns = super().columns()
        lower = {name.lower() for name in columns}
        matches = {name: _RENAMED.fullmatch(name.lower()) for name in columns}
        renamed = {name: match[1] for name, match in matches.items() if match and match[1] in lower}
        if not renamed:
            return columns
        # DuckDB has given these names, unless the files have them.
        names = f"SELECT DISTINCT name FROM parquet_schema({literal(self._pattern)})"
        for (name,) in self._fetched(names):
            renamed.pop(name, None)
        for name in renamed.values():
            raise ConfigurationError(
                f'{self.place} has columns whose names differ only in case, such as "{name}", and '
                "DuckDB does not tell them apart",
                hint="rename one of them in the files",
            )
        return columns

    def identity(self) -> Mapping[str, str]:
        """Return the absolute path."""
        return {"path": self._pattern}

    def _paths(self) -> Iterable[str]:
        return iglob(self._pattern, recursive=True)  # noqa: PTH207 - the pattern is absolute


class DuckdbFileSide(DuckdbSide):
    """A table or view of a DuckDB file, which is open only while it is read."""

    def __init__(self, file: str, table: str) -> None:
        """Check that the table can be read.

        Raises ConfigurationError: there is no such file or table; LockedCopyError: another process
        has the file open for writing.
        """
        path = Path(file).absolute()
        super().__init__(f"duckdb:{file}/{table}", path.parent)
        self._file = str(path)
        parts = ".".join(quoted(part) for part in table.split("."))
        self.relation = f"copy.{parts}" if "." in table else f"copy.main.{parts}"
        check_columns(self, "duckdb:FILE/TABLE, or FILE/SCHEMA.TABLE")

    def identity(self) -> Mapping[str, str]:
        """Return the absolute path."""
        return {"path": self._file}

    def _paths(self) -> Iterable[str]:
        return [self._file]

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Attach the file read-only."""
        self.database.execute(f"ATTACH {literal(self._file)} AS copy (READ_ONLY)")
        try:
            yield
        finally:
            self.database.execute("DETACH copy")


def check_columns(side: DuckdbSide, hint: str) -> None:
    """Read the columns of a side that was just opened; it is closed if they cannot be read.

    Raises ConfigurationError: they cannot.
    """
    try:
        side.columns()
    except LockedCopyError:
        side.close()
        raise
    except SinkError as error:
        side.close()
        raise ConfigurationError(str(error.args[0]), hint=error.hint or hint) from error
    except BaseException:
        side.close()
        raise


def machine_mib() -> float:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 20)


def _error_of_duckdb(message: str) -> duckdb.Error:
    """Return the error of DuckDB that Arrow has passed on as a text, which begins with its kind."""
    import duckdb  # noqa: PLC0415 - an extra

    name = message.partition(" Error: ")[0].replace(" ", "").lower()
    kinds = {kind.lower(): getattr(duckdb, kind) for kind in dir(duckdb) if "Exception" in kind}
    kind: type[duckdb.Error] = kinds.get(f"{name}exception", duckdb.Error)
    return kind(message)


def _message(error: Exception) -> str:
    return " ".join(str(error).split("\n\n")[0].split())
