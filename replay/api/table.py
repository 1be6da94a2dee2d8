"""One table of a log: its state, its rows, its changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.relation import TableName
from replay.api.frames import duckdb_relation, pandas_frame
from replay.api.opened import OpenedTable
from replay.api.past import changes_between, history_of, origin_of, row_of
from replay.api.reach import LogAccess, Moment
from replay.api.rows import Changes, History, Origin, Row
from replay.api.values import LogFrontier, LogVerdict, short
from replay.local.keys import Key
from replay.local.rows import RowReader

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    from pyspark.sql import DataFrame

    from replay.pipeline.replay import Replay

Engine = Literal["auto", "local", "spark"]
LOCAL_OFFSETS = 300_000
"""A table of at most so many offsets is read in this process, unless the caller names an engine."""


@dataclass(frozen=True, slots=True, repr=False)
class LogTable:
    """A table of a log at its newest frontier, or at an older one.

    Every read freezes its frontier, asks for the verdict before and after it, and raises where it
    cannot be exact. Making this object reads nothing.
    """

    _reach: LogAccess
    _name: TableName
    _at: Moment | None = None

    @property
    def name(self) -> str:
        """Return its name, without the schema where that is `public`."""
        return short(self._name)

    def __repr__(self) -> str:
        """Name the table and the moment; this asks no server."""
        moment = self._at.lsn if isinstance(self._at, LogFrontier) else self._at
        return f"LogTable({self.name}, {'newest' if moment is None else f'at {moment}'})"

    def at(self, moment: Moment | None) -> LogTable:
        """Return the table as it was at an LSN, a time or a frontier; None is now."""
        return replace(self, _at=moment)

    def frontier(self) -> LogFrontier:
        """Return the frontier at which a read would happen now; raises as `arrow`."""
        return LogFrontier.of(self._reach.cut([self._name], self._at).record)

    def verdict(self) -> LogVerdict:
        """Return whether a read now is exact, and until when; raises as `Log.verdict`."""
        return LogVerdict.of(self._reach.cut([self._name], self._at))

    def schema(self) -> pa.Schema:
        """Return the columns and their types in Arrow; raises as `arrow`."""
        return RowReader(self.opened().schemas).schema

    def df(self) -> DataFrame:
        """Return a frame of Spark, which reads the log at each action.

        The verdict is asked for now. An action that outlasts its deadline is not noticed here:
        `reading()` does.

        Raises:
            VerdictError: the log cannot give the exact state.
        """
        return self._replay(self.opened()).states[self._name].frame

    @contextmanager
    def reading(self) -> Iterator[DataFrame]:
        """Yield a Spark frame; its reads are watched inside the block and checked after it.

        Raises:
            VerdictError: before or after the block: the read is not exact.
        """
        with self._reading(self.opened()) as frame:
            yield frame

    def arrow(self, columns: Sequence[str] | None = None, *, engine: Engine = "auto") -> pa.Table:
        """Return the rows as a table of Arrow, in no order.

        Args:
            columns: their names; all when left out.
            engine: `local` reads in this process, `spark` in its session; `auto` is local for a
                topic of few records.

        Raises:
            ConfigurationError: no such table or column, or it cannot be read without Spark.
            VerdictError: the log cannot give the exact state.
            LogError: a column's type cannot hold a value; leave the column out.
            UnavailableLogError: brokers or registry do not answer.
        """
        opened = self.opened()
        names = RowReader(opened.schemas, columns).schema.names
        if _reads_here(opened, engine):
            return opened.rows(names)
        quoted = ["`" + name.replace("`", "``") + "`" for name in names]
        with self._reading(opened) as frame:
            return frame.select(*quoted).toArrow()

    def pandas(
        self, columns: Sequence[str] | None = None, *, engine: Engine = "auto"
    ) -> pd.DataFrame:
        """Return the rows in pandas, in Arrow's types so that none is rounded; see `arrow`."""
        return pandas_frame(self.arrow(columns, engine=engine))

    def duckdb(
        self,
        columns: Sequence[str] | None = None,
        *,
        engine: Engine = "auto",
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a relation of DuckDB, of `connection` where one is given."""
        return duckdb_relation(self.arrow(columns, engine=engine), connection)

    def row(self, key: Key) -> Row | None:
        """Return the row of a key by column, None where there is none; needs no Spark.

        Args:
            key: its value; of several columns a tuple in the key's order, or a mapping by column.

        Raises:
            ConfigurationError: it is no key of the table, or the table cannot be read so.
            VerdictError: the log cannot give the exact state.
        """
        return row_of(self.opened(), key)

    def history(self, key: Key) -> History:
        """Return the versions of a row that are still on the log; needs no Spark.

        Raises:
            ConfigurationError: it is no key of the table, or the table cannot be read so.
            VerdictError: the log cannot give the exact state.
        """
        return history_of(self.opened(), key)

    def explain(self, key: Key) -> Origin:
        """Return the origin of the row of a key; needs no Spark.

        Raises:
            ConfigurationError: the log has nothing of the key; or as `history`.
            VerdictError: the log cannot give the exact state.
        """
        return origin_of(self.opened(), key)

    def changes(self, start: Moment, end: Moment | None = None) -> Changes:
        """Return every change of every row between two moments; needs no Spark.

        Each moment stands for the newest frontier at or before it. The log has every change since
        the first as long as it can give the state there exactly; else this is refused.

        Args:
            start: the earlier moment.
            end: the later moment; this table's own when left out.

        Raises:
            VerdictError: changes are missing, by compaction or because the table was copied anew.
            ConfigurationError: the end lies before the start, or the table cannot be read so.
        """
        last = self if end is None else self.at(end)
        return changes_between(self.at(start).opened(), last.opened())

    def opened(self) -> OpenedTable:
        """Return the table at its cut, with its schemas; reads no record, raises as `arrow`."""
        return OpenedTable.of(self._reach, self._name, self._at)

    @contextmanager
    def _reading(self, opened: OpenedTable) -> Iterator[DataFrame]:
        from replay.base.failures import translated  # noqa: PLC0415 - imports Spark

        replay = self._replay(opened)
        with translated(), replay.watched():
            yield replay.states[self._name].frame
        replay.recheck()

    def _replay(self, opened: OpenedTable) -> Replay:
        from replay.pipeline.replay import open_replay  # noqa: PLC0415 - imports Spark

        opened.cut.verdict.require()
        schemas = {self._name: opened.schemas}
        return open_replay(self._reach.session(), self._reach.kafka, opened.cut, schemas)


def _reads_here(opened: OpenedTable, engine: Engine) -> bool:
    """Tell whether a table is read in this process.

    Raises:
        ConfigurationError: it cannot be, or there is no such engine.
    """
    match engine:
        case "spark":
            return False
        case "local":
            opened.require_local()
            return True
        case "auto":
            return opened.is_local and opened.cut.offset_count(opened.topic) <= LOCAL_OFFSETS
    raise ConfigurationError(f'there is no engine "{engine}"', hint="auto, local or spark")
