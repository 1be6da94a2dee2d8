"""The classes of the native part: C (`compiled`) and Python (`plain`) implement them.

An object takes parameters of its own implementation only: `raw` is private to each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from changelog.native.loads import BatchRecord
from changelog.native.records import PARTITION_UA, Record

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError

    from changelog.contract.base.headers import Headers
    from changelog.contract.rows.codec import SchemaIds
    from changelog.contract.rows.relation import Relation
    from changelog.native.columns import IntakeNews, RowColumn, RowField

    # For mypy, which checks at the end that both implementations follow the protocols.
    from changelog.native.compiled import buffers as c_buffers
    from changelog.native.compiled import fold as c_fold
    from changelog.native.compiled import intake as c_intake
    from changelog.native.compiled import kafka as c_kafka
    from changelog.native.compiled import loads as c_loads
    from changelog.native.compiled import rows as c_rows
    from changelog.native.loads import (
        AvroRows,
        BatchLimits,
        BatchNews,
        CopyCell,
        CsvColumn,
        Groups,
        JsonColumn,
        Slice,
    )
    from changelog.native.plain import buffers, fold, intake, kafka, loads, rows
    from changelog.native.records import (
        FoldColumns,
        FoldRecord,
        News,
        RelationSpan,
        Row,
        Selection,
        TextColumn,
        Transaction,
    )

T_co = TypeVar("T_co", covariant=True)


class Items(Protocol[T_co]):
    """A sequence by its length and places."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T_co]: ...


class Texts(Items[bytes], Protocol):
    """Messages or lines, back to back; the content of one is copied only when it is asked for."""

    raw: Any  # its memory, for the same implementation

    def __init__(self, texts: Iterable[bytes] = ()) -> None:
        """Start with some texts; the library adds more."""

    def add(self, text: bytes) -> None:
        """Add a text at the end."""

    def add_range(self, texts: Texts, first: int, end: int) -> None:
        """Add some texts of another sequence, from `first` to before `end`."""

    @property
    def size(self) -> int:
        """Return the number of bytes of all texts."""

    def clear(self) -> None:
        """Remove all, but keep the memory."""

    def alike(self, first: int) -> tuple[int, bool]:
        """Return the end of the run of messages that are all plain, or all not, and which.

        Rows, begins and commits are plain.
        """

    def behind_commit(self) -> int:
        """Return the place after the last message that ends a transaction, or 0."""

    def commit_from(self, first: int) -> int:
        """Return the place of the first transaction end from message `first` on, or the end."""

    def whole_before(self, first: int, lsn: int) -> int:
        """Return the end of a run of whole transactions that all commit before `lsn`.

        The run starts at `first`, which is returned if there is no such transaction.
        """


class WrittenPlaces(Items[tuple[int, int]], Protocol):
    """For each partition of a topic the LSN and sequence of the last record that it holds."""

    raw: Any  # its memory, for the same implementation

    def __init__(self, places: Sequence[tuple[int, int]]) -> None:
        """Take the places in the order of partitions; (0, 0) for a partition without a record."""


class Records(Items[Record], Protocol):
    """Records that are to be produced, of one epoch."""

    raw: Any  # its memory, for the same implementation
    epoch: int  # of their positions

    def __init__(self, epoch: int) -> None:
        """Begin with none."""

    def add(self, record: Record) -> None:
        """Add one at the end."""

    def clear(self) -> None:
        """Remove all, but keep the memory."""

    def keys(self, first: int, end: int) -> list[bytes]:
        """Return the keys of some records of a table that has one."""

    def add_count(self, op: bytes, rows: int, size: int) -> None:
        """Count rows, and bytes of keys and values, that were added one by one."""

    def take_counts(self) -> list[tuple[bytes, int, int]]:
        """Return letter, rows and bytes of each operation that occurred, and reset the counts."""

    def leave_out_written(self, first: int, written: WrittenPlaces) -> int:
        """Leave out the records from `first` on that the log already has; return how many.

        The counts of rows and bytes are then of the remaining records.
        """

    def leave_out(self, place: int) -> None:
        """Leave a record out: it is not produced."""

    def is_left_out(self, place: int) -> bool:
        """Tell whether a record is left out."""


