"""Records that could not be read, kept with the reason: the Delta table `_quarantine`.

A record stands there once, however often it is met: by the id of its topic, its partition and
its offset. A record that decides about no row, since a newer one of its key is there, is never
read and so never quarantined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from replay.result.state import States
from replay.spark.files import uri_of
from views.base.config import RebuildSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "_quarantine"
_PLACE = ("topic", "topic_id", "partition", "offset")
SCHEMA = (
    "topic string, topic_id string, partition int, offset bigint, key binary, value binary, "
    "reason string, run string, at timestamp"
)


def write_quarantined(
    spark: SparkSession, settings: RebuildSettings, replay: States, run: str
) -> dict[TableName, int]:
    """Write the records that a replay could not read; returns how many of each table.

    Raises:
        VerdictError: records vanished under the scan.
        UnavailableLogError: the brokers stopped answering.
    """
    place = f"{uri_of(settings.warehouse)}/{FOLDER}"
    counts = {}
    for table, state in replay.states.items():
        if state.quarantined is None:
            continue
        topic = replay.cut.topics[table]
        quarantined = state.quarantined.select(
            "topic",
            F.lit(replay.frontier.topic_ids.get(topic, "")).alias("topic_id"),
            "partition",
            "offset",
            "key",
            "value",
            "reason",
            F.lit(run).alias("run"),
            F.current_timestamp().alias("at"),
        ).persist()
        try:
            with translated():
                counts[table] = quarantined.count()
            if counts[table]:
                _append(spark, place, quarantined)
        finally:
            quarantined.unpersist()
    return counts


def _append(spark: SparkSession, place: str, quarantined: DataFrame) -> None:
    empty = spark.createDataFrame([], SCHEMA)
    empty.write.format("delta").mode("append").save(place)  # makes the table at the first time
    written = spark.read.format("delta").load(place).select(*_PLACE)
    quarantined.join(written, list(_PLACE), "left_anti").select(*empty.columns).write.format(
        "delta"
    ).mode("append").save(place)
