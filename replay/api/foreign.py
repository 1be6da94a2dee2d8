"""The log of another program as a table: read whole, to where it ends when a read begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Never

import pyarrow as pa

from changelog.contract.base.errors import ConfigurationError, NoFrontierError
from changelog.contract.forms.declared import DeclaredLog
from replay.api.reach import Moment
from replay.api.table import Engine, LogTable
from replay.api.values import LogVerdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from replay.cut.cut import Cut
    from replay.pipeline.replay import Replay


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ForeignTable(LogTable):
    """A log of another program that a project declares; it has no frontier, so no past.

    Every read goes to the present ends of its partitions, asks for the verdict before and after,
    and raises where a key's last record may be missed. Spark reads it.
    """

    _log: DeclaredLog

    def __repr__(self) -> str:
        """Name the log; this asks no server."""
        return f"ForeignTable({self.name}, topic {self._log.topic})"

    def at(self, moment: Moment | None) -> LogTable:
        """Return the table as it is now, the only moment it has.

        Raises:
            ConfigurationError: another moment is asked for.
        """
        return self if moment is None else self.opened()

    def frontier(self) -> Never:
        """Refuse: there is none."""
        self.opened()

    def verdict(self) -> LogVerdict:
        """Return whether a read now finds the last record of each key, and by which rule."""
        return LogVerdict.of(self._cut())

    def schema(self) -> pa.Schema:
        """Return the columns and their types in Arrow; raises as `arrow`."""
        return self.df().limit(0).toArrow().schema

    def df(self) -> DataFrame:
        """Return a frame of Spark, which reads the log at each action, up to its ends now.

        An action that outlasts its deadline is not noticed here: `reading()` does.

        Raises:
            ConfigurationError: it has the name of a captured table.
            VerdictError: the log cannot give the state.
        """
        return self._opened_replay().states[self._name].frame

    @contextmanager
    def reading(self) -> Iterator[DataFrame]:
        """Yield a Spark frame; its reads are watched inside the block and checked after it.

        Raises:
            VerdictError: before or after the block: records may be missing of what was read.
        """
        from replay.base.failures import translated  # noqa: PLC0415 - imports Spark

        replay = self._opened_replay()
        with translated(), replay.watched():
            yield replay.states[self._name].frame
        replay.recheck()

    def arrow(self, columns: Sequence[str] | None = None, *, engine: Engine = "auto") -> pa.Table:
        """Return the rows as a table of Arrow, in no order; by Spark.

        Raises:
            ConfigurationError: no such column, another engine, or the name of a captured table.
            VerdictError: the log cannot give the state.
            LogError: a record cannot be read.
        """
        if engine not in {"auto", "spark"}:
            self.opened()
        with self.reading() as frame:
            names = frame.columns if columns is None else list(columns)
            if missing := [name for name in names if name not in frame.columns]:
                raise ConfigurationError(
                    f'log "{self.name}" has no column {", ".join(missing)}',
                    hint=f"it has {', '.join(frame.columns)}",
                )
            quoted = ["`" + name.replace("`", "``") + "`" for name in names]
            return frame.select(*quoted).toArrow()

    def opened(self) -> Never:
        """Refuse what needs a frontier, or records that are looked up by their key.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f'"{self.name}" is the log of another program: it has no frontier, so no older state, '
            "and single records of it are not looked up",
            hint="read it whole as it is now: df(), reading(), arrow(), pandas() or duckdb()",
        )

    def _cut(self) -> Cut:
        from replay.declared.declared import make_declared_cut  # noqa: PLC0415 - imports Spark

        reach = self._reach
        try:
            own = reach.newest().frontier
        except NoFrontierError:  # a project that captures nothing
            own = None
        if own is not None and own.topic_of(self._name) is not None:
            raise ConfigurationError(
                f'[logs.{self.name}] has the name of a captured table: "{self._name}"',
                hint="give the log another name in changelog.toml",
            )
        return make_declared_cut(reach.kafka, [self._log], settings=reach.settings)

    def _opened_replay(self) -> Replay:
        from replay.declared.declared import open_declared  # noqa: PLC0415 - imports Spark

        cut, reach = self._cut(), self._reach
        return open_declared(reach.session(), reach.kafka, reach.registry, cut, [self._log])
