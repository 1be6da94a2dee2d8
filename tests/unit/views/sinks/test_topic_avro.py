"""Rows of Arrow as Avro, read back by fastavro; schemas that have no form."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StructField,
    StructType,
)

from changelog.contract.base.errors import SinkError
from views.sinks.topic import encode
from views.sinks.topic.options import check_topic_shape
from views.sinks.topic.schema import key_schema, value_schema

INT = IntegerType()
TYPES = {
    "tiny": pa.int8(),
    "number": pa.int64(),
    "flag": pa.bool_(),
    "text": pa.string(),
    "raw": pa.binary(),
    "amount": pa.decimal128(38, 7),
    "small": pa.decimal128(3, 1),
    "single": pa.float32(),
    "double": pa.float64(),
    "day": pa.date32(),
    "moment": pa.timestamp("us", "UTC"),
    "clock": pa.timestamp("us"),
    "list": pa.list_(pa.decimal128(9, 2)),
    "map": pa.map_(pa.string(), pa.list_(pa.int32())),
    "struct": pa.struct([("a", pa.string()), ("n", pa.list_(pa.float64()))]),
}
whole = st.floats(allow_nan=False)
texts = st.text(st.characters(codec="utf-8"), max_size=70)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001
VALUES = {
    "tiny": st.integers(-128, 127),
    "number": st.integers(-(2**63), 2**63 - 1),
    "flag": st.booleans(),
    "text": texts,
    "raw": st.binary(max_size=200),
    "amount": st.decimals(-(10**30), 10**30, places=7),
    "small": st.decimals(Decimal("-99.9"), Decimal("99.9"), places=1),
    "single": st.floats(width=32, allow_nan=False),
    "double": whole,
    "day": st.dates(date(1, 1, 2), date(9999, 12, 30)),
    "moment": moments.map(lambda each: each.replace(tzinfo=UTC)),
    "clock": moments,
    "list": st.lists(st.none() | st.decimals(-9999, 9999, places=2), max_size=4),
    "map": st.dictionaries(
        texts, st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3), max_size=3
    ).map(lambda found: list(found.items())),
    "struct": st.fixed_dictionaries(
        {"a": st.none() | texts, "n": st.none() | st.lists(st.none() | whole, max_size=2)}
    ),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | each for name, each in VALUES.items()}),
    min_size=1,
    max_size=20,
)
SCHEMA = from_arrow_schema(
    pa.schema([pa.field(*each) for each in TYPES.items()]), prefer_timestamp_ntz=True
)


def table_of(found: list[dict]) -> pa.Table:
    return pa.table({name: pa.array([r[name] for r in found], t) for name, t in TYPES.items()})


def read(raw: bytes, schema: str) -> dict:
    source = BytesIO(raw)
    assert source.read(5) == b"\0\0\0\0\7"
    found: Any = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(schema)), None)
    assert source.read() == b""
    assert isinstance(found, dict)
    return found


def plain(row: dict) -> dict:
    return {**row, "map": None if row["map"] is None else dict(row["map"])}


@given(found=ROWS, skipped=st.integers(0, 2))
def test_rows_read_back_as_they_were(found, skipped):
    """Also from the midst of a batch, where buffers begin before the rows."""
    rows = table_of([*found[:1] * skipped, *found]).combine_chunks().slice(skipped)
    made = encode.values(
        [column.combine_chunks() for column in rows.columns], b"\0\0\0\0\7"
    ).to_pylist()
    text = value_schema("v", SCHEMA)
    assert [read(each, text) for each in made] == [plain(row) for row in found]


@given(
    found=st.lists(
        st.tuples(VALUES["number"], texts, VALUES["small"], VALUES["day"]), min_size=1, max_size=20
    )
)
def test_keys_read_back_and_are_equal_when_their_values_are(found):
    names = ("number", "text", "small", "day")
    columns = [pa.array([row[n] for row in found], TYPES[name]) for n, name in enumerate(names)]
    made = encode.keys(columns, b"\0\0\0\0\7").to_pylist()
    text = key_schema("v", SCHEMA, names)
    assert [tuple(read(each, text).values()) for each in made] == found
    assert len({*made}) == len({*found})


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (StructField("a b", INT), '"a b" is not a name in Avro'),
        (StructField("s", StructType([StructField("x.y", INT)])), '"x.y" is not a name in Avro'),
        (StructField("m", MapType(INT, INT)), "texts as keys"),
    ],
)
def test_what_has_no_form_in_avro_is_refused(column, reason):
    with pytest.raises(SinkError, match=reason):
        value_schema("v", StructType([StructField("id", INT), column]))


def test_a_float_in_a_key_is_refused():
    floats = [("id", DoubleType()), ("a", ArrayType(FloatType())), ("n", INT)]
    schema = StructType([StructField(name, kind) for name, kind in floats])
    for key in (("id",), ("n", "a")):
        with pytest.raises(SinkError, match="two records"):
            check_topic_shape(schema, key)
