"""Rows as JSON without Spark: the same bytes as with it, or a word that Spark has to do it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from tests.conformance.test_rendering import CASES, IDENTITIES
from views.sinks.rendering import rendered
from views.sinks.values import NotRenderedError, documents, identities, json_texts

pytestmark = pytest.mark.spark

LEFT_TO_SPARK = ("map(", "date'+", "date'0000", "date'-", "date_from_unix", "timestamp_ntz'-")
TYPES = {
    "small": pa.int16(),
    "number": pa.int64(),
    "flag": pa.bool_(),
    "text": pa.string(),
    "raw": pa.binary(),
    "amount": pa.decimal128(20, 7),
    "single": pa.float32(),
    "double": pa.float64(),
    "day": pa.date32(),
    "moment": pa.timestamp("us", "UTC"),
    "clock": pa.timestamp("us"),
    "list": pa.list_(pa.decimal128(9, 2)),
    "struct": pa.struct([("a b", pa.string()), ("n", pa.list_(pa.float64()))]),
}
floats = st.floats(width=32)
texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["\x00\x1f", "\\u001f"])
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001
values = {
    "small": st.integers(-(2**15), 2**15 - 1),
    "number": st.integers(-(2**63), 2**63 - 1),
    "flag": st.booleans(),
    "text": texts,
    "raw": st.binary(max_size=5),
    "amount": st.decimals(-(10**12), 10**12, places=7),
    "single": floats,
    "double": st.floats(),
    "day": st.dates(date(1, 1, 2), date(9999, 12, 30)),
    "moment": moments.map(lambda each: each.replace(tzinfo=UTC)),
    "clock": moments,
    "list": st.lists(st.none() | st.decimals(-9999, 9999, places=2), max_size=3),
    "struct": st.fixed_dictionaries(
        {"a b": st.none() | texts, "n": st.none() | st.lists(st.none() | st.floats(), max_size=2)}
    ),
}
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | each for name, each in values.items()}),
    min_size=1,
    max_size=40,
)


def table_of(found: list[dict]) -> pa.Table:
    return pa.table({name: pa.array([r[name] for r in found], t) for name, t in TYPES.items()})


@pytest.mark.parametrize(("sql", "text"), CASES)
def test_each_value_has_the_text_that_spark_gives_it(spark, sql, text):
    if sql.startswith("array(named_struct"):
        sql = f"cast({sql} as array<struct<z:binary, y:array<date>>>)"  # what is never null is
    table = spark.sql(f"select {sql} c").toArrow()
    try:
        found = documents(table)
    except NotRenderedError:
        assert sql.startswith(LEFT_TO_SPARK) or "9223372036854775" in sql, "this is rendered here"
    else:
        assert found == [f'{{"c":{text}}}']


@pytest.mark.parametrize(("sql", "key", "identity"), IDENTITIES)
def test_an_id_is_the_one_that_spark_gives(spark, sql, key, identity):
    assert identities(spark.sql(f"select {sql}").toArrow(), key) == [identity]


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[*HealthCheck],
    phases=[Phase.explicit, Phase.generate],  # to shrink by Spark takes minutes
)
@given(found=rows)
def test_documents_are_sparks_byte_by_byte(spark, found):
    table = table_of(found)
    key = ["text", "number"]
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    made = rendered(spark.createDataFrame(table, schema=schema), key).toArrow()
    wanted = {name: made[name].to_pylist() for name in ("id", "document")}
    assert documents(table) == wanted["document"]
    assert identities(table, key) == wanted["id"]


def test_lists_and_structs_alone_are_texts():
    column = pa.chunked_array(
        [pa.array([[Decimal("1.50"), None], None], pa.list_(pa.decimal128(5, 2)))]
    )
    assert json_texts(column) == ['["1.50",null]', None]


def test_a_float_in_a_key_is_left_to_spark():
    with pytest.raises(NotRenderedError):
        identities(pa.table({"k": pa.array([-0.0])}), ["k"])
