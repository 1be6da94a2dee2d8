"""Numbers of a scan, counted while it runs and without a pass of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from replay.result.state import TableMetrics


@dataclass(frozen=True, slots=True)
class StateObservations:
    """Counts the records and the survivors of one state, at the first action on it."""

    records: Observation
    survivors: Observation

    def of_records(self, records: DataFrame) -> DataFrame:
        """Count what is read."""
        return counted(records, self.records)

    def of_survivors(self, survivors: DataFrame) -> DataFrame:
        """Count what survives the fold: before decoding, so that no column is read for it."""
        return survivors.observe(self.survivors, F.count(F.lit(1)).alias("rows"))

    def get(self) -> TableMetrics | None:
        """Return the numbers, or None as long as no action has read the state."""
        records, survivors = _now(self.records), _now(self.survivors)
        if not records or not survivors:
            return None
        return TableMetrics(
            records_read=records["records"],
            tombstones=records["tombstones"],
            rows=survivors["rows"],
        )


def counted(records: DataFrame, seen: Observation) -> DataFrame:
    """Let an action count what passes: `records`, and those of them that are `tombstones`."""
    return records.observe(
        seen,
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col("value").isNull()).alias("tombstones"),
    )


def counted_by_tasks(found: DataFrame, seen: Observation) -> DataFrame:
    """Count the same by the tallies of the tasks that read, and leave these out."""
    tallies = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("records", "tombstones"))
    is_record = F.col("records").isNull()
    return found.observe(seen, *tallies).where(is_record).drop("records", "tombstones")


def _now(observation: Observation) -> dict[str, int] | None:
    """Return the numbers if they are there; Spark's own `get` would wait for an action for ever."""
    made = getattr(observation, "_jo", None)
    if made is not None and not made.future().isCompleted():
        return None
    return cast("dict[str, int]", observation.get)
