"""One job of a load: reads its share of the partitions, and writes it to the table.

A job has a consumer and a connection of its own. The offsets are only stored in the target, in the
transactions of the rows, so a job may be killed at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaError, Producer

from changelog.connect.postgres.places import Partition
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import UnavailableLogError
from changelog.kafka.clients import REQUEST_S, STALL_S, make_client, reading_config
from changelog.kafka.errors import explained, is_passing, log_error
from changelog.kafka.send import OutgoingRecord, send
from changelog.load.target import LoadTarget, TableWriter
from changelog.native import Batch, BatchRange, BatchReader
from changelog.native.loads import BatchLimits, BatchNews, BatchRecord, Slice

_POLL_MS = 200
_QUEUE_KBYTES = 64 * 1024
_FETCH_MS = 500  # a fetch at the end of a topic, where a followed one mostly is, waits so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The size of one transaction."""

    records: int = 200_000  # most records
    bytes: int = 64 << 20  # most bytes of keys and values, about
    seconds: float = 1.0  # if a topic is followed, the time after which the batch is written


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShare:
    """The part of the topics that one job reads."""

    starts: Mapping[Partition, int]  # the first offset to read of each partition
    # the first offset not to read of each partition; None if it is not known
    ends: Mapping[Partition, int | None]
    # a partition without an end is read up to the first record with this time; None to follow
    before_ms: int | None = None


class Job:
    """Reads a share of the partitions and writes it.

    Attributes:
        records: the number of records that were written, left out or sent to the dead letters.
        rows: the number of rows that were written.
        refused: the number of records that were sent to the dead letters.
    """

    def __init__(
        self,
        kafka: KafkaConnection,
        share: JobShare,
        batches: Batches,
        *,
        dead_letters: DeadLetters | None,
        with_headers: bool,
    ) -> None:
        self._kafka, self._share, self._batches = kafka, share, batches
        self._dead_letters = dead_letters
        self._limits = BatchLimits(
            batches.records, batches.bytes, share.before_ms, with_headers=with_headers
        )
        self.records = self.rows = self.refused = 0
        self._places = dict(share.starts)
        self.is_done = False  # whether each partition has been read to its end

    def run(
        self,
        target: LoadTarget,
        writer: TableWriter,
        stop: Callable[[], bool],
        on_records: Callable[[int], None],
    ) -> None:
        """Read and write until done or stopped; the records that were read are written.

        Raises:
            OvertakenError: another load has moved an offset.
            UnavailableError: a server does not answer; no batch is written in part.
            SinkError: a record cannot be written, or the target refuses.
            LogError: the brokers refuse.
        """
        config = reading_config(
            self._kafka,
            group_id="changelog-load",
            queued_max_messages_kbytes=_QUEUE_KBYTES,
            fetch_wait_max_ms=_FETCH_MS,
        )
        batch = Batch([topic for topic, _ in self._places])
        with closing(make_client(BatchReader, config)) as reader:
            reader.assign(
                [
                    Slice(*partition, place, self._share.ends[partition])
                    for partition, place in self._places.items()
                ]
            )
            while not reader.is_done and not stop():
                batch.clear()
                self._fill(batch, reader, stop)
                if not batch:
                    continue
                places = {(part.topic, part.partition): part.next for part in reader.slices}
                moves = {
                    partition: (old, places[partition])
                    for partition, old in self._places.items()
                    if places[partition] != old
                }
                self.rows += self._write(target, writer, batch.all(), moves)
                self._places = places
                self.records += len(batch)
                on_records(len(batch))
            self.is_done = reader.is_done

    def _write(
        self,
        target: LoadTarget,
        writer: TableWriter,
        records: BatchRange,
        moves: Mapping[Partition, tuple[int, int]],
    ) -> int:
        dead_letters = self._dead_letters
        if dead_letters is None:
            return target.write(writer, records, moves)
        counts: list[int] = []

        def refuse(refused: Sequence[tuple[BatchRecord, str]]) -> None:
            dead_letters.put(refused)
            counts.append(len(refused))

        rows = target.write(writer, records, moves, refuse=refuse)
        self.refused += sum(counts)
        return rows

    def _fill(self, batch: Batch, reader: BatchReader, stop: Callable[[], bool]) -> None:
        """Read the records of one transaction."""
        began = last_record = time.monotonic()
        limits = self._limits
        while len(batch) < limits.records and batch.size_bytes < limits.bytes:
            news = reader.poll(batch, limits, timeout_ms=_POLL_MS)
            if news.error:
                _check(news)
            now = time.monotonic()
            if news.added:
                last_record = now
            is_due = self._follows and now - began > self._batches.seconds
            if not news.open or stop() or is_due:
                break
            if now - last_record > STALL_S and not self._follows:
                raise UnavailableLogError(
                    f"the brokers have sent nothing for {STALL_S:.0f} s",
                    hint="check that they run, then start again: the rows so far are written",
                )

    @property
    def _follows(self) -> bool:
        return any(end is None for end in self._share.ends.values())


def _check(news: BatchNews) -> None:
    """Raise an error unless it is passing, in which case the client tries again by itself."""
    error = KafkaError(news.error, news.message)
    if not is_passing(error):
        raise log_error(error, f'cannot read partition {news.partition} of topic "{news.topic}"')


_PREFIX = "__changelog.errors."


class DeadLetters:
    """The topic for records that cannot be written; several threads may use it."""

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        """Connect in the background; the topic has to exist."""
        self._topic = topic
        config = kafka.client_config(enable_idempotence=True, partitioner="murmur2_random")
        self._producer = make_client(Producer, config)

    def put(self, refused: Sequence[tuple[BatchRecord, str]]) -> None:
        """Send records, and return when the brokers have acknowledged them.

        Raises LogError: the topic does not take them.
        """
        failure = f'topic "{self._topic}" does not take dead letters'
        with explained(failure):
            send(self._producer, self._topic, map(_letter, refused), answer_s=2 * REQUEST_S)


def _letter(refused: tuple[BatchRecord, str]) -> OutgoingRecord:
    record, reason = refused
    headers = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "reason": reason,
    }
    error_headers = [(_PREFIX + name, str(value).encode()) for name, value in headers.items()]
    return OutgoingRecord(record.key, record.value, [*record.headers, *error_headers])
