"""The snapshot: parallel COPY by ctid ranges, straight to the topics.

Each worker is a process with its own connection in the exported snapshot and its own producer;
encoding is Python's work, which threads would only take in turns. A chunk counts as done when
the broker has acknowledged all of it. Workers end with their parent, also when it is killed:
a worker left behind would go on writing rows of a snapshot that is no longer the one.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from changelog.batch.fields import Fields, Mask
from changelog.batch.headers import position_headers
from changelog.batch.lines import fields_of_lines
from changelog.batch.rows import fields_of
from changelog.capture.shape import Shape, batch_codec
from changelog.contract.codec import SchemaIds
from changelog.contract.connection import KafkaConnection
from changelog.contract.errors import ChangelogError
from changelog.contract.headers import OP, POSITION, TS, Headers, Op, encode_ts
from changelog.contract.lsn import Lsn
from changelog.contract.partition import partition_without_key
from changelog.contract.position import snapshot_position
from changelog.contract.relation import Relation
from changelog.sink.producer import LogProducer
from changelog.source.connect import connect
from changelog.source.copytext import parse_row
from changelog.source.snapshot import Chunk, begin_snapshot, read_chunk

CHUNK_SEQUENCES = 1 << 32
"""Sequence numbers kept for each chunk, more than a chunk has rows."""

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One chunk of one table.

    Attributes:
        shape: how its rows are read and written.
        chunk: which part of the table.
        number: counts the chunks of the table from 0; makes the rows' sequence numbers.
        topic: where the rows go.
        ids: the schema ids of its records.
        where: the condition that its rows have to meet, or an empty text.
        partitions: of the topic.
    """

    shape: Shape
    chunk: Chunk
    number: int
    topic: str
    ids: SchemaIds
    where: str = ""
    partitions: int = 1

    @property
    def relation(self) -> Relation:
        """Give the table as it is read."""
        return self.shape.relation


@dataclass(frozen=True, slots=True)
class SnapshotContext:
    """What all chunks of a snapshot share.

    Attributes:
        dsn: the source.
        snapshot_name: as exported by the slot.
        epoch: of the rows' positions.
        consistent_point: the LSN at which the rows are true.
        ts_us: when the snapshot was taken, microseconds since 1970.
        kafka: where the rows go.
        producer: further settings of the producers.
    """

    dsn: str
    snapshot_name: str
    epoch: int
    consistent_point: Lsn
    ts_us: int
    kafka: KafkaConnection
    producer: dict[str, Any]

    def __repr__(self) -> str:
        """Leave out the connection string, which may hold a password."""
        return f"SnapshotContext({self.snapshot_name}, {self.consistent_point})"


def copy_tables(
    context: SnapshotContext,
    jobs: Sequence[CopyJob],
    *,
    workers: int,
    on_rows: Callable[[Relation, int], None],
    stop: Callable[[], bool],
) -> bool:
    """Copy every chunk to its topic; gives False when `stop` asked for an early end.

    Args:
        context: what the chunks share.
        jobs: the chunks.
        workers: processes that work side by side.
        on_rows: told the rows of each finished chunk.
        stop: asked between chunks.

    Raises:
        ChangelogError: a worker's error, or that a worker died.
    """
    if not jobs:
        return True
    crew = _Crew(context)
    pool = ThreadPoolExecutor(max_workers=min(workers, len(jobs)), initializer=crew.hire)
    try:
        running: dict[Future[int], CopyJob] = {pool.submit(crew.copy, job): job for job in jobs}
        while running:
            if stop():
                return False
            done, _ = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            for future in done:
                on_rows(running.pop(future).relation, future.result())
    finally:
        crew.dismiss()
        pool.shutdown(wait=True, cancel_futures=True)
    return True


