"""The verifier's own way around logical types: `views.verify.log.registry`."""

from io import BytesIO

import fastavro

from views.verify.log.registry import parsed

DATE = {"type": "int", "logicalType": "date"}
ROW = {
    "type": "record",
    "name": "t",
    "key": ["day"],
    "fields": [
        {"name": "day", "type": ["null", DATE], "default": "of another program"},
        {"name": "by", "type": {"type": "map", "values": {"type": "array", "items": DATE}}},
        {"name": "kind", "type": {"type": "enum", "name": "e", "symbols": ["A"]}},
        {"name": "two", "type": {"type": "fixed", "name": "f", "size": 2, "logicalType": "x"}},
        {"name": "more", "type": ["null", "t"]},
    ],
}


def test_dates_beyond_those_of_python_are_numbers_at_every_depth():
    end = b"\xfe\xff\xff\xff\x0f"
    body = b"\x02" + end + b"\x02\x02k\x02" + end + b"\x00\x00" + b"\x00" + b"ab" + b"\x00"
    assert fastavro.schemaless_reader(BytesIO(body), parsed(ROW), None) == {
        "day": 2**31 - 1,
        "by": {"k": [2**31 - 1]},
        "kind": "A",
        "two": b"ab",
        "more": None,
    }