class Run(Protocol):
    """Rows, begins and commits between two other messages; its memory is reused."""

    raw: Any  # its memory, for the same implementation

    def __init__(self) -> None:
        """Begin without a transaction."""

    def scan(
        self,
        messages: Texts,
        first: int,
        end: int,
        *,
        before: Transaction | None,
        sequence: int,
        step: int,
    ) -> bool:
        """Find the rows of some messages; returns whether these are a run in the right order.

        `before` is the open transaction before them, `sequence` the number of its next row, and
        `step` the difference between these numbers.
        """

    def relations(self) -> Iterator[RelationSpan]:
        """Yield the relations that have rows in the run."""

    @property
    def last(self) -> Transaction:
        """Return the transaction that began last, in the run or before it."""

    @property
    def is_open(self) -> bool:
        """Tell whether the transaction that began last is still open."""

    def row(self, number: int) -> Row:
        """Return a row."""

    @property
    def next_sequence(self) -> int:
        """Return the number of the next row of the transaction that began last."""

    @property
    def commits(self) -> int:
        """Return the number of transactions that ended in the run."""

    @property
    def end_lsn(self) -> int:
        """Return the end of the last transaction that ended; 0 if none did."""

    @property
    def xids(self) -> list[int]:
        """Return the numbers of the transactions that began in the run."""


class BatchCodec(Protocol):
    """Encodes rows to the same bytes as `RowCodec`, many at a time."""

    def __init__(
        self, relation: Relation, ids: SchemaIds, selection: Selection | None = None
    ) -> None:
        """Prepare for one version of a table.

        The relation has the columns that are written; without a selection all are, unchanged.
        """

    def add_rows(self, messages: Texts, run: Run, first: int, to: Records) -> int | None:
        """Add the records of one relation's rows, from the row `first` on.

        Args:
            messages: of the stream.
            run: has their rows.
            first: number of the row to start with.
            to: the records.

        Returns:
            The number of the first row that needs the caller, or None at the end. The caller adds
            the records of that row and goes on with the next.
        """

    def add_lines(
        self, lines: Texts, first: int, *, lsn: int, sequence: int, ts_us: int, to: Records
    ) -> int | None:
        """Add the records of lines of COPY's text format, from the line `first` on.

        Lines have no line feeds. `sequence` is that of line 0, from which the following ones count.

        Returns:
            As `add_rows`.
        """


class Fold(Protocol):
    """Folds the records of one range."""

    raw: Any  # its memory, for the same implementation

    def __init__(
        self,
        *,
        prefix: bytes,
        since: bytes,
        before: bytes,
        keeps_faults: bool,
        most_bytes: int,
        partition: int,
        homes: int | None,
        by_offset: bool = False,
    ) -> None:
        """Create an empty fold.

        Every key begins with `prefix`. Records before `since` do not count, unless it is empty;
        `before` is the first position that does not count. With `keeps_faults` a record without a
        position is kept with its fault. Keys and their last records may take `most_bytes`. `homes`
        is the number of partitions if each key must be in the one of its hash, None if it may be in
        others too. With `by_offset` the last record of a key decides, whatever its position.
        """

    @property
    def records(self) -> int:
        """Return the number of records added."""

    @property
    def tombstones(self) -> int:
        """Return the number of tombstones among them."""

    @property
    def keys_held(self) -> int:
        """Return the number of keys held in memory."""

    @property
    def is_full(self) -> bool:
        """Tell whether the records take more memory than `most_bytes`."""

    def add(self, records: Sequence[FoldRecord]) -> None:
        """Add records in the order of their offsets.

        Raises StrangePlaceError: one has no position, and faults are not kept; MemoryError: there
        is less memory than `most_bytes`.
        """

    def spill(self, file: int) -> None:
        """Write the records to a file that the caller keeps open, and drop them from memory.

        Raises OSError: the file cannot be written.
        """

    def drain(self, rows: int, most_bytes: int) -> Iterator[FoldColumns]:
        """Yield the last record of each key, in no order; nothing may be added after that.

        Records before `since` are left out, and tombstones at it. After a first `spill` the rest
        must be spilled too before this. Each part has at most `most_bytes` of keys and values,
        unless a single row has more.

        Raises:
            StrangePlaceError: a key does not belong to this partition.
            OSError: the file cannot be read.
            MemoryError: there is less memory than `most_bytes`.
        """

    def close(self) -> None:
        """Free the memory."""


class RangeReader(Protocol):
    """Reads ranges of partitions, one after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises KafkaException: librdkafka does not know a setting.
        """

    def assign(self, topic: str, partition: int, offset: int, *, timeout_s: float) -> None:
        """Start to read at an offset, once the leader is known.

        Raises KafkaException: the brokers do not answer in time, or refuse.
        """

    def rest(self) -> None:
        """Stop fetching until the next range is assigned; otherwise later records are fetched."""

    def poll(self, into: Fold, end: int, *, timeout_ms: int) -> News:
        """Read until the range or the time is over, the fold is full, or there is an error.

        Raises StrangePlaceError, MemoryError: as `Fold.add`.
        """

    def close(self) -> None:
        """Disconnect, and free the memory."""


