"""A table at a cut, with the schemas of its records, to be read in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedSchema
from replay.api.reach import LogAccess, Moment
from replay.api.values import short
from replay.cut.cut import Cut, recheck
from replay.decode.schemas import TopicSchemas, schemas_of
from replay.local.keys import Key, key_bytes
from replay.local.rows import can_read
from replay.local.state import LocalScan, OnProgress, ignore_progress
from replay.scan.range import PartitionRange


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A table at a cut."""

    reach: LogAccess
    table: TableName
    cut: Cut
    schemas: TopicSchemas

    @classmethod
    def of(cls, reach: LogAccess, table: TableName, at: Moment | None) -> OpenedTable:
        """Freeze the cut and look up the schemas; reads no record.

        Raises:
            ConfigurationError: the table is not captured.
            VerdictError: there is no frontier of that moment.
            LogError: a schema is not there.
            UnavailableLogError: brokers or registry do not answer.
        """
        cut = reach.cut([table], at)
        schemas = schemas_of(reach.registry, reach.kafka, cut.record.frontier, cut.topics)
        return cls(reach, table, cut, schemas[table])

    @property
    def name(self) -> str:
        """Return its name, without the schema where that is `public`."""
        return short(self.table)

    @property
    def topic(self) -> str:
        """Return the table's topic."""
        return self.schemas.topic

    @property
    def frontier(self) -> Frontier:
        """Return the frontier at which the state is true."""
        return self.cut.record.frontier

    @property
    def logged(self) -> LoggedSchema:
        """Return the schema of its rows."""
        return self.schemas.logged(self.schemas.reader_id)

    def key_bytes(self, key: Key) -> bytes:
        """Encode a key as it is on the log.

        Raises:
            ConfigurationError: it is no key of the table, or the table cannot be read here.
        """
        self.require_local()
        return key_bytes(self.logged, self.schemas.key_id, key)

    @property
    def has_key(self) -> bool:
        """Tell whether the table has a primary key."""
        return self.frontier.scope_of(self.topic).keyed

    @property
    def is_local(self) -> bool:
        """Tell whether it can be read without Spark."""
        return can_read(self.schemas) and self.has_key

    def require_local(self) -> None:
        """Require that it can be read without Spark.

        Raises:
            ConfigurationError: it cannot.
        """
        if not self.has_key:
            raise ConfigurationError(
                f'table "{self.table}" has no primary key: its rows are told apart with Spark only',
                hint='read it whole: df(), or arrow(engine="spark")',
            )
        if not self.is_local:
            raise ConfigurationError(
                f'topic "{self.topic}" holds JSON documents, which are read with Spark only',
                hint='read it whole: df(), or arrow(engine="spark")',
            )

    def scan(self, progress: OnProgress | None = None) -> LocalScan:
        """Return a reader of the table's records in this process."""
        if progress is None:
            return LocalScan(self.reach.kafka, self.cut, self.schemas)
        return LocalScan(self.reach.kafka, self.cut, self.schemas, progress)

    def rows(self, columns: Sequence[str] | None) -> pa.Table:
        """Return the rows, read here; judged before and after.

        Raises:
            VerdictError: the log cannot give the exact state.
            LogError: a record or a value cannot be read.
        """
        self.cut.verdict.require()
        with shown(f"{self.name}: read", self.cut.offset_count(self.topic)) as progress:
            table = self.scan(progress).table(columns)
        self.recheck()
        return table

    def recheck(self) -> None:
        """Require that the rows read are exact.

        Raises:
            VerdictError: they are not, or not any more.
        """
        recheck(self.cut, self.reach.kafka)


def offsets_of(ranges: Sequence[PartitionRange]) -> int:
    """Return the number of offsets in ranges."""
    return sum(part.end - part.start for part in ranges)


# A read shorter than this shows no bar.
_QUIET_S = 2.0


class _Rate(ProgressColumn):
    """The column of a progress bar that shows records per second."""

    def render(self, task: Task) -> Text:
        """Return the rate."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextmanager
def shown(title: str, total: int) -> Iterator[OnProgress]:
    """Yield a callback that shows the progress of a read on a terminal or in a notebook.

    Args:
        title: what is read.
        total: the number of records, at most.
    """
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield ignore_progress
        return
    columns = (TextColumn("{task.description}"), BarColumn(20), _Rate(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task, begun = bar.add_task(title, total=total), time.monotonic()

    def show_progress(done: int) -> None:
        if not bar.live.is_started and time.monotonic() - begun > _QUIET_S:
            bar.start()
        bar.update(task, completed=done)

    try:
        yield show_progress
    finally:
        bar.stop()
