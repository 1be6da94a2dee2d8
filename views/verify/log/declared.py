"""Logs of other programs, read by the verifier's own code: the last record of a key, and its row.

Each record is read twice: first for its key, which is all that the fold in DuckDB needs; then, if
it is the last of its key, for its row. Values become the bare ones of `views.verify.log.decode`:
decimals as their unscaled bytes, dates as days, timestamps as microseconds.
"""

from __future__ import annotations

import binascii
import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, VerdictError
from changelog.contract.forms.declared import (
    DIGITS,
    MILLIS,
    DeclaredLog,
    Order,
    Unavailable,
    ValueShape,
    avro_columns,
)
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.evolution import type_fits
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import ColumnType, Kind
from views.verify.log.declared_values import parse, taker
from views.verify.log.decode import Decoder
from views.verify.log.left_out import HELD, KeyStatement, StandIn, bundles, unbundled
from views.verify.log.messages import MessageReader, is_framed
from views.verify.log.registry import WriterSchemas, parsed
from views.verify.processes.scratch import fill, first_row, make_table, table_of_rows
from views.verify.records.read import (
    BATCH_RECORDS,
    TopicFacts,
    beginnings,
    messages,
    place,
    require_stable,
    topic_facts,
)
from views.verify.values.faults import FaultError, Quarantine
from views.verify.values.types import quoted

_SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("off", pa.int64()),
        ("step", pa.int32()),
        ("lsn", pa.int64()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("lacks", pa.list_(pa.string())),
        ("begins", pa.bool_()),
    ]
)
_PARTS = "__left_out"
_PARTS_SCHEMA = pa.schema([("part", pa.int32()), ("off", pa.int64()), ("value", pa.binary())])
ROW, GONE, TOMBSTONE, _FAULT = "row", "gone", "tombstone", "fault"
# Everything that reading a record of an unknown program can raise; each is a fault of the record.
_BAD = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    EOFError,
    OverflowError,
    RecursionError,
    MemoryError,
    ArithmeticError,
    struct.error,
    binascii.Error,
    CorruptRecordError,
    FaultError,
)


@dataclass(frozen=True, slots=True)
class RecordStatement:
    """One statement of a record about a key; `kind` is `row`, `gone`, `tombstone` or `fault`.

    For a row, `lacks` has the columns that the source left out, and `begins` says that none may be
    taken from an older record of the key.
    """

    kind: str
    name: str | None
    lsn: int | None = None
    why: str = ""
    lacks: tuple[str, ...] = ()
    begins: bool = False


