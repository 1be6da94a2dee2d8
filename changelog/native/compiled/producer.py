"""librdkafka's producer without confluent-kafka's: it takes records out of the library's memory.

confluent-kafka's object takes one record a call and has no way to its handle, so this one is made
beside it, by the same copy of librdkafka and its public interface. Errors are confluent-kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from changelog.contract.base.headers import Headers
from changelog.native.base.records import PARTITION_UA, Texts
from changelog.native.compiled import client
from changelog.native.compiled.buffers import Records
from changelog.native.compiled.library import ffi, lib


def _text(raw: Any) -> str:  # noqa: ANN401 - a C string
    return str(ffi.string(raw).decode("utf-8", "replace"))


class ProducerHandle:
    """A producer of librdkafka; one thread uses it at a time.

    It is destroyed with the object; what is queued then is dropped.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises:
            ValueError: librdkafka does not know a setting.
        """
        client.load()
        settings = client.Settings(config)
        reason = ffi.new("char[]", client.SAID_BYTES)
        raw = lib.producer_new(
            settings.names, settings.values, settings.count, reason, client.SAID_BYTES
        )
        if not raw:
            raise ValueError(_text(reason))
        self._raw = ffi.gc(raw, lib.producer_free)
        self._reported = 0
        self._code = ffi.new("int32_t *")
        self._tally = ffi.new("int64_t[2]")

    @property
    def sent_records(self) -> int:
        """Return the number of records that `send_records` has queued."""
        return int(self._tally[0])

    @property
    def sent_bytes(self) -> int:
        """Return the size of their keys and values."""
        return int(self._tally[1])

    def failure(self) -> tuple[KafkaError, str] | None:
        """Return the first failure and the topic of its record; without one it is the session's."""
        failure = lib.producer_failure(self._raw)
        return (_error(failure), _text(failure.topic)) if failure.code else None

    def told(self) -> KafkaError | None:
        """Return the latest error of the connections, once."""
        count = lib.producer_tellings(self._raw)
        if count == self._reported:
            return None
        self._reported = count
        return _error(lib.producer_told(self._raw))

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int = PARTITION_UA,
    ) -> int:
        """Queue a record; returns an error's code, or 0."""
        names = [ffi.new("char[]", name.encode()) for name, _ in headers]
        raw = [content.encode() if isinstance(content, str) else content for _, content in headers]
        contents = [
            ffi.NULL if content is None else ffi.from_buffer("uint8_t[]", content)
            for content in raw
        ]
        sizes = [len(content or b"") for content in raw]
        return int(
            lib.producer_send(
                self._raw,
                topic.encode(),
                ffi.NULL if key is None else key,
                len(key or b""),
                ffi.NULL if value is None else value,
                len(value or b""),
                partition,
                names,
                contents,
                sizes,
                len(names),
            )
        )

    def send_records(
        self,
        topic: str,
        records: Records,
        first: int,
        end: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        """Queue some records; return the place after the last one taken, and an error code or 0."""
        behind = lib.producer_send_records(
            self._raw, topic.encode(), records.raw, first, end, partition, self._code, self._tally
        )
        return int(behind), int(self._code[0])

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
        columns = [
            part
            for column in (keys, values)
            for part in (
                (ffi.NULL, ffi.NULL)
                if column is None
                else (
                    ffi.from_buffer("int32_t[]", column[0]),
                    ffi.from_buffer("uint8_t[]", column[1]),
                )
            )
        ]
        behind = lib.producer_send_columns(
            self._raw, topic.encode(), *columns, first, len(values[0]) - 1, partition, self._code
        )
        return int(behind), int(self._code[0])

    def poll(self, timeout_s: float) -> None:
        """Process the broker's reports; waits until one has come."""
        lib.producer_poll(self._raw, int(timeout_s * 1000))

    def flush(self, timeout_s: float) -> int:
        """Wait for queued records; return an error code or 0."""
        return int(lib.producer_flush(self._raw, int(timeout_s * 1000)))

    def purge(self) -> None:
        """Drop queued records."""
        lib.producer_purge(self._raw)

    def __len__(self) -> int:
        """Return the number of records not acknowledged yet."""
        return int(lib.producer_queued(self._raw))

    def init_transactions(self, timeout_s: float) -> KafkaError | None:
        """Fence off earlier producers of this transactional id."""
        return self._transact(lib.TRANSACTIONS_INIT, timeout_s)

    def begin_transaction(self) -> KafkaError | None:
        """Begin a transaction."""
        return self._transact(lib.TRANSACTION_BEGIN, 0)

    def commit_transaction(self, timeout_s: float) -> KafkaError | None:
        """Commit the transaction."""
        return self._transact(lib.TRANSACTION_COMMIT, timeout_s)

    def abort_transaction(self, timeout_s: float) -> KafkaError | None:
        """Take the records of the transaction back."""
        return self._transact(lib.TRANSACTION_ABORT, timeout_s)

    def _transact(self, step: int, timeout_s: float) -> KafkaError | None:
        failure = ffi.new("failure *")
        lib.producer_transact(self._raw, step, int(timeout_s * 1000), failure)
        return _error(failure) if failure.code else None


def _error(failure: Any) -> KafkaError:  # noqa: ANN401 - the library's `failure`
    return KafkaError(
        failure.code,
        _text(failure.said) or None,
        bool(failure.is_fatal),
        bool(failure.is_retriable),
        bool(failure.requires_abort),
    )
