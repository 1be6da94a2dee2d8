"""The state of a frontier in one call: frozen, its schemas looked up, opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.base.clock import Clock, clock_ms
from replay.base.config import ReplaySettings
from replay.cut.cut import make_cut
from replay.decode.schemas import schemas_of
from replay.pipeline.replay import Replay, open_replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay_of(
    spark: SparkSession,
    kafka: KafkaConnection,
    registry: RegistryConnection,
    record: FrontierRecord,
    tables: Sequence[TableName],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
) -> Replay:
    """Open the states of `tables` at a frontier."""
    cut = make_cut(kafka, record, tables, settings=settings, clock=clock)
    cut.verdict.require()
    schemas = schemas_of(registry, kafka, record.frontier, cut.topics)
    return open_replay(spark, kafka, cut, schemas, clock=clock)