class DeclaredReader:
    """Reads the records of one declared log.

    `schemas`: has the Avro schemas. `reader_id`: of an Avro log, the schema that rows are read as.
    """

    def __init__(self, log: DeclaredLog, schemas: WriterSchemas, reader_id: int) -> None:
        self.log = log
        self._schemas = schemas
        self._bare: dict[int, Any] = {}
        self._faults: dict[int, str] = {}
        self._stand_in = StandIn(log.placeholder) if log.leaves_out else None
        self.columns = log.columns
        self._messages: MessageReader | None = None
        if log.shape is ValueShape.FLAT_PROTOBUF:
            self._messages = MessageReader(schemas)
            self.columns = tuple(
                column
                for column in self._messages.columns(reader_id)
                if column.column != log.delete
            )
        if log.shape.is_avro:
            avro = avro_columns(schemas.text(reader_id), log.shape)
            self.columns = tuple(
                column for column in avro if column.column != log.delete or not log.delete
            )
        self._places = {column.column: place for place, column in enumerate(self.columns)}
        self._take = {column.column: taker(column.type, log.shape) for column in self.columns}
        # the columns of which a row kept the placeholder as its value
        self.standing = set[str]()

    def statements(self, key: bytes | None, value: bytes | None) -> list[RecordStatement]:
        """Return a record's statements, in their order."""
        if value is None:
            try:
                return [RecordStatement(TOMBSTONE, self._own_key(key))]
            except _BAD as error:
                return [
                    RecordStatement(
                        _FAULT, None, why=f"a tombstone without a readable key: {error}"
                    )
                ]
        try:
            document = self._document(value)
            if document is None:
                return [RecordStatement(TOMBSTONE, self._own_key(key))]
            return self._statements(key, document)
        except _BAD as error:
            try:
                name = self._own_key(key)
            except _BAD:
                name = None
            return [RecordStatement(_FAULT, name, why=str(error))]

    def row(self, value: bytes) -> list[Any]:
        """Return the bare values of a record's row.

        If the value is a bundle, the older records in it have the columns that the record lacks;
        columns to be taken from the stored row are null.
        """
        own, older = unbundled(value)
        row, missing = self._row(own)
        for names, record in older:
            source = [None] * len(row) if record == HELD else self._row(record)[0]
            for name in names:
                row[self._places[name]] = source[self._places[name]]
            missing -= {*names}
        for name in missing:
            kept = row[self._places[name]]
            if self.log.on_unavailable is Unavailable.NULL:
                row[self._places[name]] = None
            elif self.log.on_unavailable is Unavailable.FAIL or kept is None:
                raise FaultError(
                    f"the source left out column {name}, and no older record of the key has it"
                )
            else:
                self.standing.add(name)
        return row

    def _row(self, value: bytes) -> tuple[list[Any], set[str]]:
        document = self._document(value)
        if document is None:
            raise FaultError("no row")
        row = document if self.log.shape.is_flat else document["after"]
        return self._values(row), {*self._lacks(row)}

    def _statements(self, key: bytes | None, document: dict[str, Any]) -> list[RecordStatement]:
        log = self.log
        if log.shape.is_flat:
            if log.delete and _marker(document[log.delete]):
                return [RecordStatement(GONE, self._name(document, key))]
            self._values(document)
            lacks = self._lacks(document)
            return [RecordStatement(ROW, self._key_of(document), lacks=lacks)]
        lsn = int(document["source"]["lsn"]) if log.order is Order.LSN else _lsn_if_any(document)
        op, old, new = document["op"], document.get("before"), document.get("after")
        if op == "d":
            return [RecordStatement(GONE, self._name(old, key), lsn)]
        if op not in ("c", "u", "r"):
            raise FaultError(f"operation {op!r}")
        if not isinstance(new, dict):
            raise FaultError("no row after the change")
        self._values(new)
        name, lacks, begins = self._key_of(new), self._lacks(new), op != "u"
        before = self._key_of(old) if isinstance(old, dict) and self._is_keyed(old) else name
        if before == name:
            return [RecordStatement(ROW, name, lsn, lacks=lacks, begins=begins)]
        if log.shape is ValueShape.CUD_JSON and not log.key_changes:
            raise FaultError("the update changes the key")
        return [
            RecordStatement(GONE, before, lsn),
            RecordStatement(ROW, name, lsn, lacks=lacks, begins=True),
        ]

    def _is_keyed(self, row: Any) -> bool:  # noqa: ANN401
        return isinstance(row, dict) and all(row.get(name) is not None for name in self.log.key)

    def _name(self, row: Any, key: bytes | None) -> str:  # noqa: ANN401
        return self._key_of(row) if self._is_keyed(row) else self._own_key(key)

    def _key_of(self, row: Mapping[str, Any]) -> str:
        parts = []
        for name in self.log.key:
            if row[name] is None or self._is_left_out(row[name]):
                raise FaultError(f"the key's column {name} is null, or left out")
            parts.append(self._take[name](row[name]))
        return repr(parts)

    def _own_key(self, key: bytes | None) -> str:
        if key is None:
            raise FaultError("no key")
        single = self.log.key[0] if len(self.log.key) == 1 else None
        if self.log.shape.is_avro:
            parsed_key = self._avro(key)
        elif self._messages is not None and is_framed(key):
            parsed_key = self._messages.row(key)
        else:
            try:
                parsed_key = parse(key)
            except ValueError:
                parsed_key = key.decode()
            if isinstance(parsed_key, dict) and parsed_key.keys() == {"schema", "payload"}:
                parsed_key = parsed_key["payload"]
        if not isinstance(parsed_key, dict) and single is not None:
            parsed_key = {single: parsed_key}
        return self._key_of(parsed_key)

    def _is_left_out(self, value: Any) -> bool:  # noqa: ANN401
        return self._stand_in is not None and self._stand_in.is_it(value)

    def _lacks(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(
            column.column for column in self.columns if self._is_left_out(row.get(column.column))
        )

    def _document(self, value: bytes) -> dict[str, Any] | None:
        if self._messages is not None:
            row = self._messages.row(value)
            if fault := self._changed_message(value):
                raise FaultError(fault)
            return row
        document = self._avro(value) if self.log.shape.is_avro else parse(value)
        if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
            document = document["payload"]
        if not (isinstance(document, dict) or (document is None and not self.log.shape.is_avro)):
            raise FaultError("not an object")
        return document

    def _avro(self, raw: bytes) -> Any:  # noqa: ANN401
        if len(raw) < 5 or raw[0] != 0:  # noqa: PLR2004 - the frame
            raise FaultError("no frame with a schema id")
        number = int.from_bytes(raw[1:5], "big")
        if number not in self._bare:
            text = self._schemas.text(number)
            self._bare[number] = parsed(json.loads(text))
            self._faults[number] = self._changed(text)
        body = BytesIO(raw[5:])
        record = fastavro.schemaless_reader(body, self._bare[number], None)
        if body.tell() != len(raw) - 5:
            raise FaultError("bytes are left over")
        if self._faults[number]:
            raise FaultError(self._faults[number])
        return record

    def _changed_message(self, value: bytes) -> str:
        number = int.from_bytes(value[1:5], "big")
        if number not in self._faults and self._messages is not None:
            self._faults[number] = self._differences(self._messages.columns(number))
        return self._faults[number]

    def _changed(self, text: str) -> str:
        try:
            return self._differences(avro_columns(text, self.log.shape))
        except CorruptRecordError:
            return ""  # a key's schema

    def _differences(self, columns: Sequence[LoggedColumn]) -> str:
        """Return which columns had another type under an older schema."""
        written = {column.column: column.type for column in columns}
        return "; ".join(
            f"{column.column} was {written[column.column].name}"
            for column in self.columns
            if column.column in written and not _reads_as(written[column.column], column.type)
        )

    def _values(self, row: Mapping[str, Any]) -> list[Any]:
        values = []
        for column in self.columns:
            value = row.get(column.column)
            if value is None and column.column not in row and column.default is not None:
                value = _default(column)
            try:
                values.append(None if value is None else self._take[column.column](value))
            except _BAD:
                if not self._is_left_out(value):
                    raise
                values.append(None)
        return values


class DeclaredDecoder(Decoder):
    """Reads the rows of the last records of keys."""

    def __init__(self, reader: DeclaredReader, quarantine: Quarantine | None) -> None:
        super().__init__(reader.log.topic, reader.columns, quarantine)
        self._reader = reader

    def _row(self, value: bytes) -> Sequence[Any] | None:
        return self._reader.row(value)


def read_declared(
    kafka: KafkaConnection,
    frontier: Frontier,
    reader: DeclaredReader,
    database: duckdb.DuckDBPyConnection,
    *,
    survivors: str,
    quarantine: Quarantine | None,
) -> int:
    """Read a declared log up to the cut and fold it into `survivors` (part, off, key, value).

    Returns:
        The number of records.

    Raises:
        CorruptRecordError: a record cannot be read, or nothing says which of two is newer.
        LogError: the topic is not the one of the cut.
        UnavailableLogError: the brokers do not answer.
    """
    log, raw = reader.log, f"{survivors}_statements"
    facts = declared_facts(kafka, frontier, log)
    require_stable(kafka, {log.topic: frontier.ends[log.topic]})
    ends = dict(enumerate(frontier.ends[log.topic]))
    begins = enumerate(beginnings(frontier, log.topic, facts.starts))
    starts = {n: min(begin, ends[n]) for n, begin in begins}
    records = messages(kafka, log.topic, starts, ends)
    counts = load_statements(database, raw, reader, records, quarantine)
    fold_statements(database, log, raw, survivors)
    database.execute(f"DROP TABLE {quoted(raw)}")
    return counts.total()


def declared_facts(kafka: KafkaConnection, frontier: Frontier, log: DeclaredLog) -> TopicFacts:
    """Ask the brokers what the topic of a declared log is now; see `topic_facts`."""
    try:
        return topic_facts(kafka, frontier, log.topic)
    except VerdictError as error:
        hint = (
            "have every key written again; or run it again, if `beginning` of the log is "
            '"earliest" or a time'
        )
        raise VerdictError(str(error.args[0]), hint=hint) from error


def load_statements(
    database: duckdb.DuckDBPyConnection,
    raw: str,
    reader: DeclaredReader,
    records: Iterable[Message],
    quarantine: Quarantine | None,
) -> Counter[int]:
    """Write the statements of records into a new table, one row each.

    Returns:
        The number of records of each partition.

    Raises CorruptRecordError: one cannot be read.
    """
    counts = Counter[int]()
    make_table(database, raw, _SCHEMA)

    def batches() -> Iterator[pa.Table]:
        rows: list[tuple[Any, ...]] = []
        for message in records:
            counts[message.partition() or 0] += 1
            rows += _rows_of(reader, message, quarantine)
            if len(rows) >= BATCH_RECORDS:
                yield table_of_rows(rows, _SCHEMA)
                rows = []
        if rows:
            yield table_of_rows(rows, _SCHEMA)

    fill(database, raw, batches())
    return counts


def _rows_of(
    reader: DeclaredReader, message: Message, quarantine: Quarantine | None
) -> Iterator[tuple[Any, ...]]:
    part, off = message.partition() or 0, message.offset() or 0
    for step, statement in enumerate(reader.statements(message.key(), message.value())):
        if statement.kind == _FAULT:
            if quarantine is None:
                raise CorruptRecordError(f"{place(reader.log.topic, part, off)}: {statement.why}")
            quarantine.suspect(part, off, statement.why)
        name = statement.name if statement.name is not None else f"?{part}:{off}"
        value = message.value() if statement.kind in (ROW, _FAULT) else None
        lacks, begins = [*statement.lacks], statement.begins
        yield (
            part,
            off,
            step,
            statement.lsn,
            statement.kind,
            name,
            message.key(),
            value,
            lacks,
            begins,
        )


def fold_statements(
    database: duckdb.DuckDBPyConnection, log: DeclaredLog, raw: str, survivors: str
) -> None:
    """Fold statements into a new table `survivors` (part, off, key, value)."""
    by_lsn = log.order is Order.LSN
    torn = first_row(
        database,
        f"SELECT name FROM {quoted(raw)} GROUP BY name HAVING min(part) <> max(part)"
        + (f" AND bool_or(kind = '{TOMBSTONE}')" if by_lsn else ""),
    )
    if torn is not None:
        raise CorruptRecordError(
            f'topic "{log.topic}": key {torn[0]} stands in two partitions, and nothing says which '
            "of its records is newer"
        )
    if by_lsn:
        # A tombstone directly behind the delete that it belongs to adds nothing; any other is
        # ordered by its offset, after every statement with an LSN before it.
        statements = f"""
            SELECT *, lag(kind) OVER (PARTITION BY name ORDER BY off, step) AS behind,
                max(lsn) OVER (PARTITION BY name ORDER BY off, step) AS reached
            FROM {quoted(raw)}"""
        order = "coalesce(lsn, reached, -1) DESC, off DESC, step DESC"
        where = f"(kind <> '{TOMBSTONE}' OR behind IS DISTINCT FROM '{GONE}')"
    else:
        statements, order, where = f"SELECT * FROM {quoted(raw)}", "off DESC, step DESC", "true"
    database.execute(
        f"""
        CREATE OR REPLACE TABLE {quoted(survivors)} AS
        SELECT part, off, key, value, len(lacks) > 0 AS is_partial, name FROM (
            SELECT * FROM ({statements}) WHERE {where}
            QUALIFY row_number() OVER (
                PARTITION BY name ORDER BY kind = '{_FAULT}' DESC, {order}
            ) = 1
        ) WHERE kind IN ('{ROW}', '{_FAULT}')
        """
    )
    bundle_older(
        database,
        survivors,
        f"""
        SELECT name, part, off, value, lacks, begins, lsn FROM ({statements}) AS records
        WHERE {where} AND name IN (
            SELECT name FROM {quoted(survivors)} WHERE is_partial
            UNION ALL
            SELECT name FROM {quoted(raw)} WHERE kind = '{GONE}' AND lsn IN (
                SELECT lsn FROM {quoted(raw)} WHERE begins AND len(lacks) > 0
            )
        )
        ORDER BY name, {_reversed(order)}
        """,
    )


def _reversed(order: str) -> str:
    return order.replace("DESC", "ASC")


def bundle_older(database: duckdb.DuckDBPyConnection, survivors: str, statements: str) -> None:
    """Bundle each survivor with the older records that it needs.

    `survivors`: their table; its columns `is_partial` and `name` are dropped. `statements`: query
    for the statements about the keys of partial ones, by key and in order.
    """
    table = quoted(survivors)
    if first_row(database, f"SELECT 1 FROM {table} WHERE is_partial LIMIT 1") is not None:
        with database.cursor() as reader:
            bundled = bundles(_statements(reader.execute(statements)))
            make_table(database, _PARTS, _PARTS_SCHEMA)
            fill(database, _PARTS, _bundled(bundled))
        database.execute(
            f"UPDATE {table} SET value = parts.value FROM {_PARTS} AS parts"
            f" WHERE {table}.part = parts.part AND {table}.off = parts.off AND is_partial"
        )
        database.execute(f"DROP TABLE {_PARTS}")
    database.execute(f"ALTER TABLE {table} DROP COLUMN is_partial")
    database.execute(f"ALTER TABLE {table} DROP COLUMN name")


def _statements(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, KeyStatement]]:
    while rows := cursor.fetchmany(BATCH_RECORDS):
        for name, part, off, value, lacks, begins, lsn in rows:
            yield name, KeyStatement((part, off), value, frozenset(lacks), begins, lsn)


