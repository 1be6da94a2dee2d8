"""Bad records of a task: counted against the limit, and sent to the topic of dead letters."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from confluent_kafka import Message, Producer
from confluent_kafka.admin import NewTopic

from changelog.connect.postgres.target import RefusedRecord
from changelog.connect.rules.settings import SinkConnectorSettings
from changelog.connect.rules.topics import check_dead_letters
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import SinkError
from changelog.contract.log.topic import twin_of
from changelog.kafka.clients import REQUEST_S, make_client
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import explained
from changelog.kafka.send import OutgoingRecord, send
from changelog.sink.claimed import check_unclaimed

log = logging.getLogger("changelog.connect")

_PREFIX = "__connect.errors."
_AGAIN_S = 1.0


class BadRecords:
    """Handles the bad records of one task."""

    def __init__(self, kafka: KafkaConnection, settings: SinkConnectorSettings, task: int) -> None:
        self._kafka, self._settings, self._task = kafka, settings, task
        self._producer: Producer | None = None
        self.count = 0

    def tell(
        self, refused: Sequence[RefusedRecord], messages: Mapping[tuple[str, int, int], Message]
    ) -> None:
        """Send records to the topic of dead letters, and wait until the brokers have them.

        Afterwards the offsets may move past them.

        Raises SinkError: there are too many bad records; LogError: the topic does not take them.
        """
        if not refused:
            return
        limit = self._settings.error_limit
        if limit is not None and self.count + len(refused) > limit:
            topic, partition, offset = refused[0].place
            raise SinkError(
                f'the record at offset {offset} of partition {partition} of topic "{topic}" cannot '
                f"be written: {refused[0].reason}"
                + (
                    f" (bad records: {self.count + len(refused)}, errorLimit {limit})"
                    if limit
                    else ""
                ),
                hint="correct the table or the configuration and restart the task, or set "
                "errors.tolerance=all with errors.deadletterqueue.topic.name",
            )
        if not self._settings.dead_letters:
            self.count += len(refused)
            for record in refused:
                log.warning("%s: left out %s: %s", self._settings.name, record.place, record.reason)
            return
        name = self._settings.dead_letters
        letters = (self._letter(record, messages[record.place]) for record in refused)
        with explained(f'topic "{name}" does not take dead letters'):
            send(self._opened(), name, letters, answer_s=2 * REQUEST_S)
        self.count += len(refused)

    def _letter(self, refused: RefusedRecord, message: Message) -> OutgoingRecord:
        topic, partition, offset = refused.place
        headers = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "connector.name": self._settings.name,
            "task.id": self._task,
            "stage": "TASK_PUT",
            "exception.class.name": "changelog.BadRecordError",
            "exception.message": refused.reason,
        }
        error_headers = [(_PREFIX + name, str(value).encode()) for name, value in headers.items()]
        return OutgoingRecord(
            message.key(), message.value(), [*(message.headers() or ()), *error_headers]
        )

    def _opened(self) -> Producer:
        if self._producer is None:
            name = self._settings.dead_letters
            cluster = Cluster(self._kafka)
            check_unclaimed(self._kafka, name)
            existing = cluster.describe(filter(None, [name, twin_of(name)]))
            if name in existing:
                check_dead_letters(name, existing, existing[name].settings)
            else:
                cluster.create([NewTopic(name, 1, self._settings.dead_replicas)])
            config = self._kafka.client_config(enable_idempotence=True)
            self._producer = make_client(Producer, config)
        return self._producer

    def close(self) -> None:
        """Close the producer; its records were acknowledged when they were sent."""
        if self._producer is not None:
            self._producer.flush(_AGAIN_S)