class ProducerHandle(Protocol):
    """A producer; one thread uses it at a time.

    It is destroyed with the object; records that are still queued are dropped.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises ValueError, KafkaException: librdkafka does not know a setting.
        """

    @property
    def sent_records(self) -> int:
        """Return the number of records that `send_records` has queued."""

    @property
    def sent_bytes(self) -> int:
        """Return the size of their keys and values."""

    def failure(self) -> tuple[KafkaError, str] | None:
        """Return the first failure and its record's topic; an empty topic if it is the client's."""

    def told(self) -> KafkaError | None:
        """Return the latest error of the connections since the last call."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int = PARTITION_UA,
    ) -> int:
        """Queue a record; returns an error's code, or 0."""

    def send_records(
        self,
        topic: str,
        records: Records,
        first: int,
        end: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        """Queue records; return the place after the last queued one, and an error code or 0."""

    def send_columns(
        self,
        topic: str,
        keys: TextColumn | None,
        values: TextColumn,
        first: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        """Queue rows from a place on; return the place after the last queued one, and a code or 0.

        Without keys the records have none.
        """

    def poll(self, timeout_s: float) -> None:
        """Process the broker's reports; waits until one has come."""

    def flush(self, timeout_s: float) -> int:
        """Wait for queued records; return an error code or 0."""

    def purge(self) -> None:
        """Drop queued records."""

    def __len__(self) -> int:
        """Return the number of records not acknowledged yet."""

    def init_transactions(self, timeout_s: float) -> KafkaError | None:
        """Fence off earlier producers of this transactional id."""

    def begin_transaction(self) -> KafkaError | None:
        """Begin a transaction."""

    def commit_transaction(self, timeout_s: float) -> KafkaError | None:
        """Commit the transaction."""

    def abort_transaction(self, timeout_s: float) -> KafkaError | None:
        """Abort the transaction, so that readers do not see its records."""


class Batch(Protocol):
    """Records, kept until they are cleared."""

    raw: Any  # its memory, for the same implementation

    def __init__(self, topics: Sequence[str]) -> None:
        """Create an empty batch.

        `topics` are those of the slices that are read, in their order.
        """

    def __len__(self) -> int:
        """Return the number of records."""

    @property
    def size_bytes(self) -> int:
        """Return the size of keys, values and headers in bytes."""

    def clear(self) -> None:
        """Empty the batch; its ranges must not be used any more."""

    def add(self, record: BatchRecord) -> None:
        """Add a record.

        Raises MemoryError: there is not enough memory.
        """

    def all(self) -> BatchRange:
        """Return all records of the batch."""


class BatchRange(Items[BatchRecord], Protocol):
    """Successive records of a batch; valid until the batch is cleared."""

    def __init__(self, batch: Batch, first: int, end: int) -> None:
        """Refer to the records `[first, end)` of a batch."""

    @property
    def batch(self) -> Batch:
        """Return the batch that has the records."""

    @property
    def first(self) -> int:
        """Return the place of the first record."""

    def value(self, place: int) -> bytes | None:
        """Return the value of a record, without the rest of it."""

    def column(self, name: str) -> Any:  # noqa: ANN401 - a buffer of numbers of 64 bits
        """Return the numbers of a column: `partition`, `offset` or `timestamp_ms`."""

    def groups(self, *, by_value: bool, by_key: bool) -> Groups:
        """Return the records by the frames of their values, keys or both.

        Raises MemoryError: there is not enough memory.
        """


class BatchReader(Protocol):
    """Reads slices of partitions into batches."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises KafkaException: librdkafka does not know a setting.
        """

    def assign(self, slices: Sequence[Slice]) -> None:
        """Begin to read slices.

        Raises KafkaException: the client refuses.
        """

    @property
    def slices(self) -> list[Slice]:
        """Return the slices being read, each with its next offset and its end."""

    @property
    def is_done(self) -> bool:
        """Tell whether each slice is read to its end."""

    def poll(self, into: Batch, until: BatchLimits, *, timeout_ms: int) -> BatchNews:
        """Read until all slices are read, a limit is reached, the time is over, or on an error.

        Raises MemoryError: there is not enough memory.
        """

    def close(self) -> None:
        """Disconnect, and free the memory."""


class RowCopier(Protocol):
    """Writes rows whose keys and values have one schema each."""

    def __init__(
        self, values: AvroRows | None, keys: AvroRows | None, cells: Sequence[CopyCell]
    ) -> None:
        """Prepare for the schemas, None if a part is not read, and the cells of a row."""

    def copied(
        self, records: BatchRange, numbers: Sequence[Any], chosen: array[int] | None = None
    ) -> bytes | None:
        """Return the tuples of records, or None if one is not exactly as the fields declare.

        `numbers` are columns of 64 bits that cells refer to, one number for each record; `chosen`
        are the places of the records to copy, None for all.
        """


class JsonLines(Protocol):
    """Writes lines of records whose values are objects."""

    def __init__(self, columns: Sequence[JsonColumn], *, all_known: bool, numbered: bool) -> None:
        """Prepare for the columns of a line, in their order.

        With `all_known` objects with other members are left to the caller. `numbered` lines end
        with the place of the record, and the mark that it is not deleted.
        """

    def lines(self, records: BatchRange, chosen: array[int], first: int) -> tuple[int, bytes]:
        """Return the number of lines written, and the lines.

        It stops at a record that is left to the caller, to be converted otherwise or refused.
        `chosen` are places of records with values; `first` is the index in it to start at.
        """


class CsvLines(Protocol):
    """Writes lines of records whose values are lines of CSV, or texts."""

    def __init__(
        self, columns: Sequence[CsvColumn], *, fields: int, delimiter: bytes, numbered: bool
    ) -> None:
        """Prepare for the columns of a line, in their order.

        `fields` is the number of fields of a value; 0 if values are texts. The delimiter is one
        byte. `numbered` is as in `JsonLines`.
        """

    def lines(self, records: BatchRange, chosen: array[int], first: int) -> tuple[int, bytes]:
        """Return the number of lines written, and the lines; see `JsonLines.lines`."""


class RecordColumns(Protocol):
    """Records by column, in buckets by a hash of their key."""

    raw: Any  # its memory, for the same implementation

    def __init__(self, *, prefix: bytes, buckets: int) -> None:
        """Create empty buckets.

        Every key begins with `prefix`, of at most 8 bytes.
        """

    @property
    def held_bytes(self) -> int:
        """Return the size of the records in memory."""

    def add(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        """Add a record."""

    def take(self, bucket: int) -> pa.Table:
        """Return the records of a bucket, and empty it."""


class Intake(Protocol):
    """Reads slices of some partitions of a topic into columns, of one topic after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises KafkaException: librdkafka does not know a setting.
        """

    def assign(
        self,
        topic: str,
        slices: Mapping[int, tuple[int, int]],
        into: RecordColumns,
        *,
        timeout_s: float,
    ) -> None:
        """Begin to read a slice of each partition: from its first offset up to its end.

        Raises KafkaException: the client refuses, or the brokers do not say who leads the topic.
        """

    def rest(self) -> None:
        """Fetch nothing more, until the next slices."""

    def poll(self, *, timeout_ms: int, most_bytes: int) -> IntakeNews:
        """Read until the slices or the time is over, `most_bytes` are in memory, or on an error.

        Raises MemoryError: there is not enough memory.
        """

    def close(self) -> None:
        """Disconnect, and free the memory."""


class RowDecoder(Protocol):
    """Decodes rows of one writer's schema."""

    def __init__(self, frame: bytes, fields: Sequence[RowField]) -> None:
        """Prepare for rows that begin with a frame of 5 bytes, by their fields."""

    def decode(self, rows: pa.BinaryArray) -> list[RowColumn] | None:
        """Return the columns of rows, or None if a row is not exactly as the fields declare."""


if TYPE_CHECKING:
    _TEXTS: tuple[type[Texts], ...] = c_buffers.Texts, buffers.Texts
    _WRITTEN_PLACES: tuple[type[WrittenPlaces], ...] = (
        c_buffers.WrittenPlaces,
        buffers.WrittenPlaces,
    )
    _RECORDS: tuple[type[Records], ...] = c_buffers.Records, buffers.Records
    _RUN: tuple[type[Run], ...] = c_rows.Run, rows.Run
    _BATCH_CODEC: tuple[type[BatchCodec], ...] = c_rows.BatchCodec, rows.BatchCodec
    _FOLD: tuple[type[Fold], ...] = c_fold.Fold, fold.Fold
    _RANGE_READER: tuple[type[RangeReader], ...] = c_fold.RangeReader, fold.RangeReader
    _PRODUCER_HANDLE: tuple[type[ProducerHandle], ...] = (
        c_kafka.ProducerHandle,
        kafka.ProducerHandle,
    )
    _BATCH_READER: tuple[type[BatchReader], ...] = c_kafka.BatchReader, kafka.BatchReader
    _BATCH: tuple[type[Batch], ...] = c_loads.Batch, loads.Batch
    _BATCH_RANGE: tuple[type[BatchRange], ...] = c_loads.BatchRange, loads.BatchRange
    _ROW_COPIER: tuple[type[RowCopier], ...] = c_loads.RowCopier, loads.RowCopier
    _JSON_LINES: tuple[type[JsonLines], ...] = c_loads.JsonLines, loads.JsonLines
    _CSV_LINES: tuple[type[CsvLines], ...] = c_loads.CsvLines, loads.CsvLines
    _RECORD_COLUMNS: tuple[type[RecordColumns], ...] = c_intake.RecordColumns, intake.RecordColumns
    _INTAKE: tuple[type[Intake], ...] = c_intake.Intake, intake.Intake
    _ROW_DECODER: tuple[type[RowDecoder], ...] = c_intake.RowDecoder, intake.RowDecoder
