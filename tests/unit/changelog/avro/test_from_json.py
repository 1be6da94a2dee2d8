"""Avro's JSON encoding, beside fastavro's own, and what is refused."""

import json
import math
from io import BytesIO, StringIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.avro.from_json import MisfitError, json_encoder
from changelog.connect.rules.records.reading import parse_json

ROW = {
    "type": "record",
    "name": "r",
    "namespace": "n.s",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "s", "type": "string"},
        {"name": "y", "type": "bytes"},
        {"name": "x", "type": {"type": "fixed", "name": "two", "size": 2}},
        {"name": "e", "type": {"type": "enum", "name": "colour", "symbols": ["RED", "BLUE"]}},
        {"name": "a", "type": {"type": "array", "items": ["null", "string", "n.s.two"]}},
        {"name": "m", "type": {"type": "map", "values": "colour"}},
        {"name": "u", "type": ["null", "long", {"type": "array", "items": "int"}]},
    ],
}
ROWS = st.fixed_dictionaries(
    {
        "b": st.booleans(),
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "d": st.floats(allow_nan=False, allow_infinity=False),
        "s": st.text(),
        "y": st.binary(),
        "x": st.binary(min_size=2, max_size=2),
        "e": st.sampled_from(["RED", "BLUE"]),
        "a": st.lists(st.one_of(st.none(), st.text())),
        # fastavro's own writer fails on an empty name.
        "m": st.dictionaries(st.text(min_size=1), st.sampled_from(["RED", "BLUE"])),
        "u": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(0, 9))),
    }
)


def encoded(schema, text):
    return json_encoder(json.dumps(schema))(parse_json(text.encode(), "value"))


@given(ROWS)
def test_values_are_what_fastavro_writes(row):
    """fastavro writes the row in JSON; read back from our bytes it is the same row."""
    plain = json.loads(json.dumps(ROW).replace(', "logicalType": "timestamp-micros"', ""))
    parsed = fastavro.parse_schema(plain)
    text = StringIO()
    fastavro.json_writer(text, parsed, [row])
    raw = encoded(ROW, text.getvalue())
    assert fastavro.schemaless_reader(BytesIO(raw), parsed, None) == row


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        ("int", "2147483648", "an integer of 32 bits"),
        ("int", "1.0", "an int"),
        ("int", "true", "an int"),
        ("int", '"1"', "an int"),
        ("long", "9223372036854775808", "an integer of 64 bits"),
        ("long", "null", "a long"),
        ("float", "1e39", "a number that fits"),
        ("double", "1e309", "a number that fits"),
        ("double", '"1.5"', "a number"),
        ("double", "false", "a number"),
        ("boolean", "1", "a boolean"),
        ("string", "1", "a text"),
        ("string", "1.5", "a text"),
        ("string", '"\\ud800"', "half of a surrogate pair"),
        ("bytes", '"\\u0100"', r"past U\+00FF"),
        ("bytes", "[1]", "a text"),
        (["null", "string"], '"x"', "null or {"),
        (["null", "string"], '{"int": 1}', "null or {"),
        (["null", "string"], '{"string": "x", "int": 1}', "null or {"),
        ({"type": "fixed", "name": "f", "size": 2}, '"a"', "2 bytes"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, '"B"', "a symbol"),
        ({"type": "array", "items": "int"}, "[1, null]", "1: it is not an int"),
        ({"type": "map", "values": "int"}, '{"a": {}}', "a: it is not an int"),
        ({**ROW, "fields": ROW["fields"][:1]}, "{}", "b is missing"),
        ({**ROW, "fields": ROW["fields"][:1]}, '{"b": true, "c": 1}', "c is no field"),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "int"]}]},
            '{"a": {"int": "x"}}',
            "a: int: it is not an int",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(schema, text, reason):
    with pytest.raises(MisfitError, match=reason):
        encoded(schema, text)


def test_numbers_keep_their_digits():
    assert encoded("long", "9223372036854775807") == b"\xfe" + b"\xff" * 8 + b"\x01"
    assert fastavro.schemaless_reader(BytesIO(encoded("double", "0.1")), "double", None) == 0.1
    nan: Any = fastavro.schemaless_reader(BytesIO(encoded("float", '"NaN"')), "float", None)
    assert math.isnan(nan)
