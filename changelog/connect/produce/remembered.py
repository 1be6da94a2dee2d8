"""Ids of requests that were written, and their answers, on a topic of the workers.

An id's record is written in the transaction of its request's records. So it is there if and only
if they are, however the worker ended.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from confluent_kafka.admin import NewTopic

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import TopicSettingsError
from changelog.kafka.cluster import Cluster
from changelog.kafka.scan import OffsetRange, scan

LANES = 4
"""Partitions of the topic; each has one writer at a time, of all workers."""

Places = list[tuple[int, int]]  # partition and offset of each record of a request
_HEAD = struct.Struct(
    ">B32sii"
)  # version, digest of the request, ids of the schemas of keys, values
_VERSION, _NONE = 1, -1
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The places of a request's records."""

    places: Places
    key_schema_id: int | None = None
    value_schema_id: int | None = None
    is_repeated: bool = False  # whether an earlier request with the same id wrote them


def name_of(token: str, request_id: str) -> bytes:
    """Return the key of an id's record; each token has ids of its own."""
    return hashlib.sha256(f"{token}\n{request_id}".encode()).digest()


def lane_of(name: bytes) -> int:
    """Return the partition of an id."""
    return name[0] % LANES


def noted(digest: bytes, answer: Answer) -> bytes:
    """Return the value of an id's record."""
    ids = (_NONE if n is None else n for n in (answer.key_schema_id, answer.value_schema_id))
    return _HEAD.pack(_VERSION, digest, *ids) + orjson.dumps(answer.places)


def _answer(value: bytes) -> tuple[bytes, Answer]:
    """Return digest and answer of an id's record; raises ValueError for one that is not ours."""
    try:
        version, digest, *ids = _HEAD.unpack_from(value)
        places = [(partition, offset) for partition, offset in orjson.loads(value[_HEAD.size :])]
    except (struct.error, ValueError, TypeError) as error:
        raise ValueError("no record of a request") from error
    if version != _VERSION:
        raise ValueError(f"version {version}")
    key, value_id = (None if number == _NONE else number for number in ids)
    return digest, Answer(places, key, value_id, is_repeated=True)


def make_topic(kafka: KafkaConnection, topic: str, remember_hours: float) -> None:
    """Create the topic of the ids if it is missing.

    Raises TopicSettingsError: it exists, and would lose ids before their time.
    """
    window_ms = round(remember_hours * _HOUR_MS)
    cluster = Cluster(kafka)
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(window_ms),
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
    }
    cluster.create([NewTopic(topic, LANES, -1, config=config)])
    there = cluster.created(topic)
    kept_ms = int(there.settings["retention.ms"])
    faults = []
    if there.partitions != LANES:
        faults.append(f"it has {there.partitions} partitions, not {LANES}")
    if there.settings["cleanup.policy"] != "delete" or 0 <= kept_ms < window_ms:
        faults.append("it forgets ids before http.remember_hours")
    if there.settings["message.timestamp.type"] != "LogAppendTime":
        faults.append("its message.timestamp.type is not LogAppendTime")
    if faults:
        raise TopicSettingsError(
            f'topic "{topic}" does not keep ids of requests as it should: {"; ".join(faults)}',
            hint=f"set retention.ms to {window_ms}, or choose another --group",
        )


class RememberedIds:
    """The ids of one partition; one thread uses them."""

    def __init__(
        self,
        kafka: KafkaConnection,
        topic: str,
        partition: int,
        remember_hours: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kafka, self._topic, self.partition = kafka, topic, partition
        self._window_ms, self._clock = round(remember_hours * _HOUR_MS), clock
        self._read_to = 0
        # Time and value of each id, in the order of their records.
        self._values: dict[bytes, tuple[int, bytes]] = {}

    def read_on(self) -> None:
        """Read what other workers have written; only the partition's one writer may rely on it.

        Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
        """
        place = (self._topic, self.partition)
        (bounds,) = Cluster(self._kafka).bounds([place], committed=True).values()
        start = max(self._read_to, bounds.start)
        for record in scan(self._kafka, [OffsetRange(*place, start, bounds.end)]):
            key, value = record.key(), record.value()
            if key is not None and value is not None:
                self._values[key] = record.timestamp()[1], value
        self._read_to = max(start, bounds.end)
        self._forget()

    def note(self, name: bytes, value: bytes) -> None:
        """Remember an id whose record was committed."""
        self._values[name] = round(self._clock() * 1000), value
        self._forget()

    def answered(self, name: bytes) -> tuple[bytes, Answer] | None:
        """Return digest and answer of a request that was written, or None if none was."""
        self._forget()
        entry = self._values.get(name)
        return None if entry is None else _answer(entry[1])

    def _forget(self) -> None:
        oldest_ms = round(self._clock() * 1000) - self._window_ms
        while self._values:
            name = next(iter(self._values))
            if self._values[name][0] >= oldest_ms:
                return
            del self._values[name]
