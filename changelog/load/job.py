"""One job of a load: its share of the partitions, from their places to their ends.

A job has a consumer and a connection of its own. The places live in the target alone, moved with
the rows, so that it may be killed at any moment.
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
_FETCH_MS = 500  # a topic that is followed is mostly at its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The size of one transaction."""

    records: int = 200_000  # the most
    bytes: int = 64 << 20  # of keys and values, about the most
    seconds: float = 1.0  # after which what is there is written, where a topic is followed


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShare:
    """The part of the topics that one job reads."""

    starts: Mapping[Partition, int]  # the place of each partition
    # the first offset that is not wanted; None where that is not known
    ends: Mapping[Partition, int | None]
    # where an end is not known, it is the first record with this time; None to follow
    before_ms: int | None = None


class Job:
    """Reads a share and writes it.

    Attributes:
        records: how many were written or left out.
        rows: how many rows were written.
        refused: how many records were put aside.
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
        self.is_done = False  # each partition is read to its end

    def run(
        self,
        target: LoadTarget,
        writer: TableWriter,
        stop: Callable[[], bool],
        on_records: Callable[[int], None],
    ) -> None:
        """Read and write until done or stopped; records read by then are written.

        Raises:
            OvertakenError: another load has moved a place.
            UnavailableError: a server is away; nothing is half-written.
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
                [Slice(*at, place, self._share.ends[at]) for at, place in self._places.items()]
            )
            while not reader.is_done and not stop():
                batch.clear()
                self._fill(batch, reader, stop)
                if not batch:
                    continue
                places = {(part.topic, part.partition): part.next for part in reader.slices}
                moves = {
                    at: (old, places[at]) for at, old in self._places.items() if places[at] != old
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
        aside = self._dead_letters
        if aside is None:
            return target.write(writer, records, moves)
        counts: list[int] = []

        def refuse(refused: Sequence[tuple[BatchRecord, str]]) -> None:
            aside.put(refused)
            counts.append(len(refused))

        rows = target.write(writer, records, moves, refuse=refuse)
        self.refused += sum(counts)
        return rows

    def _fill(self, batch: Batch, reader: BatchReader, stop: Callable[[], bool]) -> None:
        """Read the records of one transaction."""
        began = heard = time.monotonic()
        limits = self._limits
        while len(batch) < limits.records and batch.size_bytes < limits.bytes:
            news = reader.poll(batch, limits, timeout_ms=_POLL_MS)
            if news.error:
                _check(news)
            now = time.monotonic()
            if news.added:
                heard = now
            is_time = self._follows and now - began > self._batches.seconds
            if not news.open or stop() or is_time:
                break
            if now - heard > STALL_S and not self._follows:
                raise UnavailableLogError(
                    f"the brokers have sent nothing for {STALL_S:.0f} s",
                    hint="are they running? Start again: what was written stays",
                )

    @property
    def _follows(self) -> bool:
        return any(end is None for end in self._share.ends.values())


def _check(news: BatchNews) -> None:
    """Raise when a partition cannot be read on; else the client tries again by itself."""
    error = KafkaError(news.error, news.message)
    if not is_passing(error):
        raise log_error(error, f'cannot read partition {news.partition} of topic "{news.topic}"')


_PREFIX = "__changelog.errors."


class DeadLetters:
    """A topic; several threads may use it."""

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        """Connect in the background; the topic is there."""
        self._topic = topic
        config = kafka.client_config(enable_idempotence=True, partitioner="murmur2_random")
        self._producer = make_client(Producer, config)

    def put(self, refused: Sequence[tuple[BatchRecord, str]]) -> None:
        """Send records, acknowledged when this returns.

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
    own = [(_PREFIX + name, str(value).encode()) for name, value in headers.items()]
    return OutgoingRecord(record.key, record.value, [*record.headers, *own])
