"""Spark as the runner of a verification's tasks: it calls the verifier's own code alone.

What Spark moves are the descriptions of the tasks, as replay's are moved, with the closure of a
job: in no setting, no plan and no event; and the receipts, one short text a task.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark import cloudpickle

from replay.base.failures import translated
from replay.scan.scan import cores_of
from replay.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Given = TypeVar("Given")
_SCHEMA = "said string"


class SparkLauncher:
    """Runs each piece of work as a task of a Spark job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, work: Callable[[Given], str], items: Sequence[Given], /) -> Iterator[str]:
        """Yield the result of each item, in any order; see `Launcher`.

        Raises:
            UnavailableError: a server that runs Spark went away.
            PySparkException: a task fails again and again, or Spark does.
        """
        packed = cloudpickle.dumps((work, list(items)))  # type: ignore[no-untyped-call]

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from changelog.runtime.imports import find_ours_first  # noqa: PLC0415 - there

            find_ours_first()  # before the first module of ours is looked for by its name
            do, all_given = cloudpickle.loads(packed)
            for batch in numbers:
                results = [do(all_given[number]) for number in batch.column(0).to_pylist()]
                yield pa.RecordBatch.from_arrays([pa.array(results, pa.string())], ["said"])

        count = len(items)
        frame = self._spark.range(0, count, 1, max(1, count)).mapInArrow(task, _SCHEMA)
        with translated():
            yield from (row.said for row in frame.collect())


def spare_cores(spark: SparkSession) -> int:
    """Return the number of cores of this machine that the tasks of a session do not use."""
    used = 0 if is_cluster(spark) else cores_of(spark)
    return (os.cpu_count() or 1) - used


def is_cluster(spark: SparkSession) -> bool:
    """Tell whether a session has executors other than its driver."""
    return not is_local(spark.conf.get("spark.master", "local") or "local")
