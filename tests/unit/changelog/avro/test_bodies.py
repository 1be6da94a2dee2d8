"""Bodies of Avro without logical types, and decimals: `changelog.avro`."""

import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.avro.bodies import MALFORMED, BodyReader, bare
from changelog.avro.decimals import SCALES, decimal_of, decimal_text
from changelog.contract.base.errors import CorruptRecordError

DATE = {"type": "int", "logicalType": "date"}
ROW = {
    "type": "record",
    "name": "t",
    "key": ["default"],
    "fields": [
        {"name": "logicalType", "type": "int"},
        {"name": "day", "type": [DATE, "null"], "default": "text, of another program"},
        {"name": "days", "type": {"type": "array", "items": ["null", DATE]}},
        {"name": "by", "type": {"type": "map", "values": DATE}, "default": {}},
    ],
}


def test_a_schema_loses_logical_types_and_defaults_at_every_depth_and_nothing_else():
    found = bare(ROW)
    text = json.dumps(found)
    assert '"logicalType":' not in text
    assert '"default":' not in text
    assert [each["name"] for each in found["fields"]] == ["logicalType", "day", "days", "by"]
    assert found["key"] == ["default"]
    assert bare(found) == found
    fastavro.parse_schema(found)


def test_a_value_beyond_what_python_has_stays_a_number():
    read = BodyReader(bare(["null", DATE])).read
    assert read(b"frame\x02\xfe\xff\xff\xff\x0f") == (2**31 - 1, 0)
    assert read(b"\x02\x02more", 0) == (1, 4)
    with pytest.raises(MALFORMED):
        read(b"frame\x02")


@given(st.binary(min_size=1, max_size=20), st.integers(0, 38))
def test_a_decimal_and_its_text_are_one_number(raw, scale):
    found = decimal_of(raw, scale)
    assert found.as_tuple().exponent == -scale
    assert decimal_text(raw, scale) == f"{found:f}"
    assert int(decimal_text(raw, -scale)) == int.from_bytes(raw, "big", signed=True) * 10**scale


def test_a_decimal_is_never_rounded():
    raw = (10**9000 - 1).to_bytes(4000, "big")  # more digits than Python makes of an int
    assert decimal_text(raw, 3) == "9" * 8997 + ".999"
    for scale in (SCALES.start - 1, SCALES.stop):
        with pytest.raises(CorruptRecordError, match="which PostgreSQL has not"):
            decimal_text(b"\x01", scale)
