"""The public result of a replay: the rows of a table at a frontier."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from replay.cut.cut import Cut
from replay.verdict.watch import ReadWatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class StateRows:
    """Rows as the log has them, and how their columns are read.

    A value that no type of Spark holds ends the task that reads its column, and no other: what
    Spark leaves out of a plan is never looked at. So rows that are kept are kept as `logged`,
    with such values still beside their columns.
    """

    logged: DataFrame  # one row a row of the table, in columns of our own
    # gives one column per column of the table, under PostgreSQL's names
    read: Callable[[DataFrame], DataFrame]
    # gives `column`, `key` of the values that no type here holds; None where there are none
    formless: Callable[[DataFrame], DataFrame] | None = None

    @property
    def frame(self) -> DataFrame:
        """Return the rows as a view reads them."""
        return self.read(self.logged)


@dataclass(frozen=True, slots=True)
class ReplayedState:
    """The current rows of a table at a frontier."""

    table: TableName  # schema and table
    key: tuple[str, ...]  # names of the primary key's columns, in the key's own order
    # lazy: each action on them reads the log up to the frontier. Every column is nullable in
    # Spark's eyes
    rows: StateRows
    frontier: Frontier  # what the rows are true at
    # the versions of the schemas that it is read by; None where that is not known
    pin: SchemaPin | None = None
    # the records that cannot be read, of the same scan and lazy too: `topic, partition, offset,
    # key, value, reason`; None where such a record fails the replay
    quarantined: DataFrame | None = None

    @property
    def frame(self) -> DataFrame:
        """Return the rows, one column per column of the table, under PostgreSQL's names."""
        return self.rows.frame


@dataclass(frozen=True, slots=True)
class TableMetrics:
    """The counts of the first action on a state."""

    records_read: int  # records between the log start and the frontier's ends
    tombstones: int  # those of them without a value
    rows: int  # rows of the state


@dataclass(frozen=True, slots=True, kw_only=True)
class States(ABC):
    """The states of some tables at one frontier, wherever they come from."""

    cut: Cut  # what was read for them, or is going to be
    states: Mapping[TableName, ReplayedState]  # the state of each table

    @property
    @abstractmethod
    def reads_log(self) -> bool:
        """Return whether actions on the states read the log rather than stored rows."""

    @abstractmethod
    def metrics(self) -> Mapping[TableName, TableMetrics | None]:
        """Return the counts of each table's reading, or None if nothing was read yet."""

    def counting(self) -> AbstractContextManager[object]:
        """Read states inside a block; its counts are dropped if it fails.

        The numbers would be those of the records up to its failure.
        """
        return nullcontext()

    @abstractmethod
    def watched(self) -> AbstractContextManager[ReadWatch | None]:
        """Return a watch that ends the actions of a block once these states are not exact."""

    @abstractmethod
    def recheck(self) -> None:
        """Check that the reading was exact, and that a verifier may read the log now.

        Raises VerdictError: a topic or its settings changed, a leader moved, or a deadline passed;
        UnavailableLogError: the brokers do not answer.
        """

    @property
    def frontier(self) -> Frontier:
        """Return the frontier that every state is true at."""
        return self.cut.record.frontier

    @property
    def pins(self) -> dict[str, SchemaPin]:
        """Return by topic the versions of the schemas that the states are read by."""
        return pins_of(self.cut.topics, self.states)

    def choices(
        self, tables: Collection[TableName]
    ) -> dict[TableName, tuple[tuple[str, str], ...]]:
        """Return the columns of tables that have a choice for values without a form."""
        pins = {t: state.pin for t, state in self.states.items() if t in tables}
        return {t: pin.choices for t, pin in pins.items() if pin is not None and pin.choices}


def pins_of(
    topics: Mapping[TableName, str], states: Mapping[TableName, ReplayedState]
) -> dict[str, SchemaPin]:
    """Return by topic the versions of the schemas that states are read by, where they are known."""
    return {topics[table]: state.pin for table, state in states.items() if state.pin is not None}
