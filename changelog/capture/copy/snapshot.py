"""Rows of a snapshot to records: the work of a worker process on a chunk.

A chunk counts as done when the broker has acknowledged all of it. A worker opens a connection and
a snapshot for each segment; its producer lives as long as the worker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from changelog.capture.rows.shape import RowShape, batch_codec, event_encoder, row_codec
from changelog.capture.state.rate import UNLIMITED, Rate, Throttle
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.forms.event import Event, Stamp
from changelog.contract.log.partition import partition_without_key
from changelog.contract.rows.codec import SchemaIds, key_of
from changelog.contract.rows.relation import Relation
from changelog.native import Records, Texts
from changelog.native.records import Record
from changelog.postgres.connection import Connection
from changelog.sink.producer import LogProducer
from changelog.source.connect.connect import connect
from changelog.source.snapshot.snapshot import Chunk, begin_snapshot, parse_row, read_chunk

CHUNK_SEQUENCES = 1 << 32
"""Sequence numbers kept for each chunk, more than a chunk has rows."""

BATCH_ROWS = 2000
BATCH_BYTES = 1 << 20
"""Limits of a batch of rows: larger batches are hardly faster and take more memory."""

# Workers share a machine, and each fills its queue whenever the broker is slower than itself.
# A queued record costs a kilobyte more than its own bytes, which are all that the first limit
# counts.
_QUEUE = {
    "queue.buffering.max.kbytes": 5 * 1024,
    "queue.buffering.max.messages": 5_000,
    "batch.size": 256 * 1024,
}


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One chunk of one table."""

    shape: RowShape  # how its rows are read and written
    chunk: Chunk  # the pages of the table
    number: int  # counts the chunks of a table from 0; the rows' sequence numbers begin with it
    topic: str  # where the rows are written
    ids: SchemaIds  # the schema ids of the records
    where: str = ""  # the row filter, or empty
    partitions: int = 1  # the topic's number of partitions

    @property
    def relation(self) -> Relation:
        """Return the table as it is read."""
        return self.shape.relation


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """State shared by the chunks that are copied in one snapshot."""

    number: int  # differs between the segments of the workers
    snapshot_name: str  # as exported by its holder
    relations: tuple[Relation, ...]  # the tables to lock
    epoch: int  # of the rows' positions
    high: Lsn  # the LSN of the rows' positions, which is the fence's
    ts_us: int  # when the snapshot was taken, microseconds since 1970
    # per topic the keys to leave out: the log has newer rows of them
    touched: Mapping[str, frozenset[bytes]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class WorkerServers:
    """Servers of a worker: the source it reads, and the brokers it writes to."""

    dsn: str = field(repr=False)  # the source
    kafka: KafkaConnection  # where the rows go
    producer: Mapping[str, Any] = field(repr=False)  # further settings of the producers
    transactional_id: str = ""  # of this worker's producer, or empty
    rate: Rate = UNLIMITED  # how fast this worker may write


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of copying a chunk: rows now on the log, and the bytes of their keys and values."""

    rows: int  # all rows, also those that were left out because the log has newer ones
    size: int  # in bytes
    records: int = 0  # the rows written


class ChunkCopier:
    """Copies chunks, one segment after another."""

    def __init__(self, servers: WorkerServers) -> None:
        """Prepare; connects on the first segment."""
        self._servers = servers
        self._producer: LogProducer | None = None
        self._connection: Connection | None = None
        self._segment: Segment | None = None
        self._throttle = Throttle(servers.rate)

    def begin(self, segment: Segment) -> None:
        """Switch to another snapshot.

        Raises TablesBusyError: a table cannot be locked now; SourceError: the snapshot is gone.
        """
        self.end()
        dsn = self._servers.dsn
        self._connection = connect(dsn, application_name="changelog snapshot")
        begin_snapshot(self._connection, segment.snapshot_name, segment.relations)
        self._segment = segment

    def copy(self, job: CopyJob) -> Copied:
        """Copy one chunk of the segment, and wait until the broker has acknowledged all of it.

        Raises ChangelogError: source or broker refuse, or a value has no exact form.
        """
        assert self._connection is not None and self._segment is not None  # noqa: PT018, S101
        if self._producer is None:
            options = {**_QUEUE, **self._servers.producer}
            self._producer = LogProducer.open(
                self._servers.kafka, options, transactional_id=self._servers.transactional_id
            )
            self._producer.take_over()
        writer = _ChunkWriter(self._producer, self._segment, job, self._throttle)
        read_chunk(
            self._connection,
            job.relation,
            job.chunk,
            writer.write,
            batch_rows=self._servers.rate.most(BATCH_ROWS),
            batch_bytes=BATCH_BYTES,
            where=job.where,
        )
        self._producer.commit()
        return Copied(writer.rows, writer.size, writer.records)

    def end(self) -> None:
        """Release the snapshot."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._segment = None, None

    def close(self) -> None:
        """Close all connections; records that are not acknowledged are dropped."""
        self.end()
        if self._producer is not None:
            self._producer.close()
            self._producer = None


class _ChunkWriter:
    """Encodes batches of rows and produces them."""

    def __init__(
        self, producer: LogProducer, segment: Segment, job: CopyJob, throttle: Throttle
    ) -> None:
        self._producer, self._throttle = producer, throttle
        seen_us = time.time_ns() // 1000
        self._stamp = Stamp(lsn=segment.high, ts_us=segment.ts_us, xid=None, seen_us=seen_us)
        self._batches = batch_codec(job.shape, job.ids)
        self._rows = row_codec(job.shape, job.ids)
        self._events = event_encoder(job.shape, job.ids)
        self._relation = job.relation
        self._topic = job.topic
        self._touched = segment.touched.get(job.topic, frozenset())
        self._lsn, self._ts_us = segment.high, segment.ts_us
        self._records = Records(segment.epoch)
        self._sequence = job.number * CHUNK_SEQUENCES
        self._partitions = job.partitions
        self._size_before, self._records_before = producer.bytes, producer.records
        self.rows = 0

    @property
    def size(self) -> int:
        """Return the bytes of the keys and values written."""
        return self._producer.bytes - self._size_before

    @property
    def records(self) -> int:
        """Return the number of records written."""
        return self._producer.records - self._records_before

    def write(self, lines: Texts) -> None:
        """Produce the records of some lines of COPY."""
        records, place, before = self._records, None, self.size
        records.clear()
        self._encode(lines)
        if not self._relation.key:
            first = Position(records.epoch, self._lsn, self._sequence)
            place = partition_without_key(first, self._partitions)
        elif self._touched:
            for number, key in enumerate(records.keys(0, len(records))):
                if key in self._touched:
                    records.leave_out(number)
        self._sequence += len(lines)
        self.rows += len(lines)
        self._producer.produce_records(self._topic, records, 0, len(records), place)
        self._throttle.spent(len(lines), self.size - before)
        time.sleep(self._throttle.owed_s())  # PostgreSQL waits meanwhile to send more of the COPY

    def _encode(self, lines: Texts) -> None:
        """Encode lines at once, and by itself each line that the batch codec does not take."""
        place = 0
        while place < len(lines):
            odd: int | None = place
            if self._batches is not None:
                odd = self._batches.add_lines(
                    lines,
                    place,
                    lsn=self._lsn,
                    sequence=self._sequence,
                    ts_us=self._ts_us,
                    to=self._records,
                )
            if odd is None:
                return
            self._encode_row(lines[odd], self._sequence + odd)
            place = odd + 1

    def _encode_row(self, line: bytes, sequence: int) -> None:
        """Encode a row by itself."""
        row = parse_row(line)
        relation = self._relation
        if len(row) != len(relation.columns):
            raise ProtocolError(
                f"a line of COPY has {len(row)} fields instead of {len(relation.columns)}"
            )
        key = None
        if relation.key:
            key = self._rows.encode_key(key_of(relation.key_indexes, row))
        if self._events is None:
            value = self._rows.encode_value(row)
        else:
            value = self._events.encode(Event((), None, row, Op.READ), self._stamp)
        record = Record(key, value, self._lsn, sequence, self._ts_us, Op.READ.value)
        self._records.add(record)
