"""Delta tables that this program wrote, read as the files that their log names.

Spark asks a Delta log by jobs of its own: to put a table together, and again for each place in a
plan that reads it. For a table of few rows these jobs are most of the time. deltalake reads the
same log in this process, in milliseconds, and Spark gets the Parquet files; a folder would not do,
since what a task left that was tried twice lies there too (docs/decisions/0023).

It holds for tables whose rows are all that their files have. One whose features say otherwise, by
the defaults of somebody's Spark, is read by Spark's own reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from replay.warehouse import is_plain, of_deltalake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_PATTERN = frozenset("*?[]{}\\")
"""What Spark takes for a pattern in a path. Its option not to gives rows of several files twice."""

_WHOLE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Whatever a session says otherwise: a file of ours that cannot be read is an error."""


def committed(spark: SparkSession, places: Sequence[str], schema: StructType | str) -> DataFrame:
    """Read all rows of some Delta tables with the same columns, one at least.

    Args:
        spark: the session.
        places: URI or absolute path of each.
        schema: of their rows.

    Raises:
        TableNotFoundError: there is none at a place.
        DeltaError: a log cannot be read.
    """
    paths: list[str] = []
    others: list[str] = []
    for place in places:
        table = DeltaTable(of_deltalake(place))
        is_whole = is_plain(table) and not table.metadata().partition_columns
        if is_whole and not _PATTERN & set(place):
            paths += _files(place, table)
        else:
            others.append(place)
    found = [spark.read.schema(schema).options(**_WHOLE).parquet(*paths)] if paths else []
    found += [spark.read.format("delta").load(place) for place in others]
    return reduce(DataFrame.unionByName, found) if found else spark.createDataFrame([], schema)


def _files(place: str, table: DeltaTable) -> list[str]:
    listed = pa.table(table.get_add_actions())
    return [f"{place}/{path}" for path in listed.column("path").to_pylist()]
