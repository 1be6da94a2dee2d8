"""A log of the table `orders` in the contract's form, written straight to a topic.

First a copy of every row, then updates of rows at random, at last the tombstones of every 21st
key: what capture leaves behind after years, without waiting for a source. DuckDB makes the rows'
text, the batch encoder of capture makes the records. The same size gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.topic import TopicSettings, frontier_topic, topic_name
from changelog.contract.rows.codec import RowCodec, SchemaIds, key_of
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.contract.rows.types import column_type
from changelog.native import BatchCodec, Records, Texts
from changelog.native.records import Record
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer
from changelog.sink.registry import SchemaRegistry
from changelog.sink.topics import make_topics, plan_topics
from changelog.source.snapshot.snapshot import parse_row

PARTITIONS = 2
"""What capture gives a new topic."""

_COLUMNS = {
    "id": ("int8", "bigint"),
    "customer_id": ("int8", "bigint"),
    "status": ("text", "text"),
    "amount": ("numeric", "numeric(12,2)"),
    "created_at": ("timestamptz", "timestamp with time zone"),
    "updated_at": ("timestamp", "timestamp without time zone"),
    "active": ("bool", "boolean"),
    "score": ("float8", "double precision"),
    "attrs": ("jsonb", "jsonb"),
    "note": ("text", "text"),
}
ORDERS = Relation(
    oid=16_384,
    name=TableName("public", "orders"),
    columns=tuple(Column(name, column_type(*of)) for name, of in _COLUMNS.items()),
    key=("id",),
)
_DELETED = 21
_BATCH = 50_000
_IN_A_TRANSACTION = 100
_FIRST_LSN = 4096
_TS_US = 1_735_689_600_000_000
_FOR_EVER_MS = 365 * 24 * 3_600_000  # a log that is kept for later must not be cleaned meanwhile

# What `benchmarks.orders` has PostgreSQL make, as COPY's text; `v` is the row's version.
_LINES = r"""
SELECT encode(concat_ws(chr(9),
    id,
    1000000000 + id * 7919 % 250000,
    ['pending', 'paid', 'packed', 'shipped', 'delivered', 'cancelled'][1 + (id + v) % 6],
    ((id * 37 + v) % 1000000 / 100)::DECIMAL(12, 2),
    strftime(TIMESTAMP '2024-01-01' + to_microseconds(id * 17317000), '%Y-%m-%d %H:%M:%S.%f+00'),
    strftime(TIMESTAMP '2024-06-01' + to_microseconds((id + v) * 11013000),
             '%Y-%m-%d %H:%M:%S.%f'),
    CASE WHEN id % 3 <> 0 THEN 't' ELSE 'f' END,
    sqrt(id::DOUBLE) * (1.7 + v),
    '{{"qty": ' || 1 + id % 9 || ', "sku": "SKU-' || lpad((id * 31 % 99991)::VARCHAR, 6, '0')
        || '", "tags": ["promo' || id % 20 || '", "r' || id % 7 || '"], "channel": "'
        || ['web', 'app', 'store'][1 + id % 3] || '"}}',
    CASE WHEN id % 2 = 0 THEN 'customer asked for delivery window ' || id % 24 || 'h'
         ELSE '\N' END
)) AS line
FROM (SELECT {id} AS id, {version} AS v FROM range({first}, {end}) AS numbers(n))
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a log is.

    Attributes:
        records: on the log, tombstones counted.
        live: keys whose last record is no tombstone.
    """

    records: int
    live: int

    @property
    def label(self) -> str:
        """Return the millions of its records."""
        return f"{self.records / 1e6:g}"

    @property
    def prefix(self) -> str:
        """Return the prefix of the log's topics, which is the name of its slot too."""
        return f"orders_{self.records}_{self.live}"

    @property
    def topic(self) -> str:
        """Return the topic of the table."""
        return topic_name(ORDERS.name, self.prefix)

    @property
    def keys(self) -> int:
        """Return the keys that were ever there: every 21st of them is deleted at the end."""
        return self.live + (self.live - 1) // (_DELETED - 1)


def write(kafka: KafkaConnection, registry: RegistryConnection, size: Size) -> Frontier:
    """Write the log unless it is there; returns its frontier."""
    with FrontierLog(kafka, frontier_topic(size.prefix)) as frontiers:
        found = frontiers.last(size.prefix)
        if found is not None:
            return found.frontier
        settings = TopicSettings(min_compaction_lag_ms=_FOR_EVER_MS)
        wanted = {size.topic: PARTITIONS, frontier_topic(size.prefix): 1}
        topics = make_topics(kafka, plan_topics(kafka, wanted, replication=1, settings=settings))
        encoder = Encoder(_schema_ids(registry, size.topic))
        lsn = _write_records(kafka, encoder, size.topic, parts_of(size), _FIRST_LSN)
        frontier = Frontier(
            slot=size.prefix,
            epoch=1,
            lsn=lsn,
            ts_us=_TS_US,
            cluster_id=frontiers.cluster_id(),
            tables={size.topic: ORDERS.name},
            topic_ids={size.topic: topics[size.topic].topic_id},
            **_ends(frontiers, size.topic),
        )
        frontiers.write(frontier)
    return frontier


