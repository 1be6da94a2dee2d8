"""What may stand in `views/NAME.delta.json`, and what bounds say."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from changelog.contract.base.errors import ConfigurationError
from replay.store.layout import Layout
from views.sinks.delta.options import DeltaOptions, delta_options

REFUSED = [
    ({"partitioned_by": ["a"]}, "partitioned_by: there is no such option"),
    ({"partition_by": "a"}, "partition_by"),
    ({"partition_by": [1]}, "partition_by.0"),
    ({"cluster_by": {"a": 1}}, "cluster_by"),
    ({"target_file_mb": 0}, "target_file_mb"),
    ({"target_file_mb": "64"}, "target_file_mb"),
    ({"partition_by": ["a"], "cluster_by": ["a"]}, '"a" is named twice'),
    ({"cluster_by": ["a", "a"]}, '"a" is named twice'),
    ({"partition_by": list("abcde")}, "5 columns"),
    ({"partition_by": ["k"]}, "has the whole key"),
    ({"partition_by": ["a", "k"]}, "has the whole key"),
]


@pytest.mark.parametrize(("options", "reason"), REFUSED)
def test_options_that_are_none_are_refused_with_the_file_and_the_reason(options, reason):
    with pytest.raises(ConfigurationError, match=reason) as told:
        delta_options("orders", options, ["k"])
    assert "orders.delta.json" in str(told.value)


def test_options_are_what_the_file_says():
    found = delta_options("orders", {"partition_by": ["a"], "cluster_by": ["k"]}, ["k"])
    assert (found.partition_by, found.cluster_by, found.target_file_mb) == (("a",), ("k",), 128)
    assert found.lays_out
    assert not DeltaOptions().lays_out


KINDS = {"n": "long", "s": "string", "d": "date", "x": "double"}
SCHEMA = StructType.fromJson(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in KINDS.items()
        ],
    }
)


def bounds(columns, bounded=("n", "s", "d", "x"), **options):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, **options)
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    return Layout(schema=SCHEMA, bounded=bounded).bounds_of(footer)


def test_bounds_are_those_of_all_row_groups_and_of_types_that_have_exact_ones():
    columns = {
        "n": pa.array([3, None, -(2**63), 2**63 - 1], pa.int64()),
        "s": ["b", "\U0001f600", None, "\uffee"],
        "d": [dt.date(1, 1, 1), None, dt.date(2020, 1, 1), dt.date(9999, 12, 31)],
        "x": [1.0, 2.0, float("nan"), None],
    }
    assert bounds(columns, row_group_size=2) == {
        "minValues": {"n": -(2**63), "s": "b", "d": "0001-01-01"},
        "maxValues": {"n": 2**63 - 1, "s": "\U0001f600", "d": "9999-12-31"},
        "nullCount": {"n": 1, "s": 1, "d": 1},
    }


@pytest.mark.parametrize(
    "columns",
    [
        {"s": ["a", "b" * 65]},
        {"d": pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())},
        {"n": pa.array([None, None], pa.int64())},
        {"n": pa.array([], pa.int64())},
    ],
)
def test_bounds_that_are_not_exact_are_not_told(columns):
    assert bounds(columns) == {}


def test_a_file_without_statistics_has_no_bounds():
    assert bounds({"n": [1, 2]}, write_statistics=False) == {}


def test_a_field_of_a_struct_is_not_the_column():
    assert bounds({"x": [{"n": 1}], "s": ["a"]}, bounded=("n",)) == {}
