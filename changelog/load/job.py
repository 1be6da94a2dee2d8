"""One job of a load: its share of the partitions, from their places to their ends.

A job has a consumer and a connection of its own. The places live in the target alone, moved with
the rows, so that it may be killed at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from changelog.connect.postgres.places import Partition
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.lines.progress import Progress
from changelog.load.dead_letters import DeadLetters
from changelog.load.plan import Record
from changelog.load.target import LoadTarget, TableWriter
from changelog.sink.client import is_passing, log_error, make_client
from changelog.sink.scan import STALL_S

_POLL_S = 0.2
_FETCH = 10_000
_CLIENT = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Places are checked before; one that vanishes while it is read must not be jumped over.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 65_536,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How much is written in one transaction.

    Attributes:
        records: the most.
        bytes: of keys and values, about the most.
        seconds: after which what is there is written, where a topic is followed.
    """

    records: int = 200_000
    bytes: int = 64 << 20
    seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one job reads.

    Attributes:
        starts: the place of each partition.
        ends: the first offset that is not wanted; None where that is not known.
        before_ms: where an end is not known, it is the first record with this time; None to follow.
    """

    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int | None]
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
        share: Share,
        batches: Batches,
        *,
        dead_letters: DeadLetters | None,
    ) -> None:
        """Prepare; nothing is asked yet."""
        self._kafka, self._share, self._batches = kafka, share, batches
        self._dead_letters = dead_letters
        self.records = self.rows = self.refused = 0
        self._places = dict(share.starts)
        self._progress: dict[str, Progress] = {}
        for (topic, partition), start in share.starts.items():
            progress = self._progress.setdefault(topic, Progress())
            progress.take({partition: start}, {partition: share.ends[topic, partition]})

    @property
    def is_done(self) -> bool:
        """Tell whether each partition is read to its end."""
        return all(each.is_done for each in self._progress.values())

    def run(
        self,
        target: LoadTarget,
        writer: TableWriter,
        stop: Callable[[], bool],
        on_records: Callable[[int], None],
    ) -> None:
        """Read and write until all is done, or until stopped; what was read by then is written.

        Raises:
            OvertakenError: another load has moved a place.
            UnavailableError: a server is away; nothing is half-written.
            SinkError: a record cannot be written, or the target refuses.
            LogError: the brokers refuse.
        """
        config = {**self._kafka.client_config(group_id="changelog-load"), **_CLIENT}
        consumer = make_client(Consumer, config)
        with closing(consumer):
            consumer.assign([TopicPartition(*each, place) for each, place in self._places.items()])
            while not self.is_done and not stop():
                batch = self._batch(consumer, stop)
                moves = self._moves(batch)
                if not moves:
                    continue
                self.rows += self._write(target, writer, batch, moves)
                self._places |= {each: new for each, (_, new) in moves.items()}
                self.records += len(batch)
                on_records(len(batch))

    def _write(
        self,
        target: LoadTarget,
        writer: TableWriter,
        batch: Sequence[Record],
        moves: Mapping[Partition, tuple[int, int]],
    ) -> int:
        aside = self._dead_letters
        if aside is None:
            return target.write(writer, batch, moves)
        told: list[int] = []

        def refuse(refused: Sequence[tuple[Record, str]]) -> None:
            aside.put(refused)
            told.append(len(refused))

        rows = target.write(writer, batch, moves, refuse=refuse)
        self.refused += sum(told)
        return rows

    def _batch(self, consumer: Consumer, stop: Callable[[], bool]) -> list[Message]:
        """Read the records of one transaction."""
        batch: list[Message] = []
        began = heard = time.monotonic()
        size, limits = 0, self._batches
        while len(batch) < limits.records and size < limits.bytes and not self.is_done:
            found = consumer.consume(min(_FETCH, limits.records - len(batch)), _POLL_S)
            now = time.monotonic()
            if found:
                heard = now
                kept = self._kept(found)
                batch += kept
                size += sum(map(len, kept))
            if stop() or now - began > limits.seconds:
                break
            if now - heard > STALL_S and not self._follows:
                raise UnavailableLogError(
                    f"the brokers have sent nothing for {STALL_S:.0f} s",
                    hint="are they running? Start again: what was written stays",
                )
        return batch

    @property
    def _follows(self) -> bool:
        return any(each is None for each in self._share.ends.values())

    def _kept(self, found: Sequence[Message]) -> list[Message]:
        """Return the records that are wanted, and note where partitions end."""
        sound = [each for each in found if each.error() is None]
        if len(sound) < len(found):
            for each in found:
                self._hear(each)
        if len(self._progress) == 1:
            return self._of_topic(next(iter(self._progress)), sound)
        by_topic: dict[str, list[Message]] = {}
        for each in sound:
            by_topic.setdefault(each.topic() or "", []).append(each)
        return [each for topic, some in by_topic.items() for each in self._of_topic(topic, some)]

    def _of_topic(self, topic: str, found: Sequence[Message]) -> list[Message]:
        progress = self._progress[topic]
        kept = list(progress.kept(found, before_ms=self._share.before_ms))
        progress.note(kept)
        return kept

    def _hear(self, message: Message) -> None:
        error = message.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._progress[message.topic() or ""].reach(
                message.partition() or 0, message.offset() or 0
            )
        elif not is_passing(error):
            raise _unreadable(message, error)

    def _moves(self, batch: Sequence[Message]) -> dict[Partition, tuple[int, int]]:
        moved = {}
        for topic, progress in self._progress.items():
            for partition, place in progress.places.items():
                old = self._places[topic, partition]
                if place != old:
                    moved[topic, partition] = (old, place)
        assert moved or not batch  # noqa: S101 - each record moves a place
        return moved


def _unreadable(message: Message, error: KafkaError) -> LogError:
    return log_error(
        KafkaException(error),
        f'cannot read partition {message.partition()} of topic "{message.topic()}"',
    )
