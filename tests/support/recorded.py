"""Topics that a real Debezium wrote (`tests/support/record_debezium.py`), put on a broker again."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.rows.codec import frame, unframe
from replay.broker.topics import inspect
from tests.support.wait import wait_until

FOLDER = Path(__file__).parents[1] / "fixtures" / "debezium"


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Recording:
    """A topic of Debezium.

    Attributes:
        partitions: how many it had.
        records: in the order of their offsets.
        schemas: by part of a record those of the registry, each with the id that records bear.
        rows: of the table, when the recording ended: PostgreSQL's text of each value.
    """

    partitions: int
    records: list[Record]
    schemas: dict[str, list[dict[str, Any]]]
    rows: list[dict[str, str | None]]


def recording(form: str) -> Recording:
    with gzip.open(FOLDER / f"{form}.jsonl.gz", "rt", encoding="utf-8") as file:
        head, *lines = map(json.loads, file)
    read = base64.b64decode if head["schemas"] else str.encode
    records = [
        Record(
            line["partition"],
            None if line["key"] is None else read(line["key"]),
            None if line["value"] is None else read(line["value"]),
            [(name, text.encode()) for name, text in line["headers"]],
        )
        for line in lines
    ]
    return Recording(head["partitions"], records, head["schemas"], head["rows"])


class RecordedLog:
    def __init__(
        self,
        kafka: KafkaConnection,
        registry: RegistryConnection,
        topic: str,
        found: Recording,
        settings: Mapping[str, str],
    ) -> None:
        self.kafka, self.registry, self.topic, self.found = kafka, registry, topic, found
        admin = AdminClient(kafka.client_config())
        made = admin.create_topics([NewTopic(topic, found.partitions, 1, config=dict(settings))])
        made[topic].result()
        wait_until(lambda: topic in inspect(kafka, [topic]), 30, f"topic {topic}")
        self._ids = self._register()

    def _register(self) -> dict[int, int]:
        """Register the schemas; returns their ids here by the ids that the records bear."""
        with closing(SchemaRegistryClient.new_client(self.registry.client_config())) as client:
            return {
                each["id"]: client.register_schema(
                    f"{self.topic}-{part}", Schema(json.dumps(each["schema"]), "AVRO")
                )
                for part, versions in self.found.schemas.items()
                for each in versions
            }

    def put(self, wanted: Callable[[int], bool] = lambda _: True) -> None:
        """Write the records whose place in the recording is wanted, each to its partition."""
        producer = Producer(self.kafka.client_config(enable_idempotence=True))
        for place, each in enumerate(self.found.records):
            if wanted(place):
                producer.produce(
                    self.topic,
                    key=self._raw(each.key),
                    value=self._raw(each.value),
                    partition=each.partition,
                    headers=each.headers,  # type: ignore[arg-type]
                )
        assert producer.flush(30) == 0

    def _raw(self, raw: bytes | None) -> bytes | None:
        if raw is None or not self._ids:
            return raw
        schema_id, body = unframe(raw)
        return frame(self._ids[schema_id]) + body
