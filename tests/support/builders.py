"""Short ways to make relations and to read back what the codec wrote."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from changelog.avro.bodies import bare
from changelog.contract.rows.codec import RowCodec, unframe
from changelog.contract.rows.relation import Column, Relation, Row, TableName
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.contract.rows.types import ColumnType, array_type, column_type

INTEGER = column_type("int4", "integer")
BIGINT = column_type("int8", "bigint")
TEXT = column_type("text", "text")
INTEGERS = array_type(INTEGER, "integer[]")
TEXTS = array_type(TEXT, "text[]")
KEY_SCHEMA_ID = 7
VALUE_SCHEMA_ID = 8


def decimal_type(precision: int, scale: int) -> ColumnType:
    return column_type("numeric", f"numeric({precision},{scale})")


def make_relation(
    columns: dict[str, ColumnType] | None = None,
    key: tuple[str, ...] = ("id",),
    name: TableName = TableName("public", "things"),  # noqa: B008 - a frozen value
) -> Relation:
    """Make a relation; by default `things (id integer primary key, name text)`."""
    columns = columns or {"id": INTEGER, "name": TEXT}
    return Relation(
        oid=16_384,
        name=name,
        columns=tuple(Column(column, kind) for column, kind in columns.items()),
        key=key,
    )


def make_codec(relation: Relation) -> RowCodec:
    """Make a codec under two fixed schema ids."""
    return RowCodec(relation, key_schema_id=KEY_SCHEMA_ID, value_schema_id=VALUE_SCHEMA_ID)


def read_avro(schema: str, raw: bytes, *, physical: bool = False) -> dict[str, Any]:
    """Decode framed bytes with fastavro, to the last byte.

    `physical` gives the numbers and bytes that stand on the log, without what the logical types
    make of them: Python's own dates end at the years 1 and 9999.
    """
    parsed = json.loads(schema)
    _, body = unframe(raw)
    source = io.BytesIO(body)
    read: Any = fastavro.schemaless_reader(
        source, fastavro.parse_schema(bare(parsed) if physical else parsed)
    )
    assert source.read() == b"", "bytes are left over behind the record"
    return read  # type: ignore[no-any-return]


def round_trip(kind: ColumnType, text: bytes | None, *, physical: bool = False) -> Any:
    """Encode one nullable column's text and read it back."""
    relation = make_relation({"id": INTEGER, "it": kind})
    raw = make_codec(relation).encode_value([b"1", text])
    return read_avro(value_schema(relation), raw, physical=physical)["it"]


def key_round_trip(kind: ColumnType, text: bytes, *, physical: bool = False) -> Any:
    """Encode one key column's text and read it back."""
    relation = make_relation({"it": kind}, key=("it",))
    raw = make_codec(relation).encode_key((text,))
    return read_avro(key_schema(relation), raw, physical=physical)["it"]


def value_of(relation: Relation, row: Row, *, physical: bool = False) -> dict[str, Any]:
    """Encode a row and read it back."""
    raw = make_codec(relation).encode_value(row)
    return read_avro(value_schema(relation), raw, physical=physical)
