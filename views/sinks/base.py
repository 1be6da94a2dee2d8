"""The contract of sinks: build a generation aside, seal it, and publish it in one step.

The order is open -> write -> seal, then publish or discard. Between `open` and `publish` no reader
of the view sees the generation, and `publish` is one atomic request to the sink. So a rebuild that
is killed at any point leaves the served generation as it was, and at most an unfinished generation,
which `generations` lists and `discard` removes. The mark of a sealed generation is stored in the
sink, so any process can tell it from an unfinished one.

A rollback publishes an earlier generation again. `drop` removes the view itself.

A served generation may also be brought forward: `apply` changes the rows of some keys, so that it
moves from one frontier to a later one, in one step for its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from changelog.contract.base.errors import SinkError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from changelog.contract.base.connection import KafkaConnection, RegistryConnection
    from changelog.contract.base.position import Position
    from changelog.postgres.connection import Connection
    from views.base.address import Address

T = TypeVar("T")

GONE = "__gone"
"""The column of a delta that tells whether a key no longer has a row."""


class UnavailableSinkError(SinkError, UnavailableError):
    """A sink's server does not answer now; trying again later may succeed.

    Attributes:
        sink: its name, if it is known.
    """

    sink = ""


class ForeignTableError(SinkError):
    """A table at the place of a view was not made by this program."""


class BusyError(Exception):
    """A lock is held by others, or a transaction would be disturbed; it may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The addresses of a project's sinks."""

    warehouse: str  # folder or URI below which each view has its Delta table
    # OpenSearch; user and password may be in it
    search_url: str | None = field(default=None, repr=False)
    # Redis or Valkey, `redis://…`; user and password may be in it
    cache_url: str | None = field(default=None, repr=False)
    # PostgreSQL, as libpq takes it; user and password may be in it
    postgres_url: str | None = field(default=None, repr=False)
    kafka: KafkaConnection | None = None  # the brokers that topics of views are written to
    registry: RegistryConnection | None = None  # of the schemas of such topics
    # the catalogue of Iceberg tables by its name in pyiceberg's configuration; empty for a file of
    # SQLite in the warehouse
    iceberg_catalogue: str = ""
    iceberg_namespace: str = "views"  # of such tables
    topic_prefix: str = "views"  # the names of such topics begin with it and a point
    retry_seconds: float = 60.0  # how long requests to a busy or absent server are repeated
    # how long a server with a request may be silent before it counts as absent
    answer_seconds: float = 60.0
    left_out_at_most: int = 0  # how many refused rows a generation may leave out


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The difference between a generation and an earlier one."""

    prior: int  # number of the earlier generation, which is sealed
    # the keys whose rows are removed, by all or some columns of the view's key, each once
    gone: DataFrame
    keys: int  # the number of these keys
    rows: DataFrame  # the new rows, each under one of these keys


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that a server refuses and a generation leaves out."""

    id: str  # its id in the sink
    key: str  # the columns of its key, a JSON object
    reason: str  # in the server's words


class Sink(Protocol):
    """One view at one place; an instance writes one generation at a time."""

    def check(self, schema: StructType) -> None:
        """Refuse columns that the sink cannot hold, without a request to its server.

        Raises SinkError: naming the column and what to do.
        """
        ...

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation.

        Raises SinkError: the sink has the generation already, cannot hold the columns exactly, or
        its stable name is in use by others.
        """
        ...

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once.

        Raises SinkError: the sink refuses a row, or is full.
        """
        ...

    def seal(self) -> Address:
        """End writing, and mark the generation as complete.

        Raises SinkError: the sink does not have each row under a key of its own.
        """
        ...

    def rows(self, generation: int) -> int:
        """Return the number of rows of a sealed generation."""
        ...

    def address(self, generation: int) -> Address:
        """Return the place where a sealed generation can be read, published or not."""
        ...

    def publish(self, generation: int) -> None:
        """Switch readers to a sealed generation, atomically.

        Raises SinkError: there is no such generation, or it is not sealed.
        """
        ...

    def discard(self, generation: int) -> None:
        """Remove a generation, sealed or unfinished; does nothing if there is none.

        Raises SinkError: it is the published one.
        """
        ...

    def drop(self) -> None:
        """Remove the view: first its stable name, then all of its generations.

        Does nothing if there is none, and continues a removal that was killed.

        Raises SinkError: its stable name is in use by others; nothing is removed.
        """
        ...

    def published(self) -> int | None:
        """Return the generation that readers see."""
        ...

    def generations(self) -> list[int]:
        """List the generations in the sink, finished or not, in order."""
        ...


class Database(Protocol):
    """A server with transactions, which sinks of several views may share."""

    def connection(self) -> AbstractContextManager[Connection]:
        """Open a connection in autocommit mode."""
        ...

    def patiently(self, act: Callable[[], T]) -> T:
        """Repeat an action while it raises BusyError, at most `retry_seconds`."""
        ...


