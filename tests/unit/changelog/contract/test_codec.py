"""Rows to framed Avro: single facts; the laws are in tests/property/test_contract.py."""

from __future__ import annotations

import struct

import pytest

from changelog.contract.base.errors import CorruptRecordError, EncodeError
from changelog.contract.rows.codec import FRAME_BYTES, key_of, unframe
from changelog.contract.rows.relation import UNCHANGED, Field
from changelog.contract.rows.schema import key_schema
from changelog.contract.rows.text import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)
from changelog.contract.rows.types import ColumnType, column_type
from tests.support.builders import (
    INTEGER,
    INTEGERS,
    KEY_SCHEMA_ID,
    TEXT,
    TEXTS,
    VALUE_SCHEMA_ID,
    decimal_type,
    key_round_trip,
    make_codec,
    make_relation,
    read_avro,
    round_trip,
    value_of,
)

DATE = column_type("date", "date")
TIMESTAMP = column_type("timestamp", "timestamp without time zone")
TIMESTAMPTZ = column_type("timestamptz", "timestamp with time zone")


def test_a_key_stands_in_the_order_of_the_primary_key() -> None:
    relation = make_relation({"a": INTEGER, "b": TEXT, "c": INTEGER}, key=("c", "a"))
    key = key_of(relation.key_indexes, [b"1", b"x", b"3"])
    assert key == (b"3", b"1")
    read = read_avro(key_schema(relation), make_codec(relation).encode_key(key))
    assert list(read.items()) == [("c", 3), ("a", 1)]


def test_the_frame_holds_the_pinned_schema_ids() -> None:
    codec = make_codec(make_relation())
    assert codec.encode_key((b"1",))[:FRAME_BYTES] == b"\0" + struct.pack(">I", KEY_SCHEMA_ID)
    assert unframe(codec.encode_value([b"1", None]))[0] == VALUE_SCHEMA_ID


@pytest.mark.parametrize("raw", [b"", b"\0\0\0\0", b"\1\0\0\0\7x"])
def test_an_unframed_record_is_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        unframe(raw)


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-Infinity"])
def test_a_number_outside_decimal_takes_the_escape(text: bytes) -> None:
    assert round_trip(decimal_type(10, 2), text) == text.decode()
    assert key_round_trip(decimal_type(10, 2), text) == text.decode()


@pytest.mark.parametrize(("name", "kind"), [("real", "float4"), ("double precision", "float8")])
def test_floats_have_their_own_special_values(name: str, kind: str) -> None:
    it = column_type(kind, name)
    assert str(round_trip(it, b"NaN")) == "nan"
    assert round_trip(it, b"Infinity") == float("inf")
    assert round_trip(it, b"-Infinity") == float("-inf")
    assert str(round_trip(it, b"-0")) == "-0.0"


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (DATE, b"infinity", DATE_INFINITY),
        (DATE, b"-infinity", DATE_MINUS_INFINITY),
        (DATE, b"4713-01-01 BC", -2_440_550),
        (DATE, b"0001-01-01", -719_162),
        (DATE, b"0001-12-31 BC", -719_163),
        (DATE, b"5874897-12-31", 2_145_042_905),
        (TIMESTAMP, b"infinity", TIMESTAMP_INFINITY),
        (TIMESTAMP, b"-infinity", TIMESTAMP_MINUS_INFINITY),
        (TIMESTAMPTZ, b"infinity", TIMESTAMP_INFINITY),
        (TIMESTAMP, b"1970-01-01 00:00:00.000001", 1),
        (TIMESTAMP, b"1969-12-31 23:59:59.9", -100_000),
        (TIMESTAMPTZ, b"10000-01-01 00:00:00+00", 253_402_300_800_000_000),
        (TIMESTAMPTZ, b"0001-12-31 23:59:59+00 BC", -62_135_596_801_000_000),
    ],
)
def test_days_and_moments_at_the_edges(kind: ColumnType, text: bytes, number: int) -> None:
    assert round_trip(kind, text, physical=True) == number


def test_arrays_at_the_edges() -> None:
    assert round_trip(TEXTS, b"{}") == []
    assert round_trip(TEXTS, b'{a,"b,c","NULL",NULL,""}') == ["a", "b,c", "NULL", None, ""]
    assert round_trip(TEXTS, rb'{"a\"b","c\\d"}') == ['a"b', "c\\d"]
    assert round_trip(INTEGERS, b"{{1,2},{3,4}}") == "{{1,2},{3,4}}"
    assert round_trip(INTEGERS, b"[0:1]={1,2}") == "[0:1]={1,2}"
    assert key_round_trip(INTEGERS, b"{1,2}") == [1, 2]
    assert key_round_trip(INTEGERS, b"[0:1]={1,2}") == "[0:1]={1,2}"
    assert round_trip(INTEGERS, None) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (INTEGER, b"1.5"),
        (decimal_type(5, 2), b"1.234"),
        (decimal_type(5, 2), b"many"),
        (column_type("bool", "boolean"), b"true"),
        (column_type("bytea", "bytea"), b"abcd"),
        (DATE, b"31.12.2024"),
        (TIMESTAMPTZ, b"2024-01-01 12:00:00+02"),
        (TIMESTAMP, b"294276-12-31 00:00:00"),
        (column_type("float4", "real"), b"1e39"),
    ],
)
def test_a_text_without_exact_form_is_loud(kind: ColumnType, text: bytes) -> None:
    with pytest.raises(EncodeError, match=r'table "public.things", column "it"'):
        round_trip(kind, text)


@pytest.mark.parametrize(
    ("row", "what"),
    [([None, b"a"], "null in the primary key"), ([b"1", UNCHANGED], "TOAST value not fetched")],
)
def test_what_the_stream_left_out_is_never_a_null(row: list[Field], what: str) -> None:
    with pytest.raises(EncodeError, match=what):
        value_of(make_relation(), row)
