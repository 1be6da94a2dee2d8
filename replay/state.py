"""The public result of a replay: the rows of a table at a frontier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from changelog.contract.frontier import Frontier
from changelog.contract.relation import TableName
from changelog.contract.schema import SchemaPin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ReplayedState:
    """The current rows of a table at a frontier.

    Attributes:
        table: schema and table.
        key: names of the primary key's columns, in the key's own order.
        frame: one column per column of the table, under PostgreSQL's names. Lazy: each action
            on it reads the log up to the frontier. Every column is nullable in Spark's eyes.
        frontier: what the rows are true at.
        pin: the versions of the schemas that it is read by; None where that is not known.
        bad: the records that were set apart, of the same scan and lazy too: `topic, partition,
            offset, key, value, reason`; None where such a record fails the replay.
    """

    table: TableName
    key: tuple[str, ...]
    frame: DataFrame
    frontier: Frontier
    pin: SchemaPin | None = None
    bad: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class TableMetrics:
    """What the first action on a state saw.

    Attributes:
        records_read: records between the log start and the frontier's ends.
        tombstones: those of them without a value.
        rows: rows of the state.
    """

    records_read: int
    tombstones: int
    rows: int
