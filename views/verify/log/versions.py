"""The versions of a table's rows, and from which LSN on they are complete.

All records of the topic are read, one by one, in the order of their offsets; gaps between these are
noted on the way. DuckDB chains the records of each key. Why versions are complete from an LSN on is
said in `replay.decode.versions`, of which nothing is used here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa
from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, VerdictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.versions import (
    COMPLETE_FROM,
    FROM_CHANGE,
    FROM_LSN,
    FROM_TIME,
    IS_CURRENT,
    TO_CHANGE,
    TO_LSN,
    TO_TIME,
    version_columns,
)
from views.verify.log.tables import OFFSET_COLUMN, PARTITION_COLUMN, TableState
from views.verify.processes.scratch import fill, first_row, make_table, table_of_rows
from views.verify.records.read import BATCH_RECORDS, beginnings, messages, place, unmoved
from views.verify.values.types import duckdb_type, literal, logged_type, quoted

_WORDS = {b"r": "copy", b"c": "insert", b"u": "update", b"d": "delete", b"t": "truncate"}
_POSITION_BYTES = 20
_MOMENT = struct.Struct(">q")
_FRAME = struct.Struct(">BI")
_RECORDS = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("off", pa.int64()),
        pa.field("lsn", pa.uint64()),
        pa.field("sequence", pa.uint64()),
        pa.field("op", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("is_behind_gap", pa.bool_()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)


_Row = tuple[int, int, int, int, str, int, bool, bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class _Record:
    """A record of a row."""

    where: str  # its place, for messages
    part: int
    off: int
    position: Position
    op: str
    ts_us: int
    key: bytes
    value: bytes | None

    def row(self, *, is_behind_gap: bool) -> _Row:
        """Return the record as a row of `_RECORDS`."""
        lsn, sequence = int(self.position.commit_lsn), self.position.sequence
        return (
            *(self.part, self.off, lsn, sequence, self.op, self.ts_us),
            *(is_behind_gap, self.key, self.value),
        )


def _record_of(topic: str, message: Message, prefix: bytes) -> _Record:
    """Return a record; raises CorruptRecordError if it breaks the contract."""
    part, off, key = message.partition() or 0, message.offset() or 0, message.key()
    where, headers = place(topic, part, off), dict(message.headers() or ())
    position, op, ts = headers.get("position"), headers.get("op"), headers.get("ts")
    if not isinstance(position, bytes) or len(position) != _POSITION_BYTES:
        raise CorruptRecordError(f"{where}: no header `position` of 20 bytes")
    if not isinstance(op, bytes) or op not in _WORDS:
        raise CorruptRecordError(f"{where}: it bears no operation of a row")
    if not isinstance(ts, bytes) or len(ts) != _MOMENT.size:
        raise CorruptRecordError(f"{where}: it bears no commit time")
    if key is None or not key.startswith(prefix):
        raise CorruptRecordError(f"{where}: its key is not of the pinned schema")
    (ts_us,) = _MOMENT.unpack(ts)
    at = Position.from_bytes(position)
    return _Record(where, part, off, at, op.decode(), ts_us, key, message.value())


@dataclass(slots=True)
class ReadVersions:
    """The facts about a topic whose versions were read."""

    count: int = 0  # of the records
    newest_schema_id: int | None = None  # of the newest value
    complete_from: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    _next: dict[int, int] = field(default_factory=dict)  # per partition the offset that follows
    _has_gap: set[int] = field(default_factory=set)  # the partitions with one
    _after_gap: dict[int, Position] = field(default_factory=dict)  # of each the last such record

    def pass_by(self, part: int, off: int, position: Position) -> bool:
        """Note a record in the order of offsets; tell whether a gap stands before it."""
        if off != self._next[part]:
            self._has_gap.add(part)
            self._after_gap[part] = position
        self._next[part] = off + 1
        return part in self._has_gap

    def floor(self, ends: dict[int, int], epoch: int) -> Lsn | None:
        """Return the LSN of the record after the last gap; None if a partition ends in one."""
        if any(self._next[part] != end for part, end in ends.items()):
            return None
        places = [at.commit_lsn for at in self._after_gap.values() if at.epoch == epoch]
        return max(places, default=Lsn(0))


def read_versions(
    kafka: KafkaConnection,
    frontier: Frontier,
    topic: str,
    database: duckdb.DuckDBPyConnection,
    table: str,
    *,
    key_id: int | None,
) -> ReadVersions:
    """Read a topic up to the frontier into a new table: a row for each version, with its value.

    `key_id`: the schema id of every key; None where it is not known.

    Raises:
        CorruptRecordError: a record breaks the contract; names topic, partition and offset.
        LogError: the topic is not the one of the frontier, or moved while it was read.
        VerdictError: it has lost its beginning, or has rows of an earlier epoch.
        UnavailableLogError: the brokers do not answer.
    """
    since, cut = frontier.since.get(topic), Position(frontier.epoch, frontier.lsn, 0)
    ends = dict(enumerate(frontier.ends[topic]))
    prefix = b"" if key_id is None else _FRAME.pack(0, key_id)
    newest, records = (Position(0, Lsn(0), 0), b""), f"{table}_records"
    make_table(database, records, _RECORDS)

    def batches() -> Iterator[pa.Table]:
        nonlocal newest
        rows: list[_Row] = []
        for message in messages(kafka, topic, starts, ends):
            seen.count += 1
            record = _record_of(topic, message, prefix)
            is_behind_gap = seen.pass_by(record.part, record.off, record.position)
            if record.position >= cut:
                raise CorruptRecordError(f"{record.where}: it lies behind the frontier")
            if since is not None and record.position < since:
                continue
            if record.position.epoch != frontier.epoch:
                raise VerdictError(
                    f"{record.where}: it is of epoch {record.position.epoch}, whose LSNs may be "
                    f"others than those of epoch {frontier.epoch}",
                    hint="copy the table anew with `changelog resnapshot`",
                )
            if record.value is not None:
                newest = max(newest, (record.position, record.value[: _FRAME.size]))
            rows.append(record.row(is_behind_gap=is_behind_gap))
            if len(rows) >= BATCH_RECORDS:
                yield table_of_rows(rows, _RECORDS)
                rows = []
        if rows:
            yield table_of_rows(rows, _RECORDS)

    with unmoved(kafka, frontier, [topic]) as facts:
        starts = dict(enumerate(beginnings(frontier, topic, facts[topic].starts)))
        seen = ReadVersions(_next=dict(starts))
        fill(database, records, batches())
    if newest[1]:
        seen.newest_schema_id = int.from_bytes(newest[1][1:])
    seen.complete_from = _complete_from(
        database, records, frontier, topic, seen.floor(ends, frontier.epoch)
    )
    _chain(database, records, table, seen.complete_from)
    database.execute(f"DROP TABLE {quoted(records)}")
    return seen


def _complete_from(
    database: duckdb.DuckDBPyConnection,
    records: str,
    frontier: Frontier,
    topic: str,
    floor: Lsn | None,
) -> Lsn:
    """Return the LSN from which on nothing is missing; `floor`: as the offsets say it."""
    if floor is None:
        return frontier.lsn
    row = first_row(
        database,
        f"""
        SELECT max(lsn) FROM (
            SELECT * FROM {quoted(records)}
            QUALIFY row_number() OVER (PARTITION BY key ORDER BY lsn, sequence, off) = 1
        ) WHERE op = 'r' OR (is_behind_gap AND op <> 'c')
        """,
    )
    lsns = [floor, frontier.whole.get(topic, Lsn(0))]
    lsns += [] if row is None or row[0] is None else [Lsn(row[0])]
    if (since := frontier.since.get(topic)) is not None and since.epoch == frontier.epoch:
        lsns.append(since.commit_lsn)
    return min(Lsn(max(lsns) + 1), frontier.lsn)


def _chain(
    database: duckdb.DuckDBPyConnection, records: str, table: str, complete_from: Lsn
) -> None:
    """Make the table of versions out of that of records."""
    database.execute(
        f"""
        CREATE OR REPLACE TABLE {quoted(table)} AS
        WITH last AS (
            SELECT * FROM {quoted(records)} QUALIFY
            row_number() OVER (PARTITION BY key, lsn ORDER BY sequence DESC, off DESC) = 1
        ), chained AS (
            SELECT *,
                lead(lsn) OVER later AS to_lsn,
                lead(ts) OVER later AS to_ts,
                lead(op) OVER later AS to_op
            FROM last WINDOW later AS (PARTITION BY key ORDER BY lsn)
        )
        SELECT part, off, value, lsn, ts, op, to_lsn, to_ts, to_op FROM chained
        WHERE value IS NOT NULL AND (to_lsn IS NULL OR to_lsn >= {int(complete_from)}::UBIGINT)
        """
    )


def add_versions(
    database: duckdb.DuckDBPyConnection, state: TableState, table: str, complete_from: Lsn
) -> TableState:
    """Add the columns of versions to the rows of a loaded state.

    `table`: of the versions, as `read_versions` makes it.
    """
    words = " ".join(f"WHEN '{op.decode()}' THEN {literal(word)}" for op, word in _WORDS.items())
    values = {
        FROM_LSN: "v.lsn",
        FROM_TIME: "make_timestamp(v.ts)",
        FROM_CHANGE: f"CASE v.op {words} END",
        TO_LSN: "v.to_lsn",
        TO_TIME: "make_timestamp(v.to_ts)",
        TO_CHANGE: f"CASE v.to_op {words} END",
        IS_CURRENT: "v.to_lsn IS NULL",
        COMPLETE_FROM: str(int(complete_from)),
    }
    base, added = quoted(state.base), version_columns()
    listed = ", ".join(
        f"CAST({values[c.column]} AS {duckdb_type(logged_type(c.type))}) AS {quoted(c.column)}"
        for c in added
    )
    database.execute(
        f"CREATE OR REPLACE TABLE {base} AS SELECT s.*, {listed} FROM {base} s "
        f"JOIN {quoted(table)} v ON v.part = s.{PARTITION_COLUMN} AND v.off = s.{OFFSET_COLUMN}"
    )
    return replace(state, columns=(*state.columns, *added))
