"""Rows that servers of sinks refuse, kept with the reason: the Delta table `_refused`.

A generation itself says which rows it goes without, so that this table can be written behind it:
what a process that was killed did not write, the next round does. A row of a generation stands
there once for a sink, and stays when the generation has it again or is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.secret import redacted
from changelog.contract.rows.relation import TableName
from changelog.runtime.stores import of_deltalake
from replay.base.failures import translated
from replay.result.state import States
from replay.spark.files import uri_of
from replay.spark.warehouse import SETTINGS, read_rows, text_literal
from views.base.config import RebuildSettings
from views.sinks.base import Sink, left_out_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "_refused"
_SCHEMA = pa.schema(
    [
        ("view", pa.string()),
        ("generation", pa.int64()),
        ("sink", pa.string()),
        ("key", pa.string()),
        ("reason", pa.string()),
        ("run", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def note_refused(
    warehouse: str, view: str, generation: int, sinks: Mapping[str, Sink], run: str
) -> dict[str, int]:
    """Note the rows that sinks of a generation have refused, unless they are noted already.

    Returns:
        The number of refused rows of each sink that has any.
    """
    refused_by_sink = {name: left_out_of(sink, generation) for name, sink in sinks.items()}
    rows = [
        {"view": view, "generation": generation, "sink": name, "key": row.key,
         "reason": row.reason, "run": run, "at": datetime.now(UTC)}
        for name, refused in refused_by_sink.items()
        for row in refused
    ]  # fmt: skip
    if rows:
        place = of_deltalake(f"{warehouse.rstrip('/')}/{FOLDER}")
        try:
            noted = _known(place, view, generation)
            new = [row for row in rows if (row["sink"], row["key"]) not in noted]
            if new:
                _append(place, pa.Table.from_pylist(new, schema=_SCHEMA))
        except (DeltaError, OSError) as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise ChangelogError(
                f"the table of refused rows {redacted(place)} cannot be written: {line}"
            ) from error
    return {name: len(refused) for name, refused in refused_by_sink.items() if refused}


def _known(place: str, view: str, generation: int) -> set[tuple[str, str]]:
    try:
        table = DeltaTable(place)
    except TableNotFoundError:
        return set()
    condition = f"view = {text_literal(view)} AND generation = {generation}"
    noted = read_rows(table, ["sink", "key"], condition)
    return set(zip(noted["sink"].to_pylist(), noted["key"].to_pylist(), strict=True))


@retry(retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(5), reraise=True)
def _append(place: str, table: pa.Table) -> None:
    """Append; only the very first two appends can conflict, since both make the table."""
    write_deltalake(place, table, mode="append", configuration=SETTINGS)


# A record stands there once, however often it is met: by the id of its topic, its partition and
# its offset. A record that decides about no row, since a newer one of its key is there, is never
# read and so never quarantined.
QUARANTINE_FOLDER = "_quarantine"
_PLACE = ("topic", "topic_id", "partition", "offset")
QUARANTINE_SCHEMA = (
    "topic string, topic_id string, partition int, offset bigint, key binary, value binary, "
    "reason string, run string, at timestamp"
)


def write_quarantined(
    spark: SparkSession, settings: RebuildSettings, replay: States, run: str
) -> dict[TableName, int]:
    """Write the records that a replay could not read; returns how many of each table.

    Raises VerdictError: records vanished under the scan; UnavailableLogError: the brokers stopped
    answering.
    """
    place = f"{uri_of(settings.warehouse)}/{QUARANTINE_FOLDER}"
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
                _append_quarantined(spark, place, quarantined)
        finally:
            quarantined.unpersist()
    return counts


def _append_quarantined(spark: SparkSession, place: str, quarantined: DataFrame) -> None:
    empty = spark.createDataFrame([], QUARANTINE_SCHEMA)
    empty.write.format("delta").mode("append").save(place)  # makes the table at the first time
    written = spark.read.format("delta").load(place).select(*_PLACE)
    quarantined.join(written, list(_PLACE), "left_anti").select(*empty.columns).write.format(
        "delta"
    ).mode("append").save(place)
