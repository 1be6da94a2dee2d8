"""confluent-kafka's producer in the place of the one in C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changelog.contract.base.headers import Headers, Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.native.base.records import PARTITION_UA, Texts
from changelog.native.plain.buffers import Records


class _ReportedErrors:
    """Errors that librdkafka reports; kept apart so that the handle goes with its last reference.

    A client that knows its own handle would keep its threads and sockets until Python looks for
    cycles, which a process that handles rows does rarely.
    """

    def __init__(self) -> None:
        self.failure: tuple[KafkaError, str] | None = None
        self.told: KafkaError | None = None

    def deliver(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self.failure is None:
            self.failure = error, message.topic() or ""

    def hear(self, error: KafkaError) -> None:
        self.told = error
        if error.fatal() and self.failure is None:
            self.failure = error, ""


class ProducerHandle:
    """A producer; one thread uses it at a time.

    It is destroyed with the object; what is queued then is dropped.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises:
            KafkaException: librdkafka does not know a setting.
        """
        self._heard = _ReportedErrors()
        own = {"error_cb": self._heard.hear, "on_delivery": self._heard.deliver}
        self._producer = Producer({**config, **own})
        self.sent_records = 0
        self.sent_bytes = 0

    def failure(self) -> tuple[KafkaError, str] | None:
        """Return the first failure and the topic of its record; without one it is the session's."""
        return self._heard.failure

    def told(self) -> KafkaError | None:
        """Return the latest error of the connections, once."""
        error, self._heard.told = self._heard.told, None
        return error

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int = PARTITION_UA,
    ) -> int:
        """Queue a record; returns an error's code, or 0."""
        try:
            self._producer.produce(topic, value, key, partition, headers=list(headers))
        except BufferError:
            return int(KafkaError._QUEUE_FULL)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    def send_records(
        self,
        topic: str,
        records: Records,
        first: int,
        end: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        """Queue some records; return the place after the last one taken, and an error code or 0."""
        for place in range(first, end):
            if records.is_left_out(place):
                continue
            record = records[place]
            position = Position(records.epoch, Lsn(record.lsn), record.sequence)
            headers = encode_headers(position, Op(record.op), record.ts_us)
            if code := self.send(topic, record.key, record.value, headers, partition):
                return place, code
            self.sent_records += 1
            self.sent_bytes += len(record.key or b"") + len(record.value or b"")
        return end, 0

    def send_columns(
        self,
        topic: str,
        keys: Texts | None,
        values: Texts,
        first: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        """Queue rows from a place on; return the place after the last one taken, and a code or 0.

        Without keys their records have none.
        """
        for place in range(first, len(values[0]) - 1):
            key = None if keys is None else _text(keys, place)
            if code := self.send(topic, key, _text(values, place), [], partition):
                return place, code
        return len(values[0]) - 1, 0

    def poll(self, timeout_s: float) -> None:
        """Process the broker's reports; waits until one has come."""
        self._producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        """Wait for queued records; return an error code or 0."""
        return int(KafkaError._TIMED_OUT) if self._producer.flush(timeout_s) else 0

    def purge(self) -> None:
        """Drop queued records."""
        self._producer.purge()

    def __len__(self) -> int:
        """Return the number of records not acknowledged yet."""
        return len(self._producer)

    def init_transactions(self, timeout_s: float) -> KafkaError | None:
        """Fence off earlier producers of this transactional id."""
        return _told_by(lambda: self._producer.init_transactions(timeout_s))

    def begin_transaction(self) -> KafkaError | None:
        """Begin a transaction."""
        return _told_by(self._producer.begin_transaction)

    def commit_transaction(self, timeout_s: float) -> KafkaError | None:
        """Commit the records of the transaction."""
        return _told_by(lambda: self._producer.commit_transaction(timeout_s))

    def abort_transaction(self, timeout_s: float) -> KafkaError | None:
        """Take the records of the transaction back."""
        return _told_by(lambda: self._producer.abort_transaction(timeout_s))


def _text(of: Texts, place: int) -> bytes:
    ends, content = of
    return bytes(content[ends[place] : ends[place + 1]])


def _told_by(call: Callable[[], Any]) -> KafkaError | None:
    try:
        call()
    except KafkaException as error:
        refusal: KafkaError = error.args[0]
        return refusal
    return None
