"""The rows of a table without a primary key: the rows written, less the rows deleted.

All records since the table was last emptied are read, one by one, and decoded here. Equal rows are
interchangeable, so each delete removes one equal row; the written records that are left are decoded
like those of any other table.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa
from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, LogError
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.order import PLACE_DIGITS, place_columns
from views.verify.log.decode import Decoder, survivors_of
from views.verify.log.tables import OFFSET_COLUMN, PARTITION_COLUMN, TableState
from views.verify.processes.scratch import fill, first_row, make_table, table_of_rows
from views.verify.records.archived import ArchivedRecord
from views.verify.records.read import BATCH_RECORDS, beginnings, messages, place, unmoved
from views.verify.values.types import quoted

_WRITTEN, _TAKEN, _EMPTIED = frozenset({b"r", b"c", b"u"}), b"d", b"t"
_POSITION_BYTES = 20
_FRAME_BYTES = 5
_PLACE = struct.Struct(">IQQ")
"""A position: epoch, commit LSN, sequence."""
_CHANGES = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("off", pa.int64()),
        pa.field("is_written", pa.bool_()),
        pa.field("lsn", pa.uint64()),
        pa.field("sequence", pa.uint64()),
        pa.field("value", pa.binary()),
    ]
)
_CONTENTS = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("off", pa.int64()),
        pa.field("content", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """The number of records read, and the schema id of the newest value."""

    count: int
    newest_schema_id: int | None


def read_changes(
    kafka: KafkaConnection,
    frontier: Frontier,
    topic: str,
    database: duckdb.DuckDBPyConnection,
    table: str,
) -> ReadChanges:
    """Read a topic without keys up to the frontier into a new table: its records, one a row.

    Raises:
        CorruptRecordError: a record breaks the contract; names topic, partition and offset.
        LogError: the topic is not the one of the frontier, or moved while it was read.
        VerdictError: it has lost its beginning.
        UnavailableLogError: the brokers do not answer.
    """
    ends = dict(enumerate(frontier.ends[topic]))
    with unmoved(kafka, frontier, [topic]) as facts:
        begins = dict(enumerate(beginnings(frontier, topic, facts[topic].starts)))
        records = messages(kafka, topic, begins, ends)
        return take_changes(records, frontier, topic, database, table)


def take_changes(
    records: Iterable[Message | ArchivedRecord],
    frontier: Frontier,
    topic: str,
    database: duckdb.DuckDBPyConnection,
    table: str,
) -> ReadChanges:
    """Take the records of a topic without keys up to the frontier into a new table.

    Raises CorruptRecordError: a record breaks the contract; names topic, partition and offset.
    """
    since, cut = frontier.since.get(topic), Position(frontier.epoch, frontier.lsn, 0)
    count, newest = 0, (b"", b"")
    make_table(database, table, _CHANGES)

    def batches() -> Iterator[pa.Table]:
        nonlocal count, newest
        rows: list[tuple[int, int, bool, int, int, bytes]] = []
        for message in records:
            count += 1
            part, off, value = message.partition() or 0, message.offset() or 0, message.value()
            headers = dict(message.headers() or ())
            position, op = headers.get("position"), headers.get("op")
            where = place(topic, part, off)
            if not isinstance(position, bytes) or len(position) != _POSITION_BYTES:
                raise CorruptRecordError(f"{where}: no header `position` of 20 bytes")
            if position >= cut.to_bytes():
                raise CorruptRecordError(f"{where}: it lies behind the frontier")
            if since is not None and position < since.to_bytes():
                continue
            if message.key() is not None or op not in {*_WRITTEN, _TAKEN, _EMPTIED}:
                raise CorruptRecordError(f"{where}: it is no record of a table without a key")
            if op == _EMPTIED:
                continue
            if value is None:
                raise CorruptRecordError(f"{where}: it has no row")
            if op in _WRITTEN:
                newest = max(newest, (position, value[:_FRAME_BYTES]))
            rows.append((part, off, op in _WRITTEN, *_PLACE.unpack(position)[1:], value))
            if len(rows) >= BATCH_RECORDS:
                yield table_of_rows(rows, _CHANGES)
                rows = []
        if rows:
            yield table_of_rows(rows, _CHANGES)

    fill(database, table, batches())
    schema_id = int.from_bytes(newest[1][1:]) if newest[1] else None
    return ReadChanges(count, schema_id)


def keep_rows(
    database: duckdb.DuckDBPyConnection, table: str, topic: str, decoder: Decoder
) -> None:
    """Reduce the changes in a table to the records of the present rows, with their positions.

    A delete removes the oldest of several equal rows.

    Raises CorruptRecordError: a value does not decode; LogError: a row was deleted more often than
    it was written.
    """
    contents = f"{table}_contents"
    make_table(database, contents, _CONTENTS)

    def batches() -> Iterator[pa.Table]:
        with database.cursor() as cursor:
            query = f"SELECT part, off, value FROM {quoted(table)}"
            for batch in cursor.sql(query).to_arrow_reader(BATCH_RECORDS):
                places, columns = decoder.decode(survivors_of(pa.Table.from_batches([batch])))
                rows = zip(*columns, strict=True)
                yield table_of_rows(
                    [(*at, _digest(row)) for at, row in zip(places, rows, strict=True)], _CONTENTS
                )

    fill(database, contents, batches())
    joined = f"{quoted(table)} JOIN {quoted(contents)} USING (part, off)"
    copies = "sum(CASE WHEN is_written THEN 1 ELSE -1 END)"
    lost = first_row(
        database,
        f"SELECT arg_min(part, off), min(off) FROM {joined} GROUP BY content HAVING {copies} < 0",
    )
    if lost is not None:
        raise LogError(
            f"{place(topic, *lost)}: a row was taken away more often than it was written",
            hint="records of before are missing: copy the table anew with `changelog resnapshot`",
        )
    database.execute(
        f"""
        CREATE OR REPLACE TABLE {quoted(table)} AS SELECT part, off, lsn, sequence, value FROM (
            SELECT *, {copies} OVER (PARTITION BY content) AS copies, row_number() OVER (
                PARTITION BY content, is_written ORDER BY lsn DESC, sequence DESC
            ) AS nth FROM {joined}
        ) WHERE is_written AND nth <= copies
        """
    )
    database.execute(f"DROP TABLE {quoted(contents)}")


def add_places(database: duckdb.DuckDBPyConnection, state: TableState, places: str) -> TableState:
    """Add to the rows of a loaded state two columns with the LSN and sequence of their writing.

    Raises ConfigurationError: the table has a column of such a name.
    """
    base = quoted(state.base)
    for column, part in zip(place_columns(), ("lsn", "sequence"), strict=True):
        name = quoted(column.column)
        database.execute(f"ALTER TABLE {base} ADD COLUMN {name} DECIMAL({PLACE_DIGITS}, 0)")
        database.execute(
            f"UPDATE {base} SET {name} = p.{part} FROM {quoted(places)} p WHERE "
            f"p.part = {base}.{PARTITION_COLUMN} AND p.off = {base}.{OFFSET_COLUMN}"
        )
    return replace(state, columns=(*state.columns, *place_columns()))


def _digest(row: tuple[object, ...]) -> bytes:
    """Return a SHA-256 digest of the row.

    `repr` gives each value a text of its own, -0.0 and NaN included.
    """
    return hashlib.sha256(repr(row).encode()).digest()
