"""The log: records of the keys leave their topic by its own compaction, watched to its end.

No promise to readers is shortened: values go once `min.compaction.lag.ms` is over since they were
superseded, tombstones once `delete.retention.ms` is. A reader cannot see that either was lowered
for a while, and would miss deletes (docs/decisions/0224-erasure-with-proof.md). Only what makes the
cleaner come late is altered, and put back at the end of each run, or by the next one after a kill:
when a segment is closed, how much of a log must be new, how long closed files stay on disk.

The segment that is written to is never cleaned, and it is closed by a later record. Where no
capture runs, a transaction that is aborted closes it: its record is never shown to who reads
committed records, as all readers here do, and the cleaner removes it. While one runs, its own
records do that: it takes records of others for those of a rival.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaException, Message, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, LogError
from changelog.contract.base.headers import decode_headers
from changelog.contract.base.position import Position
from changelog.contract.rows.codec import FRAME_BYTES
from changelog.kafka.clients import make_client, writing_config
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import log_error
from changelog.kafka.scan import OffsetRange, scan
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.clock import clock_ms
from views.erase.notes import Note

_CLOSES_AFTER_MS, _CLOSES_IN_USE_MS = 1_000, 60_000
"""`segment.ms` while no capture runs, and beside one, for which each second would be too many."""
_FILES_STAY_MS = 1_000
_LOOK_S = 1.0
_CLOSE_EVERY_S = (2.0, 3_600.0)
"""At least and at most; else a quarter of `min.compaction.lag.ms`."""
_ANSWER_S = 60.0
_NO_ROW = b"\0changelog-erase"
"""Key of the record that closes a segment; no key of a row begins so."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class KeyRecord:
    """A record of one of the keys that is still on the topic."""

    partition: int
    offset: int
    at_ms: int  # when the broker appended it
    is_tombstone: bool
    body: bytes  # its key without the frame
    position: Position | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLook:
    """A reading of a whole topic, records of aborted transactions too."""

    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    records: int  # all that were read
    remaining: tuple[KeyRecord, ...]  # those of the keys, in the order of partitions and offsets


