"""States of tables at one frontier: read, folded and decoded once for all verifications of it.

A run verifies several views, and a view in several sinks; they share the states of their tables.
These may be read ahead, in a thread, while Spark builds the views.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import duckdb

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from changelog.runtime.process.memory import return_freed
from changelog.runtime.process.scratch import ScratchFolder
from views.base.pace import Tell, quiet
from views.verify.kept.folder import kept_root
from views.verify.kept.keeper import NOWHERE, Keeper, Keeping
from views.verify.log.spread import Spread, SpreadTables
from views.verify.log.states import FrontierTables, Taken
from views.verify.log.tables import TableState
from views.verify.processes.scratch import MEMORY_LIMIT, answers, scratch
from views.verify.processes.stages import StageTimes
from views.verify.records.archived import LogArchive


class _CancelledError(Exception):
    """Reading ahead was cancelled: the rows are no longer needed."""


class Evidence:
    """The states of tables at a frontier, in a DuckDB database of its own; a context manager."""

    database: duckdb.DuckDBPyConnection  # holds them until the end of the context

    def __init__(
        self,
        kafka: KafkaConnection,
        registry: RegistryConnection,
        frontier: Frontier,
        *,
        work_directory: Path | None = None,
        memory_limit: str = MEMORY_LIMIT,
        pins: Mapping[str, SchemaPin] | None = None,
        quarantines: bool = False,
        declared: Sequence[DeclaredLog] = (),
        keeping: Keeping = NOWHERE,
        spread: Spread | None = None,
        archive: LogArchive | None = None,
        tell: Tell = quiet,
        histories: bool = False,
    ) -> None:
        """Store the arguments; reads nothing.

        `frontier`: the states are read at it. `work_directory`: the folder for the database, None
        for the system's temporary one. `memory_limit`: DuckDB's, in its own notation. `pins`: by
        topic the versions of schemas to read by. `quarantines`: leave out the rows whose records
        cannot be read, and count these. `declared`: the tables that are logs of other programs.
        `keeping`: where proved states are stored, and for which use. `spread`: has the tasks that
        read large topics; None to read all of them here. `archive`: an archive of the log to read
        in place of brokers and registry. `histories`: read all versions of the rows, in place of
        the last ones.
        """
        self._histories = histories
        self._version_tables: FrontierTables | None = None
        self._keeping = keeping
        self._keeper: Keeper | None = None
        self._spread, self._archive, self._tell = spread, archive, tell
        self._ahead: dict[TableName, Future[Taken]] = {}
        self._is_over = threading.Event()
        self._spread_tables: SpreadTables | None = None
        self._declared = {log.table: log for log in declared}
        self._pins, self._quarantines = pins or {}, quarantines
        self.frontier = frontier  # of the states
        self.stages = StageTimes()  # how long each stage took
        self._kafka, self._registry = kafka, registry
        self._work_directory, self._memory_limit = work_directory, memory_limit
        self._held, self._inner = ExitStack(), ExitStack()
        self._taken: dict[TableName, Taken] = {}

    def read_ahead(self, tables: Iterable[TableName]) -> None:
        """Begin to read the states of tables in the background, except the ones that tasks read.

        `state` waits for all of them. An error is raised when the state of that table is asked for.
        """
        pool = ThreadPoolExecutor(1, "verify-ahead")
        self._held.callback(pool.shutdown)
        for table in tables:
            topic = self.frontier.topic_of(table)
            if self._spread is None or not self._spread.wants(self.frontier, topic or ""):
                self._ahead[table] = pool.submit(self._read_state, table)

    def state(self, table: TableName) -> TableState:
        """Return the state of a table; the first call reads its topic, unless it was read ahead.

        Raises:
            ViewError: the table is not captured.
            LogError: the topic is not what the frontier says.
            CorruptRecordError: a record breaks the contract.
        """
        # The thread is using the database and the keeper, so nothing else may before it has ended.
        wait(self._ahead.values())
        if table not in self._taken:
            ahead = self._ahead.get(table)
            self._taken[table] = self._read_state(table) if ahead is None else ahead.result()
        return self._taken[table].state

    def _read_state(self, table: TableName) -> Taken:
        if self._histories:
            if self._version_tables is None:
                self._version_tables = self._frontier_tables()
            return self._version_tables.versions(table)
        return self._read_by_tasks(table) or self._open_tables().take(table)

    def _report(self, text: str) -> None:
        """Report progress; called often, so it also ends a read that was cancelled."""
        if self._is_over.is_set():
            raise _CancelledError
        self._tell(text)

    def taken(self, table: TableName) -> Taken | None:
        """Return the way in which a table's state was read, or None if it was not."""
        return self._taken.get(table)

    def _read_by_tasks(self, table: TableName) -> Taken | None:
        """Return a state that tasks have read, or None if this process reads it.

        States that are stored for the next proof, or go on from stored ones, are read here.
        """
        topic = self.frontier.topic_of(table)
        if topic is not None and not self.frontier.scope_of(topic).keyed:
            return None
        if self._spread is None or self._keeping.goes_on or self._keeping.begins:
            return None
        if self._spread_tables is None:
            self._spread_tables = SpreadTables(
                self.database,
                self._spread,
                self.frontier,
                folder=self._folder,
                pins=self._pins,
                quarantines=self._quarantines,
                declared=self._declared,
                tell=self._report,
            )
        with self.stages.of("read by tasks"):
            return self._spread_tables.state(table)

    def restore(self) -> None:
        """Open another database if an error inside DuckDB has ended this one, and read all again.

        Each view that is verified afterwards has its states read for it once more.
        """
        if answers(self.database):
            return
        wait(self._ahead.values())
        self._keeper = self._spread_tables = self._version_tables = None
        self._taken.clear()
        self._ahead.clear()
        self._inner.close()
        self._open()

    def is_declared(self, table: TableName) -> bool:
        """Tell whether a table is a log of another program, which has no frontiers."""
        return table in self._declared

    def left_out(self, table: TableName) -> int:
        """Return the number of records of a table that could not be read and were left out."""
        taken = self._taken.get(table)
        return 0 if taken is None else taken.left_out

    def forget(self, tables: Collection[TableName]) -> None:
        """Store no states of the tables of a view in which a mismatch was found."""
        wait(self._ahead.values())
        self._open_tables().forget(tables)

    def keep(self) -> None:
        """Store the proved states for the next proof, if the settings say so.

        If no proof has asked for a state, nothing was proved, and the thread may still be reading.
        """
        if self._keeper is not None and self._taken:
            self._keeper.keep()

    def _open_tables(self) -> Keeper:
        if self._keeper is None:
            keeper = Keeper(
                self._keeping,
                self.database,
                self._frontier_tables(),
                self._kafka,
                self.frontier,
                here=self._folder,
                pins=self._pins,
                stages=self.stages,
                never="records that cannot be read are left out" if self._quarantines else "",
            )
            self._keeper = self._inner.enter_context(keeper)
        return self._keeper

    def _frontier_tables(self) -> FrontierTables:
        return FrontierTables(
            self.database,
            self._kafka,
            self._registry,
            self.frontier,
            pins=self._pins,
            quarantines=self._quarantines,
            declared=self._declared,
            work_directory=self._work_directory,
            tell=self._report,
            archive=self._archive,
        )

    def __enter__(self) -> Self:
        """Open the database."""
        folder = ScratchFolder("verify", self._work_directory)
        self._folder = Path(self._held.enter_context(folder))
        self._held.enter_context(self._inner)
        self._open()
        return self

    def _open(self) -> None:
        folders = [self._folder, *filter(None, [kept_root(self._keeping.warehouse)])]
        opening = scratch(self._folder, self._memory_limit, folders)
        self.database = self._inner.enter_context(opening)

    def __exit__(self, *_: object) -> None:
        """Remove the database, once reading ahead has ended."""
        self._is_over.set()
        for reading in self._ahead.values():
            reading.cancel()
        if self._ahead:
            self.database.interrupt()
            wait(self._ahead.values())  # the thread must not use the database while it is closed
        self._held.close()
        return_freed()
