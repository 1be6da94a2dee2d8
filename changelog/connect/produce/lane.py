"""Writes requests to their topics by transactions: whole, and with their ids.

A lane is a thread with one transactional producer. It writes all requests that wait in one
transaction. A lane of ids belongs to a partition of the ids' topic, and its transactional id is
that of the partition: who begins it fences the producer of another worker, aborts what that one
had not committed, and then reads which ids are there. So an id that is not there was not written,
and will not be, not even by a worker that was only thought dead.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changelog.connect.produce.errors import KAFKA, KAFKA_LATER, OTHER_BODY, ProduceError
from changelog.connect.produce.remembered import Answer, RememberedIds, noted
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError
from changelog.contract.base.secret import redacted
from changelog.kafka.clients import make_client, writing_config
from changelog.kafka.errors import meaning
from changelog.kafka.send import OutgoingRecord, queue_record

log = logging.getLogger("changelog.connect")

TRANSACTION_MS = 10_000
"""After this time without a commit the brokers abort a transaction of a worker that died."""
_ANSWER_S = 30.0
_MOST_REQUESTS, _MOST_BYTES = 500, 8 << 20
_ATTEMPTS = 6
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
_SILENT = logging.getLogger("changelog.connect.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """A request to be written, and the promise of its answer."""

    topic: str
    records: Sequence[OutgoingRecord]
    key_schema_id: int | None = None
    value_schema_id: int | None = None
    name: bytes = b""  # of its id; empty without one
    digest: bytes = b""  # of its body
    answer: Future[Answer] = field(default_factory=Future)

    @property
    def size(self) -> int:
        """Return the number of bytes of its records."""
        return sum(len(part) for record in self.records for part in record[:2] if part)


class _AbortedError(Exception):
    """A transaction was given up, so that nothing of it stands."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


class _LostError(Exception):
    """The producer is of no more use: a new one of its transactional id has to begin."""

    def __init__(self, message: str, *, may_stand: bool = False) -> None:
        super().__init__(message)
        self.may_stand = may_stand  # whether the transaction may be committed


