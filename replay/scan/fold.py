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

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.position import Position
from replay.base.record_place import FAULT


def before_position(records: DataFrame, before: Position) -> DataFrame:
    """Keep the records before a position; bytes compare as positions do."""
    return records.where(F.col("position") < _bytes(before))


def from_position(records: DataFrame, since: Position) -> DataFrame:
    """Keep the records from a position on."""
    return records.where(F.col("position") >= _bytes(since))


def last_of_each_key(
    records: DataFrame, columns: Sequence[str] = ("value", "partition", "offset")
) -> DataFrame:
    """Return each key's last record, tombstones included: `key` and the named columns.

    A column `fault` is kept if there is one; each record without a key is kept too.
    """
    carried = [FAULT] if _has_faults(records) else []
    whole = F.struct(*columns, *carried)
    order = F.struct("position", "offset", "partition")
    place = [F.when(F.col("key").isNull(), F.struct("partition", "offset"))] if carried else []
    last = records.groupBy("key", *place).agg(F.max_by(whole, order).alias("last"))
    return last.select("key", "last.*")


def survivors(last: DataFrame) -> DataFrame:
    """Leave out the tombstones among last records; faulty records stay."""
    is_there = F.col("value").isNotNull()
    return last.where(is_there | F.col(FAULT).isNotNull() if _has_faults(last) else is_there)


def _has_faults(records: DataFrame) -> bool:
    return FAULT in records.columns


def _bytes(position: Position) -> Column:
    return F.lit(bytearray(position.to_bytes()))


def fold_on(stored: DataFrame, changes: DataFrame, *, few: bool) -> DataFrame:
    """Return the records of a state, from a stored state and the keys touched since.

    `stored`: one record of each live key. `changes`: the last record of each key touched since,
    tombstones included; newer than all stored records. `few`: send the touched keys to every task,
    so that the stored state is neither sorted nor moved.
    """
    touched = changes.select("key")
    keys = F.broadcast(touched) if few else touched
    untouched = stored.join(keys, on="key", how="left_anti")
    return untouched.unionByName(with_values(changes))


def with_values(records: DataFrame) -> DataFrame:
    """Leave out the tombstones among last records."""
    return records.where(F.col("value").isNotNull())
