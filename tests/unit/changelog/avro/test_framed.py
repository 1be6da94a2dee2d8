"""Framed records to plain values: `changelog.avro.framed`."""

import json
import struct

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.avro.framed import FramedReader, one_line
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.document import Documents, joined
from changelog.contract.rows.codec import frame
from changelog.contract.rows.schema import value_schema
from changelog.contract.rows.types import array_type, column_type
from tests.support.builders import make_codec, make_relation

TYPES = {
    "b": (column_type("bool", "boolean"), [b"t", b"f"]),
    "i": (column_type("int4", "integer"), [b"-2147483648"]),
    "l": (column_type("int8", "bigint"), [b"9223372036854775807"]),
    "r": (column_type("float4", "real"), [b"0.1", b"3.4028235e+38", b"-0", b"NaN", b"-Infinity"]),
    "d": (column_type("float8", "double precision"), [b"0.1", b"1e-300", b"Infinity", b"5"]),
    "n": (column_type("numeric", "numeric(10,2)"), [b"-1.10", b"0.05", b"NaN", b"0.00"]),
    "t": (column_type("text", "text"), [b"", b'a"\\\n\x01', "ß".encode()]),
    "y": (column_type("bytea", "bytea"), [b"\\x00ff", b"\\x"]),
    "a": (column_type("date", "date"), [b"2024-01-31", b"infinity", b"0044-03-15 BC"]),
    "m": (
        column_type("timestamp", "timestamp"),
        [b"2024-01-31 12:34:56.789", b"-infinity", b"12024-01-31 00:00:00"],
    ),
    "z": (column_type("timestamptz", "timestamptz"), [b"2024-01-31 12:34:56+00", b"infinity"]),
    "u": (column_type("uuid", "uuid"), [b"2f1c7a52-9d3e-4a39-9d3e-2f1c7a529d3e"]),
    "s": (array_type(column_type("int4", "integer"), "integer[]"), [b"{1,NULL}", b"[0:0]={1}"]),
    "x": (array_type(column_type("date", "date"), "date[]"), [b"{2024-01-31,infinity}"]),
}


def reader(schema, kind="AVRO"):
    return FramedReader(lambda _: (kind, schema if isinstance(schema, str) else json.dumps(schema)))


def test_rows_of_the_log_read_as_the_documents_that_capture_writes():
    relation = make_relation({"id": TYPES["i"][0], **{n: kind for n, (kind, _) in TYPES.items()}})
    read, codec = reader(value_schema(relation)), make_codec(relation)
    documents = Documents(relation)
    for number in range(5):
        row = [b"%d" % number, *(texts[number % len(texts)] for _, texts in TYPES.values())]
        found = orjson.dumps(read(codec.encode_value(row)))
        expected = joined(documents.members(row))
        assert json.loads(found) == json.loads(expected)
    nulls = [b"1", *(None for _ in TYPES)]
    assert set(read(codec.encode_value(nulls)).values()) == {1, None}


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_the_shortest_that_reads_back(value):
    read = reader('"float"')
    shown = read(frame(1) + struct.pack("<f", value))
    assert struct.pack("<f", shown) == struct.pack("<f", value)
    assert len(repr(shown)) <= len(repr(value))


def test_branches_of_a_union_are_told_apart():
    schema = [
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
        {"type": "fixed", "name": "f", "size": 2},
        {"type": "enum", "name": "e", "symbols": ["A"]},
    ]
    read = reader(schema)
    assert read(frame(1) + b"\x00\x02") == "1970-01-02"
    assert read(frame(1) + b"\x02\x02") == "1970-01-01T00:00:00.001+00:00"
    assert read(frame(1) + b"\x04\x02\xff") == "-0.1"
    assert read(frame(1) + b"\x06ab") == "YWI="
    assert read(frame(1) + b"\x08\x00") == "A"


def test_foreign_schemas_nest_and_carry_types_that_do_not_fit():
    schema = {
        "type": "record",
        "name": "r",
        "namespace": "n",
        "fields": [
            {"name": "m", "type": {"type": "map", "values": {"type": "bytes"}}, "default": {}},
            {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}},
            {"name": "odd", "type": {"type": "string", "logicalType": "date"}},
            {"name": "end", "type": {"type": "int", "logicalType": "date"}},
            {"name": "w", "type": {"type": {"type": "array", "items": "double"}}},
        ],
    }
    body = b"\x02\x02k\x02\x01\x00\x02\x02x\xfe\xff\xff\xff\x0f" + (
        b"\x02" + struct.pack("<d", 0.5) + b"\x00"
    )
    assert reader(schema)(frame(1) + body) == {
        "m": {"k": "AQ=="},
        "t": "00:00:00.000001",
        "odd": "x",
        "end": "5881580-07-11",
        "w": [0.5],
    }


@pytest.mark.parametrize(
    ("schema", "raw", "said"),
    [
        ("int", b"\x00\x00", "too short"),
        ("int", b"\x01\x00\x00\x00\x01\x00", "magic byte"),
        ("string", frame(1) + b"\x08ab", "does not decode by schema 1"),
        ("int", frame(1) + b"\x02\x02", "1 bytes are left over"),
        ("nonsense", frame(1) + b"\x02", "schema 1"),
        ({"type": "array", "items": "null"}, frame(1), "refused"),
    ],
)
def test_what_does_not_decode_is_told(schema, raw, said):
    with pytest.raises(CorruptRecordError, match=said):
        reader(json.dumps(schema))(raw)


def test_schemas_of_other_kinds():
    document = frame(1) + b'{"a": 1.10}'
    assert orjson.dumps(reader("{}", "JSON")(document)) == b'{"a": 1.10}'
    with pytest.raises(CorruptRecordError, match="THRIFT"):
        reader("", "THRIFT")(document)


def test_a_document_keeps_its_digits_on_one_line():
    assert one_line(b'\n{"a":\r\n1.10, "b": 123456789012345678901234567890}\n') == (
        b'{"a":  1.10, "b": 123456789012345678901234567890}'
    )
    with pytest.raises(CorruptRecordError):
        one_line(b'{"a": NaN}')
