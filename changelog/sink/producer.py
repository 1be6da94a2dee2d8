"""The producer: idempotent, acknowledged by all replicas, bounded in memory.

A record counts as on the log when `flush` has returned since. librdkafka reports failures only to
a callback; a bare `flush() == 0` or the success of a later record says nothing about an earlier
one. So the first failure of any record is kept, and every later call raises it: the caller makes a
new producer and starts over from the last frontier.

With a transactional id (KIP-98) its records become visible to `read_committed` consumers only by
`commit`, all of them or none, and a producer that was thought dead cannot write any more once
another one of the same id has begun.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import lt
from typing import Any, Self

from confluent_kafka import KafkaError

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, RecordRefusedError, UnavailableLogError
from changelog.contract.base.headers import Headers
from changelog.kafka.clients import WAIT_S, make_client, writing_config
from changelog.kafka.cluster import Cluster, TopicEnds, nothing
from changelog.kafka.errors import ErrorMeaning, log_error, meaning
from changelog.native import ProducerHandle, Records
from changelog.native.records import PARTITION_UA

log = logging.getLogger("changelog.producer")

FULL_S = 0.005
CLOSE_S = 2.0
WRITE_S = 60.0
SAY_AFTER_S = 10.0
READERS_S = 10.0
"""How long a commit that is done may stay hidden from readers before that is logged."""
_ANSWER_S = 5.0
_RAISE = (
    "a row is too large for the topic's max.message.bytes: start with "
    "`-T max.message.bytes=BYTES --fix-topics` (capture.topic), which raises it and the producer's"
)
_NEVER_TAKEN = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD}

TRANSACTION_S = 60
"""After this time without a commit the broker aborts a transaction; Kafka's default."""


