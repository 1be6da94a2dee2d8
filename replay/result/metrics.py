"""Numbers of a scan, counted while it runs and without a pass of their own.

A number may be missing, and is None then. Spark forgets what it observed where its plan, at the
start or by what it finds as it runs (adaptive execution), needs no row of it: a join with an empty
table, a condition that is never true, `LIMIT 0`. Nobody may wait for such a number, nor take it
for none at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from replay.result.state import TableMetrics


@dataclass(frozen=True, slots=True)
class StateObservations:
    """Counts the records and the survivors of one state, at the first action on it."""

    records: Observation
    survivors: Observation

    def of_records(self, records: DataFrame) -> DataFrame:
        """Count the records that are read."""
        return counted(records, self.records)

    def of_survivors(self, survivors: DataFrame) -> DataFrame:
        """Count the records that survive the fold, before decoding, so that no column is read."""
        return survivors.observe(self.survivors, F.count(F.lit(1)).alias("rows"))

    def get(self) -> TableMetrics | None:
        """Return the numbers; None before an action reads the state, or where Spark has none."""
        records, survivors = observed(self.records), observed(self.survivors)
        if records is None or survivors is None:
            return None
        return TableMetrics(
            records_read=records["records"],
            tombstones=records["tombstones"],
            rows=survivors["rows"],
        )


def counted(records: DataFrame, seen: Observation) -> DataFrame:
    """Count the records that pass through an action: `records`, and `tombstones` of them."""
    return records.observe(seen, *_tallies())


def tallies(records: DataFrame) -> Mapping[str, int]:
    """Return the same numbers by a pass of its own."""
    (row,) = records.select(*_tallies()).collect()
    return row.asDict()


def _tallies() -> tuple[Column, ...]:
    return (
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col("value").isNull()).alias("tombstones"),
    )


def counted_by_tasks(records: DataFrame, seen: Observation) -> DataFrame:
    """Count the same by the tallies of the tasks that read, and leave these out."""
    sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("records", "tombstones"))
    is_record = F.col("records").isNull()
    return records.observe(seen, *sums).where(is_record).drop("records", "tombstones")


def observed(observation: Observation) -> Mapping[str, int] | None:
    """Return the counts of an action; None before one has ended, or where Spark has no counts."""
    java_observation = getattr(observation, "_jo", None)  # a session of Spark Connect has none
    if java_observation is not None:
        future = java_observation.future()
        # Spark's own `get` would wait for an action for ever, and fails on a row of no columns.
        if not future.isCompleted() or future.value().get().isFailure():
            return None
        if future.value().get().get().size() == 0:  # a row, or a map before Spark 4.1
            return None
    try:
        return observation.get or None
    except PySparkException:
        return None  # what a server could not tell