@runtime_checkable
class TransactionalSink(Sink, Protocol):
    """A sink that publishes in a transaction, which it can share with other views' sinks."""

    @property
    def database(self) -> Database:
        """Return the server, which is the same for all sinks of this kind in a project."""
        ...

    @property
    def locks_readers_out(self) -> bool:
        """Tell whether readers wait from `move` until the transaction ends."""
        ...

    def prepare(self, generation: int) -> None:
        """Do the slow work that can be done before the transaction.

        Raises SinkError: there is no such generation, or it is not sealed.
        """
        ...

    def move(self, connection: Connection, generation: int) -> None:
        """Publish within the transaction of a connection; readers see it once that is committed.

        Raises BusyError: others hold a lock that it needs; SinkError: readers cannot be moved.
        """
        ...


@runtime_checkable
class ChangeableSink(Sink, Protocol):
    """A sink that can write a generation as a change of an older one."""

    def obstacle(self, change: Change) -> str | None:
        """Return the reason why a generation cannot be written as a change of another, or None."""
        ...

    def change(self, change: Change) -> None:
        """Write the generation as a change of an older one, instead of `write`.

        Raises SinkError: two rows of the older one have the same key.
        """
        ...


@runtime_checkable
class LeavingSink(Sink, Protocol):
    """A sink that can leave out rows that its server refuses, and notes them."""

    def left_out(self, generation: int) -> Sequence[RefusedRow]:
        """Return the rows that a sealed generation leaves out."""
        ...


def left_out_of(sink: Sink, generation: int) -> Sequence[RefusedRow]:
    """Return the rows that a sealed generation of any sink leaves out."""
    return sink.left_out(generation) if isinstance(sink, LeavingSink) else ()


def rows_of(sink: Sink, generation: int) -> int:
    """Return the number of rows of a sealed generation, including rows left out."""
    return sink.rows(generation) + len(left_out_of(sink, generation))


@runtime_checkable
class ForwardSink(Sink, Protocol):
    """A sink whose sealed generations can be brought forward while they are read.

    A delta has, for some keys, the row of each at a frontier, or that there is none. So applying it
    again, or after a part of it, has the same result: a follower that was killed goes on from
    `position`, which is written with the rows, in the same step or after them.
    """

    def holds_back(self, generation: int) -> str | None:
        """Return the reason why readers would see a delta in parts, or None."""
        ...

    def delta_columns(self, schema: StructType) -> Sequence[Column]:
        """Return the columns that the sink needs of a row, as expressions over a delta.

        A delta has the view's columns and `GONE`. Where that is true, only the key's columns have
        values. Each kind of sink has its own names for these columns: `__KIND_…`.
        """
        ...

    def delta_values(self, schema: StructType, delta: pa.Table) -> Mapping[str, pa.Array]:
        """Return the columns of `delta_columns` for a delta computed without Spark.

        Raises NotRenderedError: a value is left to Spark.
        """
        ...

    def apply(
        self, generation: int, schema: StructType, delta: pa.Table, position: Position
    ) -> int:
        """Apply a delta to a sealed generation atomically.

        `delta`: columns `GONE` and `delta_columns`; each key once. `position`: the first position
        of the log that the generation does not contain afterwards.

        Returns:
            The number of rows of the generation afterwards, including rows left out.

        Raises SinkError: there is no such generation, it is not sealed, or a row is refused.
        """
        ...

    def position(self, generation: int) -> Position | None:
        """Return the position of the last `apply` to a generation, or None."""
        ...


@dataclass(slots=True)
class Opened:
    """The generation that a sink is writing."""

    generation: int  # its number
    schema: StructType  # its columns
    rows: DataFrame | None = None  # the written rows; None before `write`
    written: int | None = None  # the number of rows sent; None if only the sink knows it

    def begin(self, rows: DataFrame) -> None:
        """Store the rows; `write` is allowed once."""
        if self.rows is not None:
            raise SinkError(f"generation {self.generation} was written already")
        if rows.schema.simpleString() != self.schema.simpleString():
            raise SinkError(
                f"generation {self.generation} was opened for {self.schema.simpleString()}, "
                f"not {rows.schema.simpleString()}"
            )
        self.rows = rows

    def finished(self) -> DataFrame:
        """Return the rows that were written."""
        if self.rows is None:
            raise SinkError(f"generation {self.generation} is sealed before it is written")
        return self.rows


def opened(current: Opened | None, view: str) -> Opened:
    """Return the generation being written.

    Raises SinkError: `open` was not called.
    """
    if current is None:
        raise SinkError(f'no generation of view "{view}" is open')
    return current


def refuse_published(view: str, generation: int, published: int | None) -> None:
    """Refuse to remove the published generation."""
    if generation == published:
        raise SinkError(
            f'generation {generation} of view "{view}" is published and cannot be removed',
            hint="publish another generation first",
        )


def not_sealed(view: str, generation: int, existing: Sequence[int]) -> SinkError:
    """Return the error for a generation that is missing or unfinished."""
    if generation in existing:
        return SinkError(
            f'generation {generation} of view "{view}" is not sealed',
            hint="a rebuild was stopped while it wrote; rebuild the view",
        )
    return SinkError(f'the sink holds no generation {generation} of view "{view}"')


def held_already(view: str, generation: int) -> SinkError:
    """Return the error for opening a generation that exists."""
    return SinkError(
        f'the sink holds generation {generation} of view "{view}" already',
        hint="discard it or take the next number",
    )