class LogProducer:
    """Writes records to topics."""

    def __init__(
        self,
        handle: ProducerHandle,
        *,
        on_wait: Callable[[], None] = nothing,
        is_transactional: bool = False,
        kafka: KafkaConnection | None = None,
    ) -> None:
        """Write through a client that was made with the settings of `open`.

        `kafka` are the brokers to ask, during a long wait, whether the topics still exist; or None.
        """
        self._kafka = kafka
        # called again and again while a call waits for the broker; what it raises ends the wait
        self.on_wait = on_wait
        self.records = 0  # how many were queued
        self.bytes = 0  # the size of their keys and values
        self.sent: Counter[str] = Counter()  # how many were queued, by topic
        self._failure: LogError | None = None
        self._said_at = 0.0
        self.is_transactional = is_transactional  # whether they stand only once they are committed
        self._opened_at: float | None = None
        self._producer = handle

    @classmethod
    def open(
        cls,
        kafka: KafkaConnection,
        options: Mapping[str, Any] | None = None,
        *,
        on_wait: Callable[[], None] = nothing,
        transactional_id: str = "",
        transaction_s: int = TRANSACTION_S,
    ) -> Self:
        """Begin to connect, in the background.

        Settings that the log needs cannot be changed by `options`. A `transactional_id` is for
        `take_over` and `commit`; without one, records stand at once. The broker aborts a
        transaction that is not committed after `transaction_s` seconds.

        Raises ConfigurationError: librdkafka does not know a setting.
        """
        own = {}
        if transactional_id:
            own = {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": transaction_s * 1000,
            }
        config = {**(options or {}), "partitioner": "murmur2_random", **own}
        handle = make_client(ProducerHandle, writing_config(kafka, config))
        return cls(handle, on_wait=on_wait, is_transactional=bool(transactional_id), kafka=kafka)

    def _notice(self) -> None:
        """Process the reports of earlier calls."""
        reported = self._producer.told()
        if reported is not None:
            log.debug("kafka: %s", reported.str())
        failure = self._producer.failure()
        if failure is not None:
            error, topic = failure
            refused = f'topic "{topic}" does not take a record'
            self._fail(error, refused if topic else "the producer lost its session", topic)

    def _fail(self, error: KafkaError, action: str, topic: str = "") -> None:
        if self._failure is not None:
            return
        too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        hint = _RAISE if too_large else ""
        self._failure = log_error(error, action, hint=hint)
        if topic and error.code() in _NEVER_TAKEN:
            refused = RecordRefusedError(*self._failure.args, hint=hint)
            refused.topic, refused.__cause__ = topic, self._failure.__cause__
            self._failure = refused
        if error.fatal() or meaning(error) is ErrorMeaning.OVERTAKEN:
            # A new producer has a new session, and resends what this one may have lost.
            self._failure = UnavailableLogError(f"{action}: {error.str()}")

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None = None,
    ) -> None:
        """Queue one record; waits while the queue is full.

        Raises LogError: an earlier record, or this one, is refused.
        """
        self._raise_failure()
        self._begin()
        place = PARTITION_UA if partition is None else partition
        started = 0.0
        while code := self._producer.send(topic, key, value, headers, place):
            started = started or time.monotonic()
            self._not_taken(code, topic, started)
        self.records += 1
        self.sent[topic] += 1
        self.bytes += (len(key) if key else 0) + (len(value) if value else 0)

    def produce_records(
        self, topic: str, records: Records, first: int, end: int, partition: int | None = None
    ) -> None:
        """Queue some records in their order, as `produce` does with each.

        They are those from number `first` to before `end`; what is left out is not written. Without
        a partition they go where their keys say.

        Raises LogError: an earlier record, or one of these, is refused.
        """
        self._raise_failure()
        self._begin()
        place = PARTITION_UA if partition is None else partition
        started, code = 0.0, 0
        while first < end:
            count, size = self._producer.sent_records, self._producer.sent_bytes
            first, code = self._producer.send_records(topic, records, first, end, place)
            self.records += self._producer.sent_records - count
            self.sent[topic] += self._producer.sent_records - count
            self.bytes += self._producer.sent_bytes - size
            if code:
                started = started or time.monotonic()
                self._not_taken(code, topic, started)

    def _not_taken(self, code: int, topic: str, started: float) -> None:
        """Make room for a record that was not taken, or raise why it never will be."""
        if code == KafkaError._QUEUE_FULL:
            self._make_room(started)
            return
        self._producer.poll(0)  # an error of the session is told there
        self._raise_failure()
        self._fail(KafkaError(code), f'topic "{topic}" does not take a record', topic)
        self._raise_failure()

    def _make_room(self, started: float) -> None:
        # Not longer: only errors are reported, so no event ends the wait when there is room.
        self._producer.poll(FULL_S)
        self._raise_failure()
        self.on_wait()
        self._say_waiting(started)

    def poll(self) -> None:
        """Process the broker's reports; raises LogError if a record was refused."""
        self._producer.poll(0)
        self._raise_failure()

    def flush(self, deadline_s: float | None = None) -> None:
        """Wait until the broker has acknowledged every record.

        Raises LogError: a record was refused since the producer was made; UnavailableLogError: not
        done within `deadline_s`; without one, it waits for ever.
        """
        started = time.monotonic()
        while self._flushing():
            self._raise_failure()
            self.on_wait()
            self._say_waiting(started)
            if deadline_s is not None and time.monotonic() - started > deadline_s:
                raise UnavailableLogError(
                    f"{self.queued} records are not acknowledged after {deadline_s:.0f} s",
                    hint="are the brokers running?",
                )
        self._raise_failure()

    def _flushing(self) -> bool:
        """Wait a moment for the queue; tell whether something is left in it."""
        code = self._producer.flush(WAIT_S)
        if code and code != KafkaError._TIMED_OUT:
            self._notice()  # the same fatal error was told there
            self._fail(KafkaError(code), "the producer lost its session")
            return False
        return bool(code) and self.queued > 0

    def take_over(self) -> None:
        """Fence all other producers of the same transactional id.

        What it had not committed is aborted. Does nothing without a transactional id.

        Raises UnavailableLogError: the brokers do not answer within a minute; LogError: they
        refuse.
        """
        if self.is_transactional:
            self._transact(self._producer.init_transactions, "cannot begin to write", WRITE_S)

    @property
    def open_s(self) -> float:
        """Return for how many seconds a transaction has been open; 0 without one."""
        return 0.0 if self._opened_at is None else time.monotonic() - self._opened_at

    def commit(self) -> None:
        """Wait until every record is acknowledged; a transaction is committed as a whole.

        Raises LogError: a record was refused since the producer was made; UnavailableLogError: the
        transaction could not be committed; nothing of it stands.
        """
        self.flush()
        if self._opened_at is not None:
            self._transact(self._producer.commit_transaction, "cannot commit to the log", None)
            self._opened_at = None

    def await_readers(self) -> None:
        """Wait until a read of committed records that begins then shows all that were committed.

        Brokers confirm a commit before each partition has its mark. A transaction of somebody else
        that stays open before ours is waited for `READERS_S`, then logged.
        """
        if not self.is_transactional or self._kafka is None or not self.sent:
            return
        cluster = Cluster(self._kafka, answer_s=_ANSWER_S)
        deadline = time.monotonic() + READERS_S
        try:
            topics = cluster.standing(self.sent)
            while behind := _held_back(cluster, topics):
                if time.monotonic() > deadline:
                    log.warning(
                        "committed, and not yet read: a transaction of somebody else is open in %s",
                        ", ".join(behind),
                    )
                    return
                time.sleep(FULL_S)
        except LogError as error:  # what is committed stands all the same
            log.warning("committed; whether readers see it yet is not known: %s", error)

    def _begin(self) -> None:
        if self.is_transactional and self._opened_at is None:
            error = self._producer.begin_transaction()
            if error is not None:
                raise log_error(error, "cannot write to the log")
            self._opened_at = time.monotonic()

    def _transact(
        self, call: Callable[[float], KafkaError | None], action: str, deadline_s: float | None
    ) -> None:
        """Call until it is done: librdkafka goes on where a call was timed out."""
        started = time.monotonic()
        while (cause := call(WAIT_S)) is not None:
            late = deadline_s is not None and time.monotonic() - started > deadline_s
            if cause.txn_requires_abort() or cause.fatal():
                # Aborted, or fenced by another: who begins anew reads what stands.
                raise UnavailableLogError(f"{action}: {cause.str()}")
            if late or not cause.retriable():
                raise log_error(cause, action)
            self.on_wait()
            self._say_waiting(started)

    @property
    def queued(self) -> int:
        """Return the number of queued records that are not acknowledged yet.

        The client counts among them what it has to tell, such as that a broker is away.
        """
        return min(len(self._producer), self.records)

    def _say_waiting(self, started: float) -> None:
        """Log now and then that a wait is long: librdkafka itself waits in silence."""
        now = time.monotonic()
        if now - max(started, self._said_at) > SAY_AFTER_S:
            self._said_at = now
            log.warning("waiting for the brokers: %d records not acknowledged", self.queued)
            self._look_for_topics()

    def _look_for_topics(self) -> None:
        """Check that the topics are there: librdkafka waits for one that was deleted, for ever."""
        if self._kafka is None:
            return
        cluster = Cluster(self._kafka, answer_s=_ANSWER_S, on_wait=self.on_wait)
        with suppress(UnavailableLogError):  # the wait is for the brokers then
            gone = self.sent.keys() - cluster.topics(self.sent).keys()
            if gone:
                state = f"{self.queued} records are not acknowledged"
                raise LogError(
                    f'topic "{min(gone)}" does not exist: {state}',
                    hint="if it was deleted, make it anew or start again",
                )

    def _raise_failure(self) -> None:
        if self._failure is None:
            self._notice()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Close at once; records that are not acknowledged are dropped, and sent after a restart.

        What a broker that stands still holds in its socket may arrive yet.
        """
        self._producer.purge()
        if self._opened_at is not None:  # else the broker does it after a while
            self._producer.abort_transaction(CLOSE_S)
        self._producer.flush(CLOSE_S)
        # Mostly a method of whoever holds this: without it both go, threads and sockets with them,
        # once nobody refers to them, and not only when Python looks for cycles.
        self.on_wait = nothing


def _held_back(cluster: Cluster, topics: Mapping[str, TopicEnds]) -> list[str]:
    """Return the topics of which readers of committed records do not see all to these ends."""
    stable = cluster.standing(topics, committed=True)
    return [topic for topic, at in stable.items() if any(map(lt, at.ends, topics[topic].ends))]