def look(
    kafka: KafkaConnection,
    topic: str,
    bodies: Collection[bytes],
    key_id: int,
    steps: Steps = UNSEEN,
) -> TopicLook:
    """Read a topic from its first record to its present end.

    `key_id`: the id of the schema of its keys.

    Raises LogError: it has keys of another schema, or is gone; UnavailableLogError: the brokers do
    not answer.
    """
    standing = Cluster(kafka).standing([topic]).get(topic)
    if standing is None:
        raise LogError(f'topic "{topic}" does not exist')
    starts, ends = standing.starts, standing.ends
    steps.more(sum(end - start for start, end in zip(starts, ends, strict=True)))
    frame = b"\0" + key_id.to_bytes(4, "big")
    remaining, records = [], 0
    ranges = [
        OffsetRange(topic, n, start, end)
        for n, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    for message in scan(kafka, ranges, committed=False):
        records += 1
        key = message.key() or b""
        if key == _NO_ROW:
            continue
        if not key.startswith(frame):
            raise LogError(
                f'topic "{topic}", partition {message.partition()}, offset {message.offset()}: a '
                "key of another schema",
                hint="another program writes to this topic; the log needs it for itself",
            )
        if key[FRAME_BYTES:] in bodies:
            remaining.append(_key_record(message, key[FRAME_BYTES:]))
    steps.done(sum(end - start for start, end in zip(starts, ends, strict=True)))
    return TopicLook(
        topic_id=standing.topic_id,
        starts=tuple(starts),
        ends=tuple(ends),
        records=records,
        remaining=tuple(sorted(remaining, key=lambda record: (record.partition, record.offset))),
    )


def _key_record(message: Message, body: bytes) -> KeyRecord:
    kind, at_ms = message.timestamp()
    try:
        position = decode_headers(message.headers()).position
    except CorruptRecordError:
        position = None
    return KeyRecord(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        at_ms=0 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms,
        is_tombstone=message.value() is None,
        body=body,
        position=position,
    )


def alive(records: Sequence[KeyRecord]) -> list[KeyRecord]:
    """Return the last record of each key that has a row by the log."""
    last: dict[bytes, KeyRecord] = {}
    for record in records:
        before = last.get(record.body)
        if (
            before is None
            or before.position is None
            or (record.position or before.position) >= before.position
        ):
            last[record.body] = record
    return [record for record in last.values() if not record.is_tombstone]


def never_cleaned(records: Sequence[KeyRecord]) -> list[KeyRecord]:
    """Return the rows that no later record of their partition makes compaction remove."""
    last = {(record.partition, record.body): record for record in records}
    return [record for record in last.values() if not record.is_tombstone]


def is_there(kafka: KafkaConnection, topic: str, record: KeyRecord) -> bool:
    """Tell whether the topic still has a record."""
    place = OffsetRange(topic, record.partition, record.offset, record.offset + 1)
    return any(True for _ in scan(kafka, [place], committed=False))


class Cleaning:
    """Has the cleaner remove the records of some keys from a topic, and watches it."""

    def __init__(
        self,
        kafka: KafkaConnection,
        note: Note,
        *,
        may_close: Callable[[], bool],
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Store what to work on.

        `may_close`: tells whether no capture runs, so that a segment may be closed by a record.
        """
        self._kafka, self._note, self._topic = kafka, note, note.topic
        self._may_close, self._stop = may_close, stop
        settings = Cluster(kafka).settings([self._topic])[self._topic]
        self.lag_ms = int(settings["min.compaction.lag.ms"])
        self.retention_ms = int(settings["delete.retention.ms"])
        self.files_stay_ms = int(settings["file.delete.delay.ms"])
        self._closed_at = 0.0

    def run(
        self, records: Sequence[KeyRecord], seconds: float, steps: Steps = UNSEEN
    ) -> list[KeyRecord]:
        """Wait until the records are gone, as long as that can be hoped for; returns the rest.

        Raises LogError: the brokers refuse; UnavailableLogError: they do not answer.
        """
        remaining, until = list(records), time.monotonic() + seconds
        partitions = sorted({record.partition for record in records})
        steps.more(len(remaining))
        with self._lowered():
            while remaining and not self._stop():
                if all(record.is_tombstone for record in remaining):
                    self._note_values_gone()
                self._close(partitions, remaining)
                first_ms = self.not_before_ms(remaining, only_values=True)
                wait_s = (first_ms - clock_ms()) / 1000
                if time.monotonic() + max(wait_s, 0) > until:
                    break
                steps.begin(f"{len(remaining)} records of the keys on {self._topic}")
                time.sleep(min(_LOOK_S, max(0.0, until - time.monotonic())))
                still = [
                    record for record in remaining if is_there(self._kafka, self._topic, record)
                ]
                steps.done(len(remaining) - len(still))
                remaining = still
            if not remaining:
                self._note_values_gone()
                # A replaced file is renamed at once, and deleted that much later.
                time.sleep((2 * _FILES_STAY_MS if records else self.files_stay_ms) / 1000)
        return remaining

    def not_before_ms(self, remaining: Sequence[KeyRecord], *, only_values: bool = False) -> int:
        """Return before which moment the remaining records cannot go, by the broker's clock.

        `only_values`: before which moment none of them can go.
        """
        note = self._note
        newest = max((record.at_ms for record in remaining), default=0)
        values = max(newest, note.closed_ms or newest) + self.lag_ms
        if all(record.is_tombstone for record in remaining) and note.values_gone_ms is not None:
            return note.values_gone_ms + self.retention_ms
        return values if only_values else values + self.retention_ms

    def _note_values_gone(self) -> None:
        if self._note.values_gone_ms is None:
            self._note.values_gone_ms = clock_ms()
            self._note.save()

    def _close(self, partitions: Sequence[int], remaining: Sequence[KeyRecord]) -> None:
        """Close the segments of partitions, if that helps now and no capture runs."""
        least, most = _CLOSE_EVERY_S
        every_s = min(max(self.lag_ms / 4000, least), most)
        if time.monotonic() - self._closed_at < every_s or not self._may_close():
            return
        time.sleep(_CLOSES_AFTER_MS / 1000)  # a segment is closed once it is that old
        self._append_aborted(partitions)
        self._closed_at = time.monotonic()
        newest = max(record.at_ms for record in remaining)
        if self._note.closed_ms is None or self._note.closed_ms < newest:
            self._note.closed_ms = clock_ms()
            self._note.save()

    def _append_aborted(self, partitions: Sequence[int]) -> None:
        """Append a transaction that is aborted: a record and a marker to each partition."""
        config = writing_config(
            self._kafka, {"transactional.id": f"changelog-erase-{uuid.uuid4().hex}"}
        )
        config["message.timeout.ms"] = round(1000 * _ANSWER_S)
        producer = make_client(Producer, config)
        try:
            producer.init_transactions(_ANSWER_S)
            producer.begin_transaction()
            for partition in partitions:
                producer.produce(self._topic, key=_NO_ROW, value=None, partition=partition)
            producer.flush(_ANSWER_S)
            producer.abort_transaction(_ANSWER_S)
        except KafkaException as error:
            raise log_error(error, f'cannot close the segments of topic "{self._topic}"') from error

    @contextmanager
    def _lowered(self) -> Iterator[None]:
        """Alter what makes the cleaner come late, and put it back at the end."""
        closes_ms = _CLOSES_AFTER_MS if self._may_close() else _CLOSES_IN_USE_MS
        hurried = {
            "segment.ms": str(closes_ms),
            "min.cleanable.dirty.ratio": "0.0",
            "file.delete.delay.ms": str(_FILES_STAY_MS),
        }
        own = Cluster(self._kafka).own_settings(self._topic)
        self._note.settings = {name: own.get(name) for name in hurried}
        self._note.save()  # before anything is altered: a run that is killed leaves the note
        try:
            alter(self._kafka, self._topic, hurried)
            yield
        finally:
            put_back(self._kafka, self._note)


def put_back(kafka: KafkaConnection, note: Note) -> None:
    """Give a topic the settings that it had before, if a note says that they are altered."""
    if note.settings:
        if Cluster(kafka).topics([note.topic]):
            alter(kafka, note.topic, note.settings)
        note.settings = {}
        note.save()


def alter(
    kafka: KafkaConnection, topic: str, settings: dict[str, str] | dict[str, str | None]
) -> None:
    """Alter settings of a topic; None takes one back to the brokers' default."""
    kinds = AlterConfigOpType
    entries = [
        ConfigEntry(name, value, incremental_operation=kinds.DELETE if value is None else kinds.SET)
        for name, value in settings.items()
    ]
    Cluster(kafka).alter([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)])
