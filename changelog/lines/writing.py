"""Lines of standard input to records of a topic, each acknowledged by all replicas.

What is taken from the input is written; where a line is no record, those before it are, and the
error says so. In a transaction all of the input stands, or nothing of it.
"""

from __future__ import annotations

import os
import select
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    RecordRefusedError,
    UnavailableLogError,
)
from changelog.contract.log.properties import RECORD_BYTES
from changelog.kafka.cluster import Cluster
from changelog.lines.ask import chosen, find_topic
from changelog.lines.forms.parse import InputError, Parse
from changelog.sink.claimed import check_unclaimed
from changelog.sink.producer import WRITE_S, LogProducer

_CHUNK = 1 << 18
_LOOK_S = 0.2
_PAUSE_S = 5.0  # after such a time without being asked, another wait has begun


class WritingStoppedError(Exception):
    """Somebody ended the command before its input had ended."""


def split(
    delimiter: bytes, stop: Callable[[], bool], descriptor: int = 0, most: int = RECORD_BYTES
) -> Iterator[list[bytes]]:
    """Return the lines of an input as they come, several at a time.

    Behind the last one the delimiter may be missing. A line of more than `most` bytes is no record.
    `stop` is asked while nothing comes.

    Raises StoppedError: `stop` told to end; InputError: a line is too long.
    """
    rest = b""
    input_ = select.poll()  # select() takes no descriptor past 1,023
    input_.register(descriptor, select.POLLIN)
    while True:
        while not input_.poll(_LOOK_S * 1000):
            if stop():
                raise WritingStoppedError
        if stop():
            raise WritingStoppedError
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(delimiter)
        if len(rest) > most:
            raise InputError(
                f"a line has more than {most} bytes",
                hint=f"--delimiter is {delimiter!r}: does it end lines?",
            )
        if lines:
            yield lines
    if rest:
        yield [rest]


def whole_files(files: Sequence[str], most: int = RECORD_BYTES) -> Iterator[list[bytes]]:
    """Return each file as one line.

    What is too large fails when its turn comes.

    Raises ConfigurationError: one cannot be read; none is taken then.
    """
    for file in files:
        if not os.access(file, os.R_OK) or Path(file).is_dir():
            raise ConfigurationError(f"{file} cannot be read", hint="nothing was written")
    return _each_whole(files, most)


def _each_whole(files: Sequence[str], most: int) -> Iterator[list[bytes]]:
    for file in files:
        raw = Path(file).read_bytes()
        if len(raw) > most:
            raise InputError(f"{file} has more than {most} bytes")
        yield [raw]


def part_read(descriptor: int = 0) -> float | None:
    """Return the share of an input that was read, or None if its end cannot be known."""
    try:
        size, place = os.fstat(descriptor).st_size, os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:  # a pipe or a terminal has no places
        return None
    return min(1.0, place / size) if size and place else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """The topic to write to, and how it is written."""

    topic: str
    partition: int | None = None  # which of it; None for where keys belong
    whole: bool = False  # whether all of the input stands or nothing
    transactional_id: str = ""  # of the one transaction; empty for one that no other run has
    most: int | None = None  # the most records; None for all that the input has
    skips_empty: bool = False  # whether an empty line is nothing


class Writing:
    """One run of writing."""

    def __init__(
        self,
        kafka: KafkaConnection,
        target: WriteTarget,
        parse: Parse,
        on_taken: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Prepare; nothing is asked yet.

        `on_taken` is told how many more lines were taken; of none when the writing begins.
        """
        self._kafka, self._target, self._parse, self._on_taken = kafka, target, parse, on_taken
        self.taken = 0  # how many lines were taken
        self._is_compacted = False
        self._last_queued, self._moved_at, self._asked_at = 0, 0.0, 0.0

    def run(self, lines: Iterator[list[bytes]], stop: Callable[[], bool]) -> None:
        """Write each line; `stop` is asked while brokers are waited for.

        Raises:
            StoppedError: the lines ended since somebody told; those before are written.
            InputError: a line is no record; those before it are written.
            ConfigurationError: there is no such topic or partition, or the topic is a capture's.
            UnavailableLogError: the brokers do not answer.
            LogError: they refuse.
        """
        topic, partition = self._target.topic, self._target.partition
        there = find_topic(Cluster(self._kafka), topic)
        chosen(topic, there.partitions, () if partition is None else (partition,))
        self._is_compacted = "compact" in there.settings.get("cleanup.policy", "")
        check_unclaimed(self._kafka, topic)
        own = self._target.transactional_id or f"changelog-write-{uuid.uuid4()}"
        producer = LogProducer.open(self._kafka, transactional_id=own if self._target.whole else "")
        producer.on_wait = lambda: self._watch(producer, stop)
        try:
            producer.take_over()
            self._write(producer, lines)
        except RecordRefusedError as error:
            raise RecordRefusedError(
                str(error.args[0]),
                hint=f"one of the first {self.taken} lines; {self._what_stands('they')}",
            ) from error
        finally:
            producer.close()

    def _write(self, producer: LogProducer, lines: Iterator[list[bytes]]) -> None:
        self._on_taken(0)
        try:
            for some in lines:
                is_enough = self._queue(producer, some)
                producer.poll()
                self._on_taken(len(some))
                if is_enough:
                    break
        except (InputError, WritingStoppedError) as error:
            if not self._target.whole:
                producer.commit()
            if isinstance(error, WritingStoppedError):
                raise
            raise InputError(
                f"line {self.taken + 1}: {error.args[0]}",
                hint="; ".join(filter(None, [error.hint, self._what_stands()])),
            ) from error
        producer.commit()
        producer.await_readers()

    def _queue(self, producer: LogProducer, some: list[bytes]) -> bool:
        """Queue the records of some lines; tell whether these are all that is wanted."""
        topic, partition, parse = self._target.topic, self._target.partition, self._parse
        for line in some:
            if line or not self._target.skips_empty:
                key, value, headers = parse(line)
                if key is None and self._is_compacted:
                    raise InputError(
                        f'a record without a key, which topic "{topic}" does not take: it is '
                        "compacted",
                        hint="write a key before the value, with a tab (--separator) between them",
                    )
                producer.produce(topic, key, value, headers, partition)
            self.taken += 1
            if producer.records == self._target.most:
                return True
        return False

    def _what_stands(self, who: str = "") -> str:
        if self._target.whole:
            return "nothing was written"
        if who:
            return f"{who} may be written"
        return f"{self.taken} lines before it are written" if self.taken else "nothing was written"

    def _watch(self, producer: LogProducer, stop: Callable[[], bool]) -> None:
        """End a wait in which nothing was acknowledged for a minute."""
        now, queued = time.monotonic(), producer.queued
        if queued != self._last_queued or now - self._asked_at > _PAUSE_S:
            self._last_queued, self._moved_at = queued, now
        self._asked_at = now
        if now - self._moved_at > WRITE_S or stop():
            raise UnavailableLogError(
                f"{queued} of {self.taken} records are not acknowledged",
                hint="are the brokers running? " + self._what_stands("they"),
            )
