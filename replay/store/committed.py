"""Delta tables that this program writes and reads without Delta's own part of Spark.

Spark writes them as Parquet, and deltalake writes their log: Delta's writer takes 0.4 s for a table
of any size, which is most of the time for a small one. A table exists once its log does; a killed
run leaves a folder without one. On an object store Delta's writer is used, since Spark's renames
each file to its final name, and a rename is a copy there.

They are read as the files that their log names. Spark reads a Delta log in jobs of its own: once to
open a table, and again for each place in a plan that uses it. For a table of few rows these jobs
take most of the time. deltalake reads the same log in this process, in milliseconds, and Spark gets
the list of Parquet files; the folder would not do, since a task that was tried twice may have left
a file there (docs/decisions/0023-checkpoints-and-refresh.md).

This works for tables that are exactly the rows of their files. A table with features that change
that, by the defaults of a user's Spark, is read by Spark's own reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import create_table_with_add_actions
from pyspark.sql import DataFrame

from changelog.runtime.stores import of_deltalake
from replay.base.clock import clock_ms
from replay.spark.files import Files
from replay.spark.warehouse import adding_counted, is_plain, paths_of
from replay.store.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PATTERN = frozenset("*?[]{}\\")
"""Characters of a pattern in a path for Spark. Its option to read paths literally returns the rows
twice if there are several files."""

_WHOLE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Against a session's own settings: a file of ours that cannot be read is an error."""


_COMMITTER = {
    # Against a session's own settings: files are moved when all tasks are done, not one by one.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_NO_BOUNDS = {"delta.dataSkippingNumIndexedCols": "0"}
"""Statistics with counts only, for the reason given in `adding_counted`."""
_MOMENTS = "spark.sql.parquet.outputTimestampType"
_FOOTERS = 8
"""Parquet footers that are read at the same time."""


def write(
    frame: DataFrame,
    place: str,
    *,
    metadata: Mapping[str, str] | None = None,
    layout: Layout | None = None,
) -> None:
    """Write the rows of a frame as a new Delta table, in one commit.

    `frame`: the rows; of types that Delta has. `metadata`: the commit's user metadata. `layout`:
    the order and folders of the files; the rows must already be in that order.

    Raises DeltaError: the log cannot be written; OSError: a file cannot be read.
    """
    layout = layout or Layout(schema=frame.schema)
    with _exact_moments(frame.sparkSession):
        if not _renames_cheaply(place):
            options = {"userMetadata": json.dumps(dict(metadata or {})), **_NO_BOUNDS}
            frame.write.format("delta").mode("error").options(**options).save(place)
            return
        writer = frame.write.mode("error").options(**_COMMITTER)
        (writer.partitionBy(layout.folder) if layout.folder else writer).parquet(place)
    files, now_ms = Files(), clock_ms()
    sizes = {
        name: size
        for name, size in files.sizes(place).items()
        if name.endswith(".parquet") and not name.startswith("_")
    }
    with ThreadPoolExecutor(_FOOTERS) as pool:
        footers = pool.map(lambda name: files.footer(f"{place}/{name}"), sizes)
        adds = [
            adding_counted(
                name,
                size,
                footer.num_rows,
                modified_ms=now_ms,
                partition=layout.partition_of(name),
                bounds=layout.bounds_of(footer),
            )
            for (name, size), footer in zip(sizes.items(), footers, strict=True)
        ]
    create_table_with_add_actions(
        of_deltalake(place),
        Schema.from_json(json.dumps(_any_null(layout.schema.jsonValue()))),
        adds,
        mode="error",
        partition_by=list(layout.columns) or None,
        commit_properties=CommitProperties(custom_metadata=dict(metadata or {})),
    )


def _renames_cheaply(place: str) -> bool:
    return "://" not in place or place.startswith(("file://", "hdfs://"))


@contextmanager
def _exact_moments(spark: SparkSession) -> Iterator[None]:
    """Make Parquet hold timestamps as 64 bits of microseconds while the block runs.

    Spark's default is INT96, which other readers convert to nanoseconds: timestamps before 1677 and
    after 2262, infinity among them, come out wrong without an error.
    """
    before = spark.conf.get(_MOMENTS)
    spark.conf.set(_MOMENTS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_MOMENTS, before or "INT96")


def _any_null(kind: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a type as Delta stores it, nullable everywhere: later rows may have nulls."""
    if isinstance(kind, str):
        return "string" if kind.startswith(("char(", "varchar(")) else kind
    match kind["type"]:
        case "struct":
            plain = {"nullable": True, "metadata": {}}
            fields = [
                {"name": field["name"], "type": _any_null(field["type"]), **plain}
                for field in kind["fields"]
            ]
            return {"type": "struct", "fields": fields}
        case "array":
            item = _any_null(kind["elementType"])
            return {"type": "array", "elementType": item, "containsNull": True}
        case "map":
            key, value = (_any_null(kind[f"{part}Type"]) for part in ("key", "value"))
            both = {"keyType": key, "valueType": value}
            return {"type": "map", **both, "valueContainsNull": True}
        case unknown:
            raise ValueError(f"Delta has no type {unknown}")


def committed(spark: SparkSession, places: Sequence[str], schema: StructType | str) -> DataFrame:
    """Read all rows of one or more Delta tables with the same columns.

    `places`: URI or absolute path of each.

    Raises TableNotFoundError: a place has no table; DeltaError: a log cannot be read.
    """
    paths: list[str] = []
    others: list[str] = []
    for place in places:
        table = DeltaTable(of_deltalake(place))
        is_whole = is_plain(table) and not table.metadata().partition_columns
        if is_whole and not PATTERN & set(place):
            paths += [f"{place}/{path}" for path in paths_of(table)]
        else:
            others.append(place)
    frames = [parquet(spark, paths, schema)] if paths else []
    frames += [spark.read.format("delta").load(place) for place in others]
    return reduce(DataFrame.unionByName, frames) if frames else spark.createDataFrame([], schema)


def parquet(spark: SparkSession, paths: Sequence[str], schema: StructType | str) -> DataFrame:
    """Read all rows of one or more Parquet files; their table's log is not asked."""
    return spark.read.schema(schema).options(**_WHOLE).parquet(*paths)
