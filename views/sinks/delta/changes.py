"""Computes the difference between two generations by the keys and positions of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap64
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from replay.result.metrics import observed
from replay.store.committed import parquet
from views.sinks.delta.commits import DataFile
from views.sinks.unique import column, of_keys

_STRAYS, _ROWS = "strays", "rows"
_FILE, _ROW, _IS_KNOWN = "name of the file", "row of the file", "is known"
"""No column of a view in Delta has a blank in its name."""


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """The part of a generation that it shares with an older one."""

    files: Sequence[DataFile]  # its files
    seen: Observation  # counts of the new rows

    def check(self, rows: int) -> None:
        """Check that all new rows were seen, each under a key whose old row was removed."""
        counts = (observed(self.seen) if rows else None) or {}
        strays, seen = counts.get(_STRAYS, 0), counts.get(_ROWS, 0)
        if strays or seen < rows:  # rows of a task that was tried twice may be counted twice
            raise SinkError(
                f"of {rows:,} new rows {seen:,} were seen, and {strays:,} have keys whose rows "
                "stay",
                hint="rebuild the view without --refresh; this is an error of this program",
            )


def positions_of(
    spark: SparkSession,
    folder: str,
    files: Sequence[DataFile],
    gone: DataFrame,
    schema: StructType,
) -> dict[str, BitMap64]:
    """Return the positions of the rows with one of some keys, in each file that has any.

    Rows that a deletion vector marks already may be included.

    `folder`: of the files. `gone`: the keys, few enough for every task's memory.
    """
    if not files:
        return {}
    key_schema = StructType([schema[name] for name in gone.columns])
    stored = parquet(spark, [f"{folder}/{file.path}" for file in files], key_schema)
    placed = stored.select(
        *map(column, gone.columns),
        F.col("_metadata.file_name").alias(_FILE),
        F.col("_metadata.row_index").alias(_ROW),
    )
    keys, same = of_keys(gone, {name: name for name in gone.columns})
    gone_rows = placed.join(F.broadcast(keys), on=same, how="left_semi")
    by_file = gone_rows.groupBy(column(_FILE)).agg(F.collect_list(column(_ROW)).alias(_ROW))
    return {row[_FILE]: BitMap64(row[_ROW]) for row in by_file.toArrow().to_pylist()}


def more_marked(
    before: Mapping[str, BitMap64], going: Mapping[str, BitMap64], keys: int
) -> dict[str, BitMap64]:
    """Return deletion vectors with more rows marked.

    `before`: the positions that are marked, of each file that has any. `going`: the positions of
    rows to remove; some may be marked already. `keys`: the number of these rows' keys.

    Raises SinkError: two rows have the same key.
    """
    nothing = BitMap64()
    names = {*before, *going}
    vectors = {name: before.get(name, nothing) | going.get(name, nothing) for name in names}
    more = sum(map(len, vectors.values())) - sum(map(len, before.values()))
    if more > keys:
        raise SinkError(
            f"{keys:,} keys have {more:,} rows in the generation that serves",
            hint="rebuild the view without --refresh",
        )
    return vectors


def within(rows: DataFrame, gone: DataFrame, seen: Observation) -> DataFrame:
    """Return the rows unchanged, and count the rows that have none of some keys."""
    keys, same = of_keys(gone, {name: name for name in gone.columns})
    marked_keys = keys.withColumn(_IS_KNOWN, F.lit(True))
    strays = F.count_if(column(_IS_KNOWN).isNull()).alias(_STRAYS)
    joined = rows.join(F.broadcast(marked_keys), on=same, how="left")
    watched = joined.observe(seen, strays, F.count(F.lit(1)).alias(_ROWS))
    return watched.select(*map(column, rows.columns))
