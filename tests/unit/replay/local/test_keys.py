"""Keys as people write them are the bytes that capture writes: replay.local.keys."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.schema import read_schema, value_schema
from changelog.contract.rows.types import column_type
from replay.local.keys import key_bytes
from tests.support.builders import INTEGER, TEXT, decimal_type, make_relation

KINDS = {
    "flag": column_type("bool", "boolean"),
    "number": column_type("int8", "bigint"),
    "price": decimal_type(8, 2),
    "text": TEXT,
    "raw": column_type("bytea", "bytea"),
    "day": column_type("date", "date"),
    "clock": column_type("timestamp", "timestamp without time zone"),
    "moment": column_type("timestamptz", "timestamp with time zone"),
    "name": column_type("uuid", "uuid"),
    "code": column_type("bpchar", "character(5)"),
    "ratio": column_type("float8", "double precision"),
}
NAME = UUID("00000000-0000-0000-0000-0000000000ff")
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("flag", True, b"t"),
        ("flag", False, b"f"),
        ("flag", "true", b"t"),
        ("number", -(2**63), b"-9223372036854775808"),
        ("price", Decimal("1.5"), b"1.50"),
        ("price", "1.50", b"1.50"),
        ("price", 2, b"2.00"),
        ("text", "ü, '\"", "ü, '\"".encode()),
        ("raw", b"\x00\xff", b"\\x00ff"),
        ("day", date(2024, 2, 29), b"2024-02-29"),
        ("day", "infinity", b"infinity"),
        (
            "clock",
            datetime.fromisoformat("2024-02-29T01:02:03.000004"),
            b"2024-02-29 01:02:03.000004",
        ),
        ("moment", datetime(2024, 2, 29, 2, tzinfo=EAST), b"2024-02-29 00:00:00+00"),
        ("moment", "2024-02-29 02:00+02", b"2024-02-29 00:00:00+00"),
        ("moment", "2024-02-29T02:00:01.5+02:00", b"2024-02-29 00:00:01.5+00"),
        ("moment", "infinity", b"infinity"),
        ("clock", "2024-02-29 01:02", b"2024-02-29 01:02:00"),
        ("clock", "0044-03-15 01:02:03 BC", b"0044-03-15 01:02:03 BC"),
        ("name", NAME, str(NAME).encode()),
        ("code", "a", b"a    "),
        ("code", "a       ", b"a    "),
        ("ratio", 0.1, b"0.1"),
        ("ratio", float("-inf"), b"-Infinity"),
    ],
)
def test_a_value_of_python_is_what_capture_writes(column, value, text):
    relation = make_relation({column: KINDS[column]}, (column,))
    codec = RowCodec(relation, key_schema_id=7, value_schema_id=8)
    logged = read_schema(value_schema(relation))
    assert key_bytes(logged, 7, value) == codec.encode_key((text,))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("number", "one"),
        ("number", 1.5),
        ("number", None),
        ("price", Decimal("1.234")),
        ("day", datetime.fromisoformat("2024-01-01")),
        ("clock", datetime(2024, 1, 1, tzinfo=UTC)),
        ("moment", datetime.fromisoformat("2024-01-01")),
        ("moment", "2024-01-01 00:00:00"),
        ("moment", "2024-01-01"),
        ("clock", "2024-01-01 00:00:00+00"),
        ("clock", "2024-01-01 00:00:00.1234567"),
        ("clock", "2024-01-01 noon"),
        ("day", "2024-01-01 00:00:00"),
        ("number", "1_0"),
        ("flag", "yes"),
        ("name", "no uuid"),
    ],
)
def test_what_is_no_value_of_the_column_is_refused(column, value):
    logged = read_schema(value_schema(make_relation({column: KINDS[column]}, (column,))))
    with pytest.raises(ConfigurationError, match=f'is no value of its key column "{column}"'):
        key_bytes(logged, 7, value)


def test_a_key_of_several_columns_is_in_the_keys_own_order():
    relation = make_relation({"a": INTEGER, "b": TEXT}, ("b", "a"))
    logged = read_schema(value_schema(relation))
    codec = RowCodec(relation, key_schema_id=7, value_schema_id=8)
    wanted = codec.encode_key((b"x", b"1"))
    assert key_bytes(logged, 7, ("x", 1)) == key_bytes(logged, 7, {"a": 1, "b": "x"}) == wanted
    for wrong in ("x", ("x", 1, 2), {"a": 1}, {"a": 1, "b": "x", "c": 2}):
        with pytest.raises(ConfigurationError, match="key"):
            key_bytes(logged, 7, wrong)
    with pytest.raises(ConfigurationError, match="has no keys in Avro"):
        key_bytes(logged, None, ("x", 1))