def _bundled(bundled: Iterator[tuple[int, int, bytes]]) -> Iterator[pa.Table]:
    while rows := list(islice(bundled, BATCH_RECORDS)):
        yield table_of_rows(rows, _PARTS_SCHEMA)


def _reads_as(old: ColumnType, new: ColumnType) -> bool:
    return type_fits(old, new) and all(
        (old.name == unit) is (new.name == unit) for unit in (MILLIS, DIGITS)
    )


def _default(column: LoggedColumn) -> Any:  # noqa: ANN401
    default = json.loads(column.default or "null")
    return (
        default.encode("iso-8859-1") if column.type.kind in {Kind.BYTES, Kind.DECIMAL} else default
    )


def _lsn_if_any(document: Mapping[str, Any]) -> int | None:
    """Return the LSN that a delete and a create of one key change share, None without one."""
    source = document.get("source")
    text = str(source.get("lsn")) if isinstance(source, dict) else ""
    digits = text.removeprefix("-")
    is_lsn = digits.isascii() and digits.isdecimal() and len(digits) < 19  # noqa: PLR2004 - 64 bits
    return int(text) if is_lsn else None


def _marker(marker: Any) -> bool:  # noqa: ANN401
    if marker in (True, "true", "t"):
        return True
    if marker in (False, "false", "f"):
        return False
    raise FaultError(f"the marker is {marker!r}")