def change(kafka: KafkaConnection, registry: RegistryConnection, size: Size, rows: int) -> Frontier:
    """Update so many rows of a log that is there, all over it, each once; returns its frontier."""
    with FrontierLog(kafka, frontier_topic(size.prefix)) as frontiers:
        found = frontiers.last(size.prefix)
        if found is None:
            raise SystemExit(f"the log {size.prefix} is not there")
        before = found.frontier
        step, version = size.keys // rows, int(before.lsn) % 999_983
        encoder = Encoder(_schema_ids(registry, size.topic))
        # No multiple of 21: those are deleted.
        row = f"n * {step} + 1 + CASE (n * {step} + 1) % {_DELETED} WHEN 0 THEN 1 ELSE 0 END"
        part = Part(Op.UPDATE, row, str(version), rows)
        lsn = _write_records(kafka, encoder, size.topic, [part], int(before.lsn))
        frontier = replace(before, lsn=lsn, **_ends(frontiers, size.topic))
        frontiers.write(frontier)
    return frontier


def _ends(frontiers: FrontierLog, topic: str) -> dict[str, Any]:
    place = frontiers.places([topic])[topic]
    return {"ends": {topic: place.ends}, "leader_epochs": {topic: place.leader_epochs}}


def _schema_ids(registry: RegistryConnection, topic: str) -> SchemaIds:
    with closing(SchemaRegistry(registry)) as schemas:
        key = schemas.register_key(topic, key_schema(ORDERS))
        return SchemaIds(key=key, value=schemas.register_value(topic, value_schema(ORDERS)))


@dataclass(frozen=True, slots=True)
class Part:
    """Records of one kind: how many, and their row and its version by the number `n` of each."""

    op: Op
    row: str
    version: str
    count: int


def parts_of(size: Size) -> tuple[Part, ...]:
    """Return the parts of a log, in their order."""
    deleted = size.keys - size.live
    updates = size.records - size.keys - deleted
    if updates < 0:
        raise SystemExit(f"{size.records} records are too few for {size.live} live keys")
    return (
        Part(Op.READ, "n + 1", "0", size.keys),
        Part(Op.UPDATE, f"1 + (hash(n) % {size.keys})::BIGINT", "1 + n % 1000", updates),
        Part(Op.DELETE, f"(n + 1) * {_DELETED}", "0", deleted),
    )


def lines_of(part: Part) -> Iterator[list[bytes]]:
    """Return the rows of a part in batches, each row as a line of COPY."""
    with duckdb.connect() as connection:
        for first in range(0, part.count, _BATCH):
            end = min(part.count, first + _BATCH)
            text = _LINES.format(id=part.row, version=part.version, first=first, end=end)
            yield [line for (line,) in connection.sql(text).fetchall()]


class Encoder:
    """Makes records of lines; without C, line by line."""

    def __init__(self, ids: SchemaIds) -> None:
        """Take the ids of both schemas."""
        self._batch = BatchCodec(ORDERS, ids)
        self._law = RowCodec(ORDERS, key_schema_id=ids.key, value_schema_id=ids.value)
        self._read = Records(epoch=1)

    def add(self, op: Op, lines: Sequence[bytes], lsn: int, to: Records) -> None:
        """Add a record of each line, in transactions of a hundred whose LSNs grow."""
        texts, place = Texts(lines), 0
        self._read.clear()
        while (odd := self._add(texts, place)) is not None:
            values = parse_row(lines[odd])
            key = self._law.encode_key(key_of(ORDERS.key_indexes, values))
            value = self._law.encode_value(values)
            self._read.add(Record(key, value, 0, 0, _TS_US, Op.READ.value))
            place = odd + 1
        for number, record in enumerate(self._read):
            sequence = number % _IN_A_TRANSACTION
            kept = None if op is Op.DELETE else record.value
            at = lsn + number - sequence
            to.add(Record(record.key, kept, at, sequence, _TS_US, op.value))

    def _add(self, lines: Texts, first: int) -> int | None:
        return self._batch.add_lines(lines, first, lsn=0, sequence=0, ts_us=_TS_US, to=self._read)


def _write_records(
    kafka: KafkaConnection, encoder: Encoder, topic: str, parts: Sequence[Part], lsn: int
) -> Lsn:
    """Write all records, from an LSN on; returns an LSN behind the last."""
    records = Records(epoch=1)
    with closing(LogProducer.open(kafka)) as producer:
        for part in parts:
            for lines in lines_of(part):
                records.clear()
                encoder.add(part.op, lines, lsn, records)
                producer.produce_records(topic, records, 0, len(records))
                lsn += len(lines)
        producer.flush()
    return Lsn(lsn)
