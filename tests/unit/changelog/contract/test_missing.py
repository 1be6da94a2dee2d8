"""Constants of added columns as Avro defaults: what a reader fills in is what was encoded."""

import io
import json
from typing import Any

import fastavro
import pytest

from changelog.contract.rows.codec import FRAME_BYTES, RowCodec
from changelog.contract.rows.missing import avro_default
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.schema import read_schema, value_schema
from changelog.contract.rows.types import ColumnType, Kind, array_type, column_type

NAME = TableName("public", "t")
ID = Column("id", ColumnType("integer", Kind.INT))
INTS = array_type(column_type("int4", "integer"), "integer[]")
VALUES = [
    ("bool", "boolean", b"t"),
    ("bool", "boolean", b"f"),
    ("int4", "integer", b"-5"),
    ("int8", "bigint", b"9223372036854775807"),
    ("float4", "real", b"0.1"),
    ("float4", "real", b"7.038531e-26"),
    ("float8", "double precision", b"1e+300"),
    ("numeric", "numeric(10,2)", b"-1.50"),
    ("numeric", "numeric(38,0)", b"99999999999999999999999999999999999999"),
    ("numeric", "numeric", b"NaN"),
    ("text", "text", 'é " \\ 😀'.encode()),
    ("text", "text", b""),
    ("bytea", "bytea", b"\\x00ff80"),
    ("date", "date", b"0044-03-15 BC"),
    ("date", "date", b"infinity"),
    ("timestamp", "timestamp without time zone", b"2024-02-29 01:02:03.5"),
    ("timestamptz", "timestamp with time zone", b"-infinity"),
    ("uuid", "uuid", b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("jsonb", "jsonb", b'{"a": [1, null]}'),
]


def relation(*columns):
    return Relation(1, NAME, (ID, *columns), ("id",))


def bare(schema):
    """Take the logical types off, which fastavro cannot read outside of its own range."""
    raw = json.loads(schema)
    if isinstance(raw, dict):
        return {n: bare(json.dumps(v)) for n, v in raw.items() if n not in {"logicalType", "key"}}
    return [bare(json.dumps(each)) for each in raw] if isinstance(raw, list) else raw


def read(value, written, reader=None):
    schemas = [
        fastavro.parse_schema(bare(value_schema(each))) for each in (written, reader or written)
    ]
    row: Any = fastavro.schemaless_reader(io.BytesIO(value[FRAME_BYTES:]), schemas[0], schemas[1])
    kinds = {column.name: column.type.kind for column in (reader or written).columns}
    return {
        # fastavro alone gives the default of bytes as the text that stands for it in JSON.
        name: field.encode("iso-8859-1")
        if reader and isinstance(field, str) and kinds[name] in {Kind.BYTES, Kind.DECIMAL}
        else field
        for name, field in row.items()
    }


def codec(version):
    return RowCodec(version, key_schema_id=1, value_schema_id=2)


@pytest.mark.parametrize(("base", "formatted", "text"), VALUES)
def test_an_older_record_reads_as_if_the_constant_stood_in_it(base, formatted, text):
    kind = column_type(base, formatted)
    default = avro_default(kind, text)
    assert default is not None
    older, newer = relation(), relation(Column("more", kind, default))
    filled = read(codec(older).encode_value([b"1"]), older, newer)
    assert filled == read(codec(newer).encode_value([b"1", text]), newer)
    assert read(codec(newer).encode_value([b"1", None]), newer) == {"id": 1, "more": None}
    column = read_schema(value_schema(newer)).columns[1]
    assert (column.default, column.type, column.nullable) == (default, kind, True)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (column_type("float8", "double precision"), b"NaN"),
        (column_type("float4", "real"), b"-Infinity"),
        (column_type("numeric", "numeric(10,2)"), b"NaN"),
        (column_type("timestamp", "timestamp without time zone"), b"294276-01-01 00:00:00"),
        (INTS, b"{1}"),
        (INTS, b"{}"),
        (INTS, b"{{1}}"),
    ],
)
def test_what_avro_cannot_write_as_a_default_is_none(kind, text):
    assert avro_default(kind, text) is None


def test_the_escape_stays_the_last_branch():
    kind = column_type("numeric", "numeric(10,2)")
    newer = relation(Column("more", kind, avro_default(kind, b"1.00")))
    assert read(codec(newer).encode_value([b"1", b"NaN"]), newer) == {"id": 1, "more": "NaN"}
    union = json.loads(value_schema(newer))["fields"][1]["type"]
    assert [each if isinstance(each, str) else each["logicalType"] for each in union] == [
        "decimal",
        "null",
        "string",
    ]
