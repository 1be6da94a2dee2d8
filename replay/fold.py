"""Records -> the last record of each key, without the deleted ones. Pure: DataFrame to DataFrame.

The last record is the one with the highest position; a record sent again has the position of the
first, so the offset decides between the two, and either is right. Only when a key's last record is
chosen may one look whether it is a tombstone: an aggregate that skips nulls takes the newest
record *with a value* and so revives what was deleted.

Keys are grouped over the whole topic, not partition by partition: a topic that once grew holds a
key in two partitions. Grouping by bytes is grouping by key, since the key's schema id is pinned
and Avro has one encoding of a value; the reader refuses keys under any other id.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.frontier import Frontier
from changelog.contract.position import Position
from replay.read import FAULT
from replay.thin import thinned


def cut_of(frontier: Frontier) -> Position:
    """Give the first position that is not part of the state at a frontier.

    Records of transactions from the frontier's LSN on lie past its ends, but a position says it
    of each record by itself. Earlier epochs come before, whatever their LSNs: a new system's LSNs
    may start lower.
    """
    return Position(frontier.epoch, frontier.lsn, 0)


def alive(records: DataFrame, *, since: Position | None, before: Position) -> DataFrame:
    """Keep the records from `since` on and before `before`; bytes compare as positions do.

    A record with a fault has no place of its own, and stays.
    """
    is_before = F.col("position") < _bytes(before)
    kept = records.where(
        F.col(FAULT).isNotNull() | is_before if _has_faults(records) else is_before
    )
    return kept if since is None else kept.where(F.col("position") >= _bytes(since))


def last_of_each_key(records: DataFrame) -> DataFrame:
    """Give each key's last record, tombstones included: `key, value, partition, offset`.

    Where records have a `fault`, it comes along; one without a key is the last of itself.
    """
    carried = [FAULT] if _has_faults(records) else []
    whole = F.struct("value", "partition", "offset", *carried)
    order = F.struct("position", "offset", "partition")
    place = [F.when(F.col("key").isNull(), F.struct("partition", "offset"))] if carried else []
    last = records.groupBy("key", *place).agg(F.max_by(whole, order).alias("last"))
    return last.select("key", "last.*")


def fold(
    records: DataFrame, *, since: Position | None, before: Position, held_bytes: int | None = None
) -> DataFrame:
    """Give the records that make up the state at `before`: `key, value, partition, offset`.

    Args:
        records: `key, value, partition, offset, position`, and `fault` where faults are kept.
        since: the first position that is alive.
        before: the first position that is not part of the state.
        held_bytes: what a task may hold to take out superseded records early (`replay.thin`),
            which knows no faults; None to leave that. The result is the same.
    """
    kept = alive(records, since=since, before=before)
    last = last_of_each_key(kept if held_bytes is None else thinned(kept, most_bytes=held_bytes))
    is_there = F.col("value").isNotNull()
    return last.where(is_there | F.col(FAULT).isNotNull() if _has_faults(last) else is_there)


def _has_faults(records: DataFrame) -> bool:
    return FAULT in records.columns


def _bytes(position: Position) -> Column:
    return F.lit(bytearray(position.to_bytes()))
