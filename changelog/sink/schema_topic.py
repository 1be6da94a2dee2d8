"""Schemas of the tables without a registry: records of a topic of their own.

JSON documents bear no schema id. What their columns are, since when, and which columns make the
key is written here, in the same words as a registry would get them
(`changelog.contract.rows.schema`): capture compares with it when a table changes, and readers of
the documents learn the types.

Key of a record: subject and fingerprint of the schema; value: the schema. The newest record of a
subject is its newest version.
"""

from __future__ import annotations

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import KeyConflictError
from changelog.contract.log.topic import schema_key, schema_noted
from changelog.contract.rows.evolution import SchemaVersion
from changelog.kafka.cluster import describe
from changelog.kafka.scan import OffsetRange, scan
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import WRITE_S, LogProducer
from changelog.sink.registry import described, same_schema

_KEY, _VALUE = "key", "value"


class SchemaTopic:
    """Keeps the schemas of topics; does and raises what `SchemaRegistry` does."""

    def __init__(self, kafka: KafkaConnection, topic: str, frontiers: FrontierLog) -> None:
        """Prepare; nothing is read yet. The topic has one partition, and is there by a note."""
        self._kafka = kafka
        self._topic = topic
        self._frontiers = frontiers
        self._noted: dict[str, list[str]] | None = None

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def register_key(self, topic: str, schema: str) -> int:
        """Note a topic's key schema; the first one stays for the topic's life. Gives 0.

        Raises SchemaConflictError: the topic has another key schema.
        """
        if not self._versions(topic, _KEY):
            self._write(topic, _KEY, schema)
        self.check_key(topic, schema)
        return 0

    def key_id(self, topic: str) -> int | None:
        """Return 0 for a topic whose key schema is noted, else None."""
        return 0 if self._versions(topic, _KEY) else None

    def check_value(self, topic: str, schema: str, *, fresh: bool = False) -> None:
        """Check that a topic's value schema would be taken: any is."""

    def check_key(self, topic: str, schema: str) -> None:
        """Check that a topic's keys have this schema, or none yet; writes nothing.

        Raises SchemaConflictError: they have another.
        """
        versions = self._versions(topic, _KEY)
        if versions and not same_schema(versions[0], schema):
            raise KeyConflictError(
                f'topic "{topic}": the primary key is now {described(schema)}, '
                f"the topic's keys are {described(versions[0])}",
                hint="give the table its old key again, or capture it under another --topic-prefix "
                "and --slot",
            )

    def register_value(self, topic: str, schema: str, *, fresh: bool = False) -> int:  # noqa: ARG002 - nothing is refused here
        """Note a topic's value schema when it is new. Gives 0: no record bears a number."""
        if not any(same_schema(version, schema) for version in self._versions(topic, _VALUE)):
            self._write(topic, _VALUE, schema)
        return 0

    def values(self, topic: str) -> list[SchemaVersion]:
        """Return the versions of a topic's value schema, the oldest first.

        Raises CorruptRecordError: one is not ours.
        """
        return [SchemaVersion.of(version, 0) for version in self._versions(topic, _VALUE)]

    def _versions(self, topic: str, part: str) -> list[str]:
        if self._noted is None:
            self._noted = self._read()
        return self._noted.setdefault(f"{topic}-{part}", [])

    def _read(self) -> dict[str, list[str]]:
        if not describe(self._kafka, [self._topic]):
            return {}  # before the first start
        ((end,),) = self._frontiers.ends([self._topic]).values()
        versions: dict[str, list[str]] = {}
        for record in scan(self._kafka, [OffsetRange(self._topic, 0, 0, end)]):
            noted = schema_noted(record.key(), record.value())
            if noted is not None:
                versions.setdefault(noted[0], []).append(noted[1])
        return versions

    def _write(self, topic: str, part: str, schema: str) -> None:
        """Write a schema, acknowledged before any record that it describes is made."""
        versions, subject = self._versions(topic, part), f"{topic}-{part}"
        producer = LogProducer.open(self._kafka, {"linger.ms": 0}, on_wait=self._frontiers.on_wait)
        try:
            producer.produce(self._topic, schema_key(subject, schema), schema.encode("utf-8"), [])
            producer.flush(WRITE_S)
        finally:
            producer.close()
        versions.append(schema)