class _Crew:
    """The worker processes, one to each thread that hands out chunks.

    They are plain child processes and speak pickle over pipes: `multiprocessing` would import the
    caller's main module again, which a script or a notebook may not survive.
    """

    def __init__(self, context: SnapshotContext) -> None:
        self._context = context
        self._mine = threading.local()
        self._all: list[subprocess.Popen[bytes]] = []

    def hire(self) -> None:
        worker = subprocess.Popen(
            [sys.executable, "-m", "changelog.capture.snapshot_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._all.append(worker)
        self._mine.worker = worker

    def copy(self, job: CopyJob) -> int:
        worker: subprocess.Popen[bytes] = self._mine.worker
        assert worker.stdin is not None and worker.stdout is not None  # noqa: PT018, S101
        try:
            pickle.dump((self._context, job), worker.stdin)
            worker.stdin.flush()
            rows: int | ChangelogError = pickle.load(worker.stdout)  # noqa: S301 - our own child
        except (EOFError, OSError) as error:
            raise ChangelogError(
                f"a snapshot worker died with code {worker.wait()}",
                hint="see the lines above; start again, the snapshot begins anew",
            ) from error
        if isinstance(rows, ChangelogError):
            raise rows
        return rows

    def dismiss(self) -> None:
        for worker in self._all:
            worker.kill()
        for worker in self._all:
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


def copy_chunk(context: SnapshotContext, job: CopyJob) -> int:
    """Copy one chunk; gives its rows once the broker has all of them.

    Raises:
        ChangelogError: source or broker refuse, or a value has no exact form.
    """
    with closing(connect(context.dsn, application_name="changelog snapshot")) as connection:
        begin_snapshot(connection, context.snapshot_name, [job.relation])
        writer = _ChunkWriter(context, job)
        try:
            read_chunk(connection, job.relation, job.chunk, writer.write, where=job.where)
            writer.finish()
        finally:
            writer.close()
        return writer.rows


class _ChunkWriter:
    """Encodes batches of rows and produces them."""

    def __init__(self, context: SnapshotContext, job: CopyJob) -> None:
        self._producer = LogProducer(context.kafka, context.producer)
        self._codec = batch_codec(job.shape, job.ids)
        self._width = len(job.relation.columns)
        self._topic = job.topic
        self._context = context
        self._sequence = job.number * CHUNK_SEQUENCES
        self._is_keyed = bool(job.relation.key)
        self._partitions = job.partitions
        self._fixed = [(OP, Op.READ.value), (TS, encode_ts(context.ts_us))]
        self.rows = 0

    def write(self, lines: list[bytes]) -> None:
        context = self._context
        columns, plain = fields_of_lines(lines, self._width)
        keys, values = self._encoded(columns)
        if not plain.all():
            odd = [parse_row(lines[at]) for at in np.flatnonzero(~plain)]
            odd_keys, odd_values = self._encoded(fields_of(odd, self._width))
            keys = _merged(keys, odd_keys, plain)
            values = _merged(values, odd_values, plain)
        sequence = np.arange(self._sequence, self._sequence + len(lines))
        lsn = snapshot_position(context.epoch, context.consistent_point).commit_lsn
        headers: list[Headers] = [
            [(POSITION, position), *self._fixed]
            for position in position_headers(context.epoch, lsn, sequence)
        ]
        if self._is_keyed:
            self._producer.produce_all(self._topic, keys, values, headers)
        else:
            first = snapshot_position(context.epoch, context.consistent_point, self._sequence)
            place = partition_without_key(first, self._partitions)
            self._producer.produce_without_key(self._topic, values, headers, place)
        self._sequence += len(lines)
        self.rows += len(lines)

    def _encoded(self, columns: list[Fields]) -> tuple[list[bytes], list[bytes]]:
        if not len(columns[0]):
            return [], []
        return self._codec.encode_keys(columns), self._codec.encode_values(columns)

    def finish(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


def _merged(plain: list[bytes], odd: list[bytes], is_plain: Mask) -> list[bytes]:
    """Put two lists back into the order of their rows."""
    ones, others = iter(plain), iter(odd)
    return [next(ones if each else others) for each in is_plain.tolist()]
