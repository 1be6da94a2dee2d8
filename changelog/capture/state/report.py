"""Counters of a capture run.

One thread writes, and others may read at any moment: metrics are made of this when somebody asks,
so that they cost nothing while nobody does. Counts only grow; a restart within the run keeps them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.change import Change, Delete, Insert, Truncate, Update
from changelog.contract.rows.relation import Relation, TableName

TableOp = tuple[TableName, Op]
"""A table, and what happened to its rows."""


_OP_OF: dict[type[Change], Op] = {
    Insert: Op.CREATE,
    Update: Op.UPDATE,
    Delete: Op.DELETE,
    Truncate: Op.TRUNCATE,
}


def op_of(change: Change) -> Op:
    """Return the operation of a change; one that moves the row is an update."""
    return _OP_OF[type(change)]


def _nothing_queued() -> int:
    return 0


def _nobody_asks() -> None:
    """Do nothing."""


@dataclass(slots=True)
class SnapshotProgress:
    """Progress of the snapshot that is being taken now."""

    estimate: int  # rows that it will have, by PostgreSQL's statistics
    rows: int = 0  # rows copied so far


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table and its topic."""

    relation: Relation  # as the source has it
    topic: str  # its name
    logged: Relation  # as the topic has it
    masked: frozenset[str]  # columns whose values are masked there


@dataclass(slots=True)
class CaptureReport:
    """Counts of one run of capture."""

    # rows captured, per table and operation: `READ` by snapshots, the others by the stream; sent
    # again ones are not counted twice
    rows: Counter[TableOp] = field(default_factory=Counter)
    # size of the keys and values written for them, before compression
    bytes: Counter[TableOp] = field(default_factory=Counter)
    records: int = 0  # records written by the stream, tombstones included
    messages: int = 0  # records of logical messages
    transactions: int = 0  # transactions streamed
    frontiers: int = 0  # frontiers written
    restarts: int = 0  # times that capture began again after a server was away
    # errors that capture has waited out, by kind
    errors: Counter[str] = field(default_factory=Counter)
    # the last frontier, of this run or found at its start
    lsn: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    frontier_s: float = 0.0  # when that was written, seconds since 1970; 0 when there is none
    frontier_ts_us: int = 0  # its commit time by the source's clock, microseconds since 1970
    snapshot: SnapshotProgress | None = None  # the snapshot that is being taken, or None
    # tables of which no frontier speaks although they are captured, with the reason
    excluded: dict[TableName, str] = field(default_factory=dict)
    # gives how many records the broker has not acknowledged yet
    queued: Callable[[], int] = _nothing_queued
    captured: Sequence[CapturedTable] = ()  # the tables, once an attempt knows them
    # is called when they are known
    on_captured: Callable[[], None] = _nobody_asks

    def captures(self, tables: Sequence[CapturedTable]) -> None:
        """Note the tables of an attempt."""
        self.captured = tables
        self.on_captured()

    def began(self, queued: Callable[[], int]) -> None:
        """Note the start of an attempt, and how to ask its producer."""
        self.queued = queued

    def ended(self) -> None:
        """Note the end of an attempt: nothing is queued, no snapshot goes on."""
        self.queued, self.snapshot = _nothing_queued, None

    def frontier_found(self, record: FrontierRecord) -> None:
        """Note the frontier that capture resumes at."""
        frontier = record.frontier
        self.lsn, self.frontier_ts_us = frontier.lsn, frontier.ts_us
        self.frontier_s = record.appended_ms / 1000

    def frontier_written(self, lsn: Lsn, ts_us: int) -> None:
        """Note a frontier that the broker has acknowledged just now.

        Before its first transaction an attempt knows no commit time; the one found is then younger.
        """
        self.frontiers += 1
        self.lsn, self.frontier_s = lsn, time.time()
        self.frontier_ts_us = max(self.frontier_ts_us, ts_us)

    def snapshot_copied(self, table: TableName, rows: int, size: int) -> None:
        """Note rows of the snapshot that are on the log, and the bytes of their records.

        A size of 0 was not counted, and nothing is said of it.
        """
        self.rows[table, Op.READ] += rows
        if size:
            self.bytes[table, Op.READ] += size
        if self.snapshot is not None:
            self.snapshot.rows += rows

    @property
    def snapshot_rows(self) -> dict[TableName, int]:
        """Return the rows that snapshots have copied, by table."""
        return _by_table(self.rows, snapshot=True)

    @property
    def changes(self) -> dict[TableName, int]:
        """Return the row changes streamed, by table."""
        return _by_table(self.rows, snapshot=False)

    def to_json(self) -> dict[str, object]:
        """Return the counts as one JSON object."""
        return {
            "rows_captured": self.rows.total(),
            "snapshot_rows": {str(t): n for t, n in sorted(self.snapshot_rows.items())},
            "changes": {str(t): n for t, n in sorted(self.changes.items())},
            "records": self.records,
            "messages": self.messages,
            "transactions": self.transactions,
            "frontiers": self.frontiers,
            "restarts": self.restarts,
            "errors": dict(sorted(self.errors.items())),
            "aside": {str(table): why for table, why in sorted(self.excluded.items())},
            "lsn": str(self.lsn),
        }

    def summary(self) -> str:
        """Return one line for people."""
        end = f"the log is complete to {self.lsn}" if self.lsn else "no frontier was written"
        return (
            f"captured {sum(self.snapshot_rows.values()):,} snapshot rows and "
            f"{sum(self.changes.values()):,} changes of {self.transactions:,} transactions; {end}"
        )


def _by_table(rows: Counter[TableOp], *, snapshot: bool) -> dict[TableName, int]:
    counts: Counter[TableName] = Counter()
    for (table, op), count in dict(rows).items():
        if (op is Op.READ) == snapshot:
            counts[table] += count
    return dict(counts)
