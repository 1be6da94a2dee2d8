"""Rows of declared logs in the form of our own: each type comes back as what it is."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest

from changelog.contract.base.errors import VerdictError
from changelog.contract.forms.declared import (
    DIGITS,
    MILLIS,
    DeclaredLog,
    ValueShape,
    avro_columns,
    declared_columns,
)
from changelog.contract.rows.codec import unframe
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import ColumnType, Kind
from replay.declared.encoded import DeclaredRowEncoder
from replay.local.records import WrittenRecord
from replay.local.rows import RowReader

LOG = DeclaredLog(
    table=TableName("public", "things"), topic="things", shape=ValueShape.FLAT_JSON, key=("id",)
)
ID = LoggedColumn("id", "id", ColumnType("int", Kind.INT), nullable=True)


def column(kind: ColumnType, name: str = "v") -> LoggedColumn:
    return LoggedColumn(name, name, kind, nullable=True)


def array(kind: Kind) -> ColumnType:
    return ColumnType(f"{kind.value}[]", Kind.ARRAY, element=ColumnType(kind.value, kind))


MOMENT = datetime(2024, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
UUID = "754b1c1a-1e75-30bb-b915-4f023886c145"
MICROS = 1_706_702_400_123_456
CASES = [
    (ColumnType("boolean", Kind.BOOLEAN), True, True),
    (ColumnType("int", Kind.INT), -(2**31), -(2**31)),
    (ColumnType("bigint", Kind.LONG), 2**63 - 1, 2**63 - 1),
    (ColumnType("float", Kind.FLOAT), 0.10000000149011612, 0.10000000149011612),
    (ColumnType("double", Kind.DOUBLE), -0.0, -0.0),
    (ColumnType("double", Kind.DOUBLE), -math.inf, -math.inf),
    (ColumnType("decimal(10,2)", Kind.DECIMAL, 10, 2), Decimal("-1.50"), Decimal("-1.50")),
    (ColumnType("decimal(38,0)", Kind.DECIMAL, 38, 0), Decimal("9" * 38), Decimal("9" * 38)),
    (ColumnType("decimal(38,38)", Kind.DECIMAL, 38, 38), Decimal("0E-38"), Decimal("0E-38")),
    (ColumnType("string", Kind.STRING), "ü\0", "ü\0"),
    (ColumnType(DIGITS, Kind.STRING), "1.50", "1.50"),
    (ColumnType("binary", Kind.BYTES), b"\x00\xff", b"\x00\xff"),
    (ColumnType("date", Kind.DATE), -1, date(1969, 12, 31)),
    (ColumnType("timestamp_ntz", Kind.TIMESTAMP), MICROS, MOMENT.replace(tzinfo=None)),
    (ColumnType(MILLIS, Kind.TIMESTAMP), MICROS, MOMENT.replace(tzinfo=None)),
    (ColumnType("timestamp", Kind.TIMESTAMPTZ), MICROS, MOMENT),
    (ColumnType("uuid", Kind.UUID), UUID, UUID),
    (array(Kind.STRING), ["a", None, ""], ["a", None, ""]),
    (array(Kind.LONG), [], []),
    (array(Kind.DATE), [-1, None], [date(1969, 12, 31), None]),
    (array(Kind.TIMESTAMPTZ), [MICROS], [MOMENT]),
    (array(Kind.BYTES), [b"\x00"], [b"\x00"]),
    (array(Kind.UUID), [UUID], [UUID]),
    (array(Kind.BOOLEAN), [True, False], [True, False]),
]


@pytest.mark.parametrize(("kind", "value", "wanted"), CASES)
def test_a_value_comes_back_as_what_it_was(kind, value, wanted):
    encoder = DeclaredRowEncoder(LOG, [ID, column(kind)])
    for each, read in ((value, wanted), (None, None)):
        record = encoder.encode([7, each])
        assert encoder.decode(record) == [7, each]
        table = RowReader(encoder.schemas, ["id", "v"]).table([WrittenRecord(record, 0, 0)])
        assert table.to_pylist() == [{"id": 7, "v": read}]
        _, body = unframe(record)
        schema = fastavro.parse_schema(json.loads(encoder.schemas.writers[1]))
        source = BytesIO(body)
        found: Any = fastavro.schemaless_reader(source, schema, None)
        assert not source.read()
        assert (found["id"], found["v"] is None) == (7, each is None)


@pytest.mark.parametrize(("kind", "value", "_"), CASES)
def test_a_value_in_the_key_has_no_null_beside_it(kind, value, _):
    log = DeclaredLog(table=LOG.table, topic="t", shape=LOG.shape, key=("v",))
    encoder = DeclaredRowEncoder(log, [ID, column(kind)])
    assert encoder.decode(encoder.encode([None, value])) == [None, value]
    assert encoder.schemas.logged(1).key == ("v",)
    with pytest.raises(VerdictError, match='column "v"'):
        encoder.encode([7, None])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.INT, 2**31),
        (Kind.INT, True),
        (Kind.LONG, -(2**63) - 1),
        (Kind.TIMESTAMP, 2**63),
        (Kind.DATE, 1.5),
        (Kind.BOOLEAN, 1),
        (Kind.FLOAT, 1e39),
        (Kind.FLOAT, 2**24 + 1),
        (Kind.DOUBLE, 2**53 + 1),
        (Kind.STRING, "\ud800"),
        (Kind.STRING, b"x"),
        (Kind.BYTES, "x"),
    ],
)
def test_what_a_type_cannot_hold_is_refused(kind, value):
    with pytest.raises(VerdictError, match='column "v"'):
        DeclaredRowEncoder(LOG, [ID, column(ColumnType(kind.value, kind))]).encode([1, value])


@pytest.mark.parametrize("text", ["1.505", "NaN", "12345678901", "1E+9"])
def test_a_decimal_that_does_not_fit_is_refused(text):
    encoder = DeclaredRowEncoder(
        LOG, [ID, column(ColumnType("decimal(10,2)", Kind.DECIMAL, 10, 2))]
    )
    with pytest.raises(VerdictError, match='column "v"'):
        encoder.encode([1, Decimal(text)])


def test_columns_that_would_not_be_told_apart_are_refused():
    names = ("a b", "A_b")
    twins = [column(ColumnType("int", Kind.INT), name) for name in names]
    with pytest.raises(VerdictError, match="is not held here"):
        DeclaredRowEncoder(LOG, [ID, *twins])
    empty = column(ColumnType("decimal(0,0)", Kind.DECIMAL))
    with pytest.raises(VerdictError, match=r'column "v" \(decimal\(0,0\)\).* is not held here'):
        DeclaredRowEncoder(LOG, [ID, empty])


def test_every_column_that_can_be_declared_is_held_under_its_name():
    kinds = ["boolean", "int", "bigint", "float", "double", "string", "binary", "date",
             "timestamp", "timestamp_ntz", "decimal(38,10)"]  # fmt: skip
    columns = declared_columns({"id": "int", **{f"a {k}": k for k in kinds}}, "logs.things")
    read = DeclaredRowEncoder(LOG, columns).schemas.logged(1)
    assert [each.column for each in read.columns] == [each.column for each in columns]
    assert [each.type for each in read.columns] == [each.type for each in columns]
    assert (read.table, read.key) == (LOG.table, LOG.key)


def test_every_type_of_avro_is_held():
    plain = ["boolean", "int", "long", "float", "double", "string", "bytes"]
    marks = [("int", "date"), ("long", "timestamp-micros"), ("long", "timestamp-millis"),
             ("long", "local-timestamp-micros"), ("long", "local-timestamp-millis"),
             ("string", "uuid")]  # fmt: skip
    types = [
        *plain,
        *({"type": kind, "logicalType": mark} for kind, mark in marks),
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
        *({"type": "array", "items": ["null", each]} for each in plain),
        {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}},
    ]
    fields = [{"name": f"c{n}", "type": ["null", each]} for n, each in enumerate(types)]
    text = json.dumps({"type": "record", "name": "V", "fields": fields})
    columns = avro_columns(text, ValueShape.FLAT_AVRO)
    log = DeclaredLog(table=LOG.table, topic="t", shape=ValueShape.FLAT_AVRO, key=("c1",))
    read = DeclaredRowEncoder(log, columns).schemas.logged(1)
    assert [each.type for each in read.columns] == [each.type for each in columns]
