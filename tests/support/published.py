"""Reads the committed records that `changelog publish` wrote to a topic."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from changelog.avro.framed import FramedReader
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.kafka.cluster import Cluster, describe
from changelog.kafka.scan import OffsetRange, scan
from changelog.lines.ask import bounds_of
from changelog.sink.registry import SchemaRegistry
from tests.support.wait import wait_until

_SETTLED_S = 120
Shown = tuple[Any, Any]


def unsettled(kafka: KafkaConnection, topic: str) -> int:
    """Return how many places of a topic lie behind the first that is not committed or aborted."""
    cluster = Cluster(kafka)
    partitions = range(cluster.describe([topic])[topic].partitions)
    ends = [
        sum(each.end for each in bounds_of(cluster, topic, partitions, committed=only).values())
        for only in (False, True)
    ]
    return ends[0] - ends[1]


def committed_records(
    kafka: KafkaConnection,
    topic: str,
    registry: RegistryConnection | None = None,
    *,
    settled: bool = True,
) -> list[Shown]:
    """Return all committed records: keys and values as plain values, None for a tombstone.

    Args:
        kafka: the brokers.
        topic: its name.
        registry: has the schemas of Avro; without one, keys and values are JSON.
        settled: waits for the end of a transaction that is open: a producer is told that its own
            is committed before the brokers have said so to the readers of each partition.
    """
    if settled:
        wait_until(lambda: not unsettled(kafka, topic), _SETTLED_S, "no transaction is open")
    partitions = describe(kafka, [topic])[topic].partitions
    bounds = bounds_of(Cluster(kafka), topic, range(partitions))
    ranges = [OffsetRange(topic, n, each.first, each.end) for n, each in bounds.items()]
    if registry is None:
        return [_read(record, json.loads) for record in scan(kafka, ranges)]
    with closing(SchemaRegistry(registry)) as schemas:
        read = FramedReader(schemas.schema)
        return [_read(record, read) for record in scan(kafka, ranges)]


def _read(record: Any, read: Any) -> Shown:
    key, value = record.key(), record.value()
    return (None if key is None else read(key), None if value is None else read(value))


def state_of(records: Iterable[Shown]) -> list[dict[str, Any]]:
    """Return what a compacted topic comes to: its rows, by their `id`."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in records:
        found.pop(json.dumps(key), None)
        if value is not None:
            found[json.dumps(key)] = value
    return sorted(found.values(), key=lambda each: each["id"])