class Lane:
    """Writes requests one transaction after the other, in a thread of its own."""

    def __init__(
        self, kafka: KafkaConnection, transactional_id: str, ids: RememberedIds | None, topic: str
    ) -> None:
        """Take the ids and their topic; without `ids` no request has one."""
        self._config = {
            **writing_config(
                kafka,
                {
                    "partitioner": "murmur2_random",
                    "transactional.id": transactional_id,
                    "transaction.timeout.ms": TRANSACTION_MS,
                },
                wait_s=TRANSACTION_MS / 1000,
            ),
            "delivery.report.only.error": False,
            "logger": _SILENT,
        }
        self._ids, self._topic = ids, topic
        self._producer: Producer | None = None
        self._waiting: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=transactional_id, daemon=True)
        self._thread.start()

    def submit(self, outgoing: Outgoing) -> Future[Answer]:
        """Queue a request; its future gives the answer, or raises ProduceError."""
        self._waiting.put(outgoing)
        return outgoing.answer

    def close(self) -> None:
        """Write what waits, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next()
            while batch:
                batch = self._tried(batch)

    def _next(self) -> tuple[list[Outgoing], bool]:
        """Wait for a request; return it with all that wait too, and whether there will be more."""
        batch, size = [], 0
        outgoing = self._waiting.get()
        while outgoing is not None:
            batch.append(outgoing)
            size += outgoing.size
            if len(batch) >= _MOST_REQUESTS or size >= _MOST_BYTES:
                return batch, True
            try:
                outgoing = self._waiting.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _tried(self, batch: Sequence[Outgoing]) -> list[Outgoing]:
        """Answer requests; return the ones that wait for an earlier request with the same id."""
        try:
            return self._answered(batch)
        except Exception as error:
            log.exception("records by HTTP were not written")
            for outgoing in batch:
                _fail(outgoing, ProduceError(KAFKA, f"Kafka error: {type(error).__name__}"))
            return []

    def _answered(self, batch: Sequence[Outgoing]) -> list[Outgoing]:
        for attempt in range(_ATTEMPTS):
            try:
                self._take_over()
                fresh, later = self._not_answered(batch)
                if fresh:
                    self._write_apart(fresh)
            except _LostError as error:
                log.info("the producer of records by HTTP begins anew: %s", error)
                self._producer = None
                for outgoing in batch:
                    if error.may_stand and not outgoing.name:  # it is not written a second time
                        _fail(outgoing, ProduceError(KAFKA_LATER, f"may be written: {error}"))
                time.sleep(random.uniform(0, 0.05 * 2**attempt))  # noqa: S311 - workers alternate
            except (KafkaException, LogError) as error:
                self._producer = None
                failure = f"Retriable Kafka error: {redacted(str(error))}"
                for outgoing in batch:
                    _fail(outgoing, ProduceError(KAFKA_LATER, failure))
            else:
                return later
        for outgoing in batch:
            _fail(outgoing, ProduceError(KAFKA_LATER, "another worker writes requests with ids"))
        return []

    def _take_over(self) -> None:
        """Have a producer, and know all ids of the partition.

        Raises KafkaException: the brokers do not answer, or refuse; LogError: they do so when the
        ids are read.
        """
        if self._producer is None:
            producer = make_client(Producer, self._config)
            _repeated(producer.init_transactions)
            if self._ids is not None:
                self._ids.read_on()
            self._producer = producer

    def _not_answered(self, batch: Sequence[Outgoing]) -> tuple[list[Outgoing], list[Outgoing]]:
        """Answer the requests that were written before; return the new ones, and their twins."""
        fresh: dict[bytes | int, Outgoing] = {}
        later = []
        for outgoing in batch:
            if outgoing.answer.done():
                continue
            entry = self._ids.answered(outgoing.name) if self._ids and outgoing.name else None
            if entry is not None:
                digest, answer = entry
                if digest == outgoing.digest:
                    _resolve(outgoing, answer)
                else:
                    _fail(outgoing, ProduceError(OTHER_BODY, "this id came with another request"))
            elif outgoing.name in fresh:
                later.append(outgoing)
            else:
                fresh[outgoing.name or id(outgoing)] = outgoing
        return list(fresh.values()), later

    def _write_apart(self, batch: Sequence[Outgoing], attempts: int = _ATTEMPTS) -> None:
        """Write requests together; if one of them is refused, each in a transaction of its own."""
        try:
            self._write(batch)
        except _AbortedError as aborted:
            # After a refused record librdkafka purges the records of the next transaction, or lets
            # them wait until they time out.
            self._producer = None
            if aborted.error.code() in _PURGED and attempts:
                self._take_over()
                self._write_apart(batch, attempts - 1)
                return
            refusal = _refusal(aborted)
            if len(batch) == 1 or refusal.error_code == KAFKA_LATER:
                for outgoing in batch:
                    _fail(outgoing, refusal)
                return
            for outgoing in batch:
                self._take_over()
                self._write_apart([outgoing])

    def _write(self, batch: Sequence[Outgoing]) -> None:
        """Write requests in one transaction, and answer them.

        Raises _AbortedError: a record is refused; _LostError: the producer is fenced or broken.
        """
        producer = self._producer
        if producer is None:
            raise _LostError("it has ended")
        try:
            producer.begin_transaction()
            reports = [self._sent(producer, outgoing.topic, outgoing.records) for outgoing in batch]
            self._flush(producer, reports)
            answers = [
                Answer(_places(report), outgoing.key_schema_id, outgoing.value_schema_id)
                for outgoing, report in zip(batch, reports, strict=True)
            ]
            notes = self._notes(batch, answers)
            report = self._sent(producer, self._topic, notes)
            self._flush(producer, [report])
        except KafkaException as error:
            self._abort(producer, error.args[0])
        except SystemError as error:  # how a fatal error comes while reports are given
            raise _LostError(str(error.__cause__)) from error
        self._commit(producer)
        for note in notes:
            if self._ids is not None and note.key and note.value:
                self._ids.note(note.key, note.value)
        for outgoing, answer in zip(batch, answers, strict=True):
            _resolve(outgoing, answer)

    def _notes(self, batch: Sequence[Outgoing], answers: Sequence[Answer]) -> list[OutgoingRecord]:
        """Return the records of the requests' ids."""
        if self._ids is None:
            return []
        return [
            OutgoingRecord(outgoing.name, noted(outgoing.digest, answer), (), self._ids.partition)
            for outgoing, answer in zip(batch, answers, strict=True)
            if outgoing.name
        ]

    def _sent(
        self, producer: Producer, topic: str, records: Sequence[OutgoingRecord]
    ) -> list[Message | KafkaError | None]:
        """Queue records; return a list that has a report of each once they are flushed."""
        reports: list[Message | KafkaError | None] = [None] * len(records)

        def delivered(place: int, error: KafkaError | None, message: Message) -> None:
            reports[place] = message if error is None else error

        for place, record in enumerate(records):
            try:
                queue_record(producer, topic, record, partial(delivered, place))
            except KafkaException as error:
                self._abort(producer, error.args[0])
        return reports

    def _flush(
        self, producer: Producer, reports: Sequence[Sequence[Message | KafkaError | None]]
    ) -> None:
        """Wait for the reports of all records; give up the transaction if one is refused."""
        producer.flush(_ANSWER_S)
        errors = [
            delivered
            for report in reports
            for delivered in report
            if isinstance(delivered, KafkaError)
        ]
        if errors:
            # One that was purged went because of another one.
            self._abort(producer, min(errors, key=lambda error: error.code() in _PURGED))
        if any(delivered is None for report in reports for delivered in report):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _abort(self, producer: Producer, error: KafkaError) -> NoReturn:
        """Give up the transaction; raises _AbortedError, or _LostError where that is not sure."""
        if error.fatal():
            raise _LostError(error.str())
        try:
            _repeated(producer.abort_transaction)
        except KafkaException as failure:
            raise _LostError(failure.args[0].str()) from failure
        raise _AbortedError(error)

    def _commit(self, producer: Producer) -> None:
        """Commit; raises _AbortedError, or _LostError where nobody knows whether it stands."""
        try:
            _repeated(producer.commit_transaction)
        except KafkaException as error:
            cause = error.args[0]
            if cause.txn_requires_abort():
                self._abort(producer, cause)
            raise _LostError(cause.str(), may_stand=True) from error


def _repeated(call: Callable[[float], None]) -> None:
    """Call until it is done: librdkafka goes on where a call was timed out.

    Raises KafkaException: it is refused, or not done within `_ANSWER_S`.
    """
    deadline = time.monotonic() + _ANSWER_S
    while True:
        try:
            call(1.0)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def _places(report: Sequence[Message | KafkaError | None]) -> list[tuple[int, int]]:
    """Return partition and offset of each record; all of them were written."""
    return [
        (delivered.partition() or 0, delivered.offset() or 0)
        for delivered in report
        if isinstance(delivered, Message)
    ]


def _refusal(aborted: _AbortedError) -> ProduceError:
    passes = meaning(aborted.error).passes
    code, text = (KAFKA_LATER, "Retriable Kafka error") if passes else (KAFKA, "Kafka error")
    return ProduceError(code, f"{text}: {aborted}; nothing is written")


def _resolve(outgoing: Outgoing, answer: Answer) -> None:
    with suppress(InvalidStateError):  # its client is gone
        outgoing.answer.set_result(answer)


def _fail(outgoing: Outgoing, error: ProduceError) -> None:
    with suppress(InvalidStateError):
        outgoing.answer.set_exception(error)
