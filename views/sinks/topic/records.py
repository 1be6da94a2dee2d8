"""Encodes rows as keys and values of records, in Spark's tasks and for deltas."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import DataType, DecimalType, StructType

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.rows.codec import frame
from changelog.kafka.clients import writing_config
from changelog.native import ProducerHandle, text_hashes
from changelog.native.records import TextColumn
from views.sinks.base import GONE
from views.sinks.load import RESULT, counted, no_value, reported
from views.sinks.rendering import check_session, document
from views.sinks.topic import encode
from views.sinks.topic.server import FULL_S, explained, texts
from views.sinks.unique import column, null_in_key
from views.sinks.values import documents

KEY, VALUE = "__topic_key", "__topic_value"
Record = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The form of a view's rows as records."""

    schema: StructType  # of the rows
    key: tuple[str, ...]  # the columns of their key
    ids: tuple[int, int] | None  # of Avro's schemas of keys and values; None in JSON

    def columns(self, *, is_gone: Column | None = None) -> list[Column]:
        """Return the columns to encode: JSON texts, or the row's columns for Avro."""
        if self.ids is not None:
            return [column(name).alias(f"__topic_{name}") for name in self.schema.fieldNames()]
        text = document(self.schema)
        key = document(StructType([self.schema[name] for name in self.key]))
        null = reduce(or_, (column(name).isNull() for name in self.key))
        return [
            F.when(~null, key).alias(KEY),
            (text if is_gone is None else F.when(~is_gone, text)).alias(VALUE),
        ]

    def delta_columns(self) -> list[Column]:
        """Return the columns to encode of a delta."""
        return self.columns(is_gone=column(GONE))

    def delta_values(self, delta: pa.Table) -> dict[str, pa.Array]:
        """Return the columns to encode of a delta that was computed without Spark.

        Raises NotRenderedError: a value is left to Spark.
        """
        if self.ids is not None:
            return {f"__topic_{name}": delta[name] for name in self.schema.fieldNames()}
        is_gone = delta[GONE].to_pylist()
        rows = delta.filter(pc.invert(delta[GONE])).drop_columns([GONE])
        texts = iter(documents(rows))
        keys = documents(delta.select(list(self.key)))
        return {
            KEY: pa.array(keys, pa.string()),
            VALUE: pa.array([None if gone else next(texts) for gone in is_gone], pa.string()),
        }

    def records(self, rendered: pa.Table | pa.RecordBatch) -> list[Record]:
        """Return the records of rows with the columns of `columns`.

        Raises SinkError: a row has a null in its key.
        """
        if not rendered.num_rows:
            return []
        return list(zip(*(column.to_pylist() for column in self.encoded(rendered)), strict=True))

    def encoded(self, rendered: pa.Table | pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Return the encoded keys and values of rows with the columns of `columns`.

        Raises SinkError: a row has a null in its key.
        """
        if self.ids is None:
            key, value = (_whole(rendered.column(name)).cast(pa.binary()) for name in (KEY, VALUE))
            self._refuse_null([key])
            return key, value
        arrays = {
            field.name: _scaled(_whole(rendered.column(f"__topic_{field.name}")), field.dataType)
            for field in self.schema.fields
        }
        keyed = [arrays[name] for name in self.key]
        self._refuse_null(keyed)
        keys = encode.keys(keyed, frame(self.ids[0]))
        return keys, encode.values(list(arrays.values()), frame(self.ids[1]))

    def delta_records(self, delta: pa.Table) -> list[Record]:
        """Return the records of a delta, with tombstones for removed keys.

        Raises SinkError: a row has a null in its key.
        """
        with_marks = zip(self.records(delta), delta[GONE].to_pylist(), strict=True)
        return [(key, None if gone else value) for (key, value), gone in with_marks]

    def _refuse_null(self, arrays: Sequence[pa.Array]) -> None:
        if any(array.null_count for array in arrays):
            raise null_in_key(self.key)


def _scaled(array: pa.Array, kind: DataType) -> pa.Array:
    """Return decimals with the digits of their type, whichever engine computed them.

    Then equal values have equal bytes, even if an engine has widened a type.
    """
    if isinstance(kind, DecimalType):
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    return array


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@dataclass(frozen=True, slots=True)
class TopicRecordWriter:
    """Writes records; sent to Spark's tasks."""

    brokers: str  # addresses of the brokers
    options: Mapping[str, str] = field(repr=False)  # of the connection, with files as texts
    wait_s: float  # how long to wait for the brokers
    topic: str  # of the records
    form: RecordForm  # of the rows
    seed: int  # of the hashes of their keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write batches; yield the number of rows or the error, and the hashes of the keys."""
        hashes = KeyHashes(self.seed)
        report = reported(lambda: self._written(batches, hashes))
        yield report.append_column("hashes", pa.array([hashes.to_bytes()], pa.binary()))

    def _written(self, batches: Iterable[pa.RecordBatch], hashes: KeyHashes) -> int:
        kafka = KafkaConnection(brokers=self.brokers, options=self.options)
        producer = ProducerHandle(writing_config(kafka, wait_s=self.wait_s, linger_ms=5))
        written = 0
        try:
            for batch in batches:
                if batch.num_rows:
                    hashes.add(self._send(producer, kafka, *self.form.encoded(batch)))
                written += batch.num_rows
            self._require(producer, kafka, producer.flush(self.wait_s))
        finally:
            producer.purge()
        return written

    def _send(
        self, producer: ProducerHandle, kafka: KafkaConnection, keys: pa.Array, values: pa.Array
    ) -> TextColumn:
        """Queue records, and return their keys; wait while the queue is full."""
        if values.null_count:
            row = values.is_null().index(True).as_py()
            raise no_value(keys[row].as_py().decode("utf-8", "replace"))
        columns, first = (texts(keys), texts(values)), 0
        while first < len(keys):
            first, code = producer.send_columns(self.topic, *columns, first, 0)
            is_full = code == KafkaError._QUEUE_FULL
            producer.poll(FULL_S if is_full else 0)
            self._require(producer, kafka, 0 if is_full else code)
        return columns[0]

    def _require(self, producer: ProducerHandle, kafka: KafkaConnection, code: int) -> None:
        """Raise the brokers' error for an earlier record, or for this call.

        Raises SinkError: they refuse, or do not answer.
        """
        failure, subject = producer.failure(), f'topic "{self.topic}"'
        if failure is not None:
            raise explained(kafka, failure[0], subject)
        if code:
            raise explained(kafka, KafkaError(code), subject)


def write_rows(rows: DataFrame, writer: TopicRecordWriter) -> tuple[int, bool]:
    """Write every row; return their number, and whether all keys are known to differ.

    Raises SinkError: a task could not write; the first reason is given.
    """
    check_session(rows.sparkSession)
    rendered = rows.select(*writer.form.columns())
    results = rendered.mapInArrow(writer, f"{RESULT}, hashes binary").collect()
    return counted(results), are_distinct(result.hashes for result in results)


# Equal keys have equal bytes and so equal hashes: if all hashes differ, all keys do. If two hashes
# are equal, or some are missing, the keys themselves must be compared.
_MOST = 32 << 20
"""The most hashes that are compared here, of 8 bytes each."""
_PROBE: TextColumn = (memoryview(array("i", [0, 5])), memoryview(b"probe"))
"""A key whose hash shows whether two tasks hash alike."""


@dataclass(slots=True)
class KeyHashes:
    """The hashes of the keys that one task has written."""

    seed: int  # the same for all tasks
    _parts: list[bytes] = field(default_factory=list)
    _count: int = 0

    def add(self, keys: TextColumn) -> None:
        """Add the hashes of some keys."""
        self._count += len(keys[0]) - 1
        if self._count <= _MOST:
            self._parts.append(text_hashes(self.seed, keys))

    def to_bytes(self) -> bytes | None:
        """Return the hashes, after one of a known text that identifies the hash function.

        None if there are too many.
        """
        if self._count > _MOST:
            return None
        return b"".join((text_hashes(self.seed, _PROBE), *self._parts))


def are_distinct(hashes_of_tasks: Iterable[bytes | None]) -> bool:
    """Tell whether all keys of all tasks are known to differ."""
    parts = []
    for task_hashes in hashes_of_tasks:
        if task_hashes is None:
            return False
        parts.append(np.frombuffer(task_hashes, np.uint64))
    if len({int(part[0]) for part in parts}) > 1 or sum(map(len, parts)) > _MOST:
        return False
    hashes = np.sort(np.concatenate([np.empty(0, np.uint64), *(part[1:] for part in parts)]))
    return not (hashes[1:] == hashes[:-1]).any()
