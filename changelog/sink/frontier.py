"""The frontier topic: written by capture alone, last record per slot wins.

Beside each slot's frontier stands, under a key of its own, how far its backfills are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from operator import lt
from typing import Self, TypeVar

from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError
from changelog.contract.log.backfill import BackfillRecord, backfill_key, is_frontier_key
from changelog.contract.log.frontier import Frontier, FrontierRecord, frontier_of
from changelog.contract.log.standing import Standings, standing_key
from changelog.kafka.cluster import Cluster, TopicEnds, nothing
from changelog.kafka.newest import NewestRecords
from changelog.kafka.scan import OffsetRange, scan
from changelog.sink.producer import WRITE_S, LogProducer

T = TypeVar("T")


class FrontierLog:
    """Reads and writes the frontiers of one topic.

    Each call raises UnavailableLogError where the broker does not answer, and LogError where it
    refuses, or where the topic has several partitions.
    """

    def __init__(
        self, kafka: KafkaConnection, topic: str, *, on_wait: Callable[[], None] = nothing
    ) -> None:
        self._cluster = Cluster(kafka, on_wait=on_wait)
        # a transactional producer: what is written stands together with its records
        self.through: LogProducer | None = None
        self._kafka = kafka
        self._topic = topic
        self._ids: dict[str, str] = {}
        self._newest = NewestRecords(kafka, topic)
        self._producer: LogProducer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def on_wait(self) -> Callable[[], None]:
        """Return the function that is called again and again while a call waits for the broker."""
        return self._cluster.on_wait

    @on_wait.setter
    def on_wait(self, call: Callable[[], None]) -> None:
        self._cluster.on_wait = call

    def cluster_id(self, *, patient: bool = True) -> str:
        """Return the cluster's identifier; the first request of this client, see `Cluster.meet`.

        A `patient` call waits for brokers that are not there, since they may be on their way.

        Raises RefusedAccessError: the brokers do not let us in; UnavailableLogError: no broker
        answers at the address.
        """
        return self._cluster.meet(patient=patient)

    def last(self, slot: str) -> FrontierRecord | None:
        """Return the newest frontier of a slot, or None if there is none or it was removed."""
        key = slot.encode("utf-8")
        newest = self._read(key, partial(frontier_of, key))
        if newest is None:
            return None
        frontier, record = newest
        _, appended_ms = record.timestamp()
        return FrontierRecord(frontier, record.offset() or 0, appended_ms)

    def slots(self) -> list[str]:
        """Return the slots of which the topic holds anything, in order; none without a topic."""
        ends = self._stable()
        if ends is None:
            return []
        slots = set()
        for key in self._newest.keys(ends):
            parse = partial(frontier_of, key) if is_frontier_key(key) else bytes
            if self._newest.read(key, ends, parse) is not None:
                with suppress(UnicodeDecodeError):  # of another program
                    slots.add(key.decode("utf-8").partition("#")[0])
        return sorted(slots)

    def backfill(self, slot: str) -> BackfillRecord | None:
        """Return the progress of a slot's backfills, or None if there are none."""
        newest = self._read(backfill_key(slot), BackfillRecord.from_json)
        return None if newest is None else newest[0]

    def _read(self, key: bytes, parse: Callable[[bytes], T]) -> tuple[T, Message] | None:
        """Return the content of the newest record of a key; None also for a tombstone."""
        ends = self._stable()
        return None if ends is None else self._newest.read(key, ends, parse)

    def _stable(self) -> TopicEnds | None:
        # Nobody knows yet whether what an open transaction holds is going to stand.
        return self._ends([self._topic], committed=True).get(self._topic)

    def write(self, frontier: Frontier) -> None:
        """Append a frontier and wait for the broker's acknowledgement.

        Raises UnavailableLogError: none within a minute; the record is dropped, so that it cannot
        arrive behind a newer one. Whether it has arrived is not known.
        """
        self._write(frontier.slot.encode("utf-8"), frontier.to_json())

    def write_backfill(self, record: BackfillRecord) -> None:
        """Append how far the backfills are and wait for the broker's acknowledgement."""
        self._write(backfill_key(record.slot), record.to_json())

    def forget_backfill(self, slot: str) -> None:
        """Append that there are no backfills any more; raises as `write_backfill` does."""
        self._write(backfill_key(slot), None)

    def standings(self, slot: str) -> Standings | None:
        """Return the state of a slot's tables at the last look, or None if there was none."""
        newest = self._read(standing_key(slot), Standings.from_json)
        return None if newest is None else newest[0]

    def write_standings(self, slot: str, standings: Standings) -> None:
        """Append how the tables stand and wait for the broker's acknowledgement."""
        self._write(standing_key(slot), standings.to_json())

    def _write(self, key: bytes, text: str | None) -> None:
        value = None if text is None else text.encode("utf-8")
        if self.through is not None:
            self.through.produce(self._topic, key, value, [])
            self.through.commit()
            return
        producer = self._connected()
        producer.on_wait = self.on_wait
        try:
            producer.produce(self._topic, key, value, [])
            producer.flush(WRITE_S)
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Open a producer in the background: the first write would wait for it.

        An idempotent producer asks for its identity once a broker is there, and asks again only
        half a second later; for so long the first frontier would hold the stream.
        """
        if self.through is None:
            self._connected()

    def _connected(self) -> LogProducer:
        self._producer = self._producer or LogProducer.open(self._kafka, {"linger.ms": 0})
        return self._producer

    def ends(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return the end offset of each partition of topics; raises as `places` does."""
        return {topic: place.ends for topic, place in self.places(topics).items()}

    def starts(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return the first offset of each partition of the topics that exist."""
        return {topic: place.starts for topic, place in self._ends(topics).items()}

    def standing(self, topics: Sequence[str]) -> dict[str, TopicEnds]:
        """Return the offsets of the topics that exist; raises as `starts` does."""
        return self._ends(topics)

    def lost(self, slot: str) -> str:
        """Return which of a slot's records were removed; empty if none that counts was.

        Records go from the topic's start on. So of a key that has one left, the newest is left; and
        of each there is one from the first frontier on.
        """
        (start, *_) = self.starts([self._topic]).get(self._topic, (0,))
        if not start:
            return ""
        last = self.last(slot)
        if last is None:
            content = "the last frontier"
        elif self.backfill(slot) is None:
            content = "how far copies of tables are"
        elif last.frontier.tables and self.standings(slot) is None:
            content = "how the tables stood when they were looked at last"
        else:
            return ""
        return (
            f'topic "{self._topic}" starts at offset {start}: older records were deleted, and with '
            f'them what it held of slot "{slot}": {content}'
        )

    def places(self, topics: Sequence[str]) -> dict[str, TopicEnds]:
        """Return the id, start and end offsets of topics.

        Asks for the partitions each time: a topic may have grown, and one that was deleted and
        made anew under us no longer holds what a frontier would speak for.

        Raises LogError: a topic is missing, or another than at the first call.
        """
        places = self._ends(topics)
        for topic in topics:
            if topic not in places:
                raise LogError(
                    f'topic "{topic}" does not exist',
                    hint="it was deleted: start capture again, it says what to do",
                )
            if self._ids.setdefault(topic, places[topic].topic_id) != places[topic].topic_id:
                raise LogError(
                    f'topic "{topic}" was deleted and made anew under capture',
                    hint="start capture again, it says what to do",
                )
        return {topic: places[topic] for topic in topics}

    def _ends(self, topics: Sequence[str], *, committed: bool = False) -> dict[str, TopicEnds]:
        # A frontier is written in the transaction of the records that it speaks for: to where these
        # reach, not to where other transactions of before have ended.
        self.cluster_id()
        return self._cluster.standing(topics, committed=committed)

    def held_back(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the topics in which a transaction is open, and from which offset on.

        Readers of committed records do not see what lies behind it.
        """
        ends, stable = self._ends(topics), self._ends(topics, committed=True)
        return {
            topic: min(
                stable_end
                for stable_end, end in zip(place.ends, ends[topic].ends, strict=True)
                if stable_end < end
            )
            for topic, place in stable.items()
            if topic in ends and any(map(lt, place.ends, ends[topic].ends))
        }

    def topic_id(self, topic: str) -> str:
        """Return Kafka's id of a topic, as the first `ends` with it has found it."""
        return self._ids[topic]

    def close(self) -> None:
        """Close the producer; records that are not acknowledged are dropped."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def last_values(kafka: KafkaConnection, frontiers: FrontierLog, topic: str) -> dict[bytes, bytes]:
    """Return the last value of each key that has one.

    Raises UnavailableLogError: the broker does not answer; LogError: the topic is missing, or
    refused.
    """
    (end, *_) = frontiers.ends([topic])[topic]
    values: dict[bytes, bytes] = {}
    for record in scan(kafka, [OffsetRange(topic, 0, 0, end)]):
        key, value = record.key() or b"", record.value()
        values.pop(key, None)
        if value is not None:
            values[key] = value
    return values
