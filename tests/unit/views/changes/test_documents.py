"""Records as JSON: every digit, and as documents have them."""

import io
import json

import fastavro
import orjson
import pytest

from changelog.avro.bodies import bare
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.codec import frame
from views.changes.feed import FeedDocuments

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}
SCHEMA = {
    "type": "record",
    "name": "t",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", DECIMAL]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
    ],
}


def record(**row) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(bare(SCHEMA)), row)
    return frame(7) + out.getvalue()


def test_a_row_has_all_its_digits() -> None:
    documents = FeedDocuments({7: json.dumps(SCHEMA)}.__getitem__)
    amount = (-(10**37) - 1).to_bytes(16, "big", signed=True)
    raw = record(id=2**62, amount=amount, at=1_700_000_000_123_456, tags=["a", None])
    assert orjson.loads(documents.json(raw)) == {
        "id": 2**62,
        "amount": "-10000000000000000000000000000000000.001",
        "at": "2023-11-14T22:13:20.123456Z",
        "tags": ["a", None],
    }
    nothing = orjson.loads(documents.json(record(id=1, amount=None, at=None, tags=None)))
    assert set(nothing.values()) == {1, None}


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ("bytes", b"\x00\xff", "AP8="),
        ({"type": "int", "logicalType": "date"}, -719_162, "0001-01-01"),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            0,
            "1970-01-01T00:00:00.000000",
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, -1, "1969-12-31T23:59:59.999999Z"),
        ("double", float("nan"), "NaN"),
        ("float", 0.10000000149011612, 0.10000000149011612),
        ("float", float("-inf"), "-Infinity"),
        ({"type": "map", "values": ["null", "long"]}, {"a": None}, {"a": None}),
        (["null", "boolean"], False, False),
        ({**DECIMAL, "scale": 0}, b"\x00", "0"),
    ],
)
def test_values_are_as_in_documents(schema, value, shown) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(bare(schema)), value)
    found = FeedDocuments(lambda _: json.dumps(schema)).json(frame(7) + out.getvalue())
    assert orjson.loads(found) == shown


def test_json_goes_through_as_it_is_and_a_delete_is_null() -> None:
    documents = FeedDocuments(None)
    assert documents.json(b'{"a": 1.10}') == b'{"a": 1.10}'
    assert documents.json(None) == b"null"


def test_a_record_of_something_else_is_refused() -> None:
    documents = FeedDocuments({7: json.dumps(SCHEMA)}.__getitem__)
    for raw in (b"", b"abc", frame(7), record(id=1, amount=None, at=None, tags=None)[:-1]):
        with pytest.raises(CorruptRecordError):
            documents.json(raw)
