"""State that all workers share, on a compacted topic that all of them read and write."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from changelog.connect.rules.state import ConnectCluster, ended_record
from changelog.connect.rules.topics import state_topic, tasks_topic
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import TopicSettingsError, UnavailableLogError
from changelog.kafka.clients import REQUEST_S, make_client
from changelog.kafka.cluster import Cluster, until_led
from changelog.kafka.send import OutgoingRecord, send
from changelog.runtime.process.pulse import Pulse

log = logging.getLogger("changelog.connect")

TASKS = 48  # partitions of the topic by whose assignment the tasks are shared among the workers

_POLL_S = 0.1
_ANSWER_S = 2 * REQUEST_S
Record = tuple[bytes, bytes | None]


def make_topics(kafka: KafkaConnection, group: str) -> None:
    """Create the two topics of a group of workers if they are missing.

    Raises TopicSettingsError: the topic of the state exists and is not compacted; LogError: the
    brokers do not answer, or refuse.
    """
    brokers, states = Cluster(kafka), state_topic(group)
    compacted = NewTopic(states, 1, -1, config={"cleanup.policy": "compact"})
    brokers.create([compacted, NewTopic(tasks_topic(group), TASKS, -1)])
    # For a moment the brokers may not know a topic that was just created.
    policy = until_led(lambda: brokers.settings([states]))[states]["cleanup.policy"]
    if policy != "compact":
        raise TopicSettingsError(
            f'topic "{states}" has cleanup.policy {policy}, by which connectors would be lost',
            hint="set it to compact, or choose another --group",
        )


class ConnectorStore:
    """The shared state as read from the topic so far; any number of threads may use it."""

    def __init__(self, kafka: KafkaConnection, group: str) -> None:
        """Read the topic to its end, then follow it in a thread.

        Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
        """
        self.group = group  # of the workers
        self._topic = state_topic(group)
        self._cluster = ConnectCluster()
        self._changed = threading.Condition()
        self._reached = 0
        self._stop = threading.Event()
        # the pulse of the thread that follows the topic
        self.pulse = Pulse("the thread that follows the topic of the workers")
        self._producer = make_client(Producer, kafka.client_config(enable_idempotence=True))
        config = kafka.client_config(
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_wait_max_ms=10,
        )
        self._consumer = make_client(Consumer, config)
        (bounds,) = Cluster(kafka).bounds([(self._topic, 0)]).values()
        self._consumer.assign([TopicPartition(self._topic, 0, bounds.start)])
        self._thread = threading.Thread(target=self._follow, name="connect-store", daemon=True)
        self._thread.start()
        self._wait_for(bounds.end)

    @contextmanager
    def read(self) -> Iterator[ConnectCluster]:
        """Yield the state read so far, locked against changes."""
        with self._changed:
            yield self._cluster

    def write(self, records: Sequence[Record]) -> None:
        """Write records, and wait until this worker has read them.

        Raises UnavailableLogError: the brokers do not answer; the records may be written later;
        LogError: they refuse.
        """
        outgoing = [OutgoingRecord(key, value) for key, value in records]
        try:
            end = send(self._producer, self._topic, outgoing, answer_s=_ANSWER_S)
        except KafkaException as error:
            raise UnavailableLogError(
                f'topic "{self._topic}" does not take the change: {error.args[0].str()}',
                hint="repeat the request when the brokers answer",
            ) from error
        self._wait_for(end)

    def _wait_for(self, end: int) -> None:
        """Wait until the topic is read up to an offset, which may itself have no record."""
        deadline = time.monotonic() + _ANSWER_S
        with self._changed:
            while self._reached < end:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise UnavailableLogError(
                        f'topic "{self._topic}" was not read up to offset {end} in {_ANSWER_S:g} s'
                    )

    def _follow(self) -> None:
        with self.pulse.beating():
            while not self._stop.is_set():
                with self.pulse.beat():
                    self._read_on()
                self._stop.wait(self.pulse.pause_s)

    def _read_on(self) -> None:
        messages = self._consumer.consume(500, _POLL_S)
        places = self._consumer.position([TopicPartition(self._topic, 0)])
        with self._changed:
            for message in messages:
                if message.error() is None:
                    try:
                        self._cluster.take(message.key() or b"", message.value())
                    except Exception:  # noqa: BLE001 - a bad record must not stop the others
                        log.warning(
                            "%s: the record at offset %s cannot be read and is ignored",
                            self._topic,
                            message.offset(),
                        )
                else:
                    log.warning("%s: %s", self._topic, message.error())
            self._reached = max(self._reached, places[0].offset)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop following the topic."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()


class EndedSessions:
    """The page's sessions that were ended by signing out, kept for all workers."""

    def __init__(self, store: ConnectorStore) -> None:
        self._store = store

    def end(self, name: str, until: int) -> None:
        """End a session that would last until `until`, in seconds since the epoch.

        Ended sessions whose own time is over are removed from the topic.

        Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
        """
        now = time.time()
        with self._store.read() as cluster:
            expired = [session for session, end in cluster.ended.items() if end < now]
        records = [ended_record(name, until), *(ended_record(session, None) for session in expired)]
        self._store.write(records)

    def has_ended(self, name: str) -> bool:
        """Return whether a session was ended."""
        with self._store.read() as cluster:
            return name in cluster.ended
