"""What a Delta table's options promise: where rows lie, exact values for each reader."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from changelog.contract.base.errors import SinkError
from replay.store import layout
from tests.conformance.conftest import delta_bench, delta_rows
from tests.conformance.test_delta_sink import stable
from views.sinks.base import Change
from views.sinks.delta import arrange
from views.verify.served.served import read_served
from views.verify.values.types import parse_type

pytestmark = pytest.mark.spark


def build(bench: Any, number: int, rows: Any, options: dict[str, Any], key=("k",)) -> Any:
    sink = bench.sink(key=key, options=options)
    sink.open(number, rows.schema)
    sink.write(rows)
    address = sink.seal()
    sink.publish(number)
    return sink, address


def adds_of(place: str) -> list[dict[str, Any]]:
    """Return the files of a table from its log, which this reads by itself."""
    last = max(Path(place, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in last.read_text("utf-8").splitlines()]
    return [each["add"] for each in actions if "add" in each]


def by_each_reader(bench: Any, place: str, names: str) -> list[list[str]]:
    """Read columns by Spark, by deltalake's engine, by its datasets, and by DuckDB over these."""
    listed = names.split(", ")
    frame = bench.spark.read.format("delta").load(place).selectExpr(*listed)
    engine = QueryBuilder().register("t", DeltaTable(place))
    found = pa.table(engine.execute(f"select {names} from t").read_all())
    dataset = DeltaTable(place).to_pyarrow_dataset()
    table = dataset.to_table(columns=listed)
    with duckdb.connect() as database:
        database.register("held", dataset)
        duck = database.execute(f"select {names} from held").fetchall()
    return [
        sorted(map(repr, map(tuple, rows)))
        for rows in (
            frame.collect(),
            zip(*(found[name].to_pylist() for name in listed), strict=True),
            zip(*(table[name].to_pylist() for name in listed), strict=True),
            duck,
        )
    ]


ODD = [
    None, " ", "a/b", "a b", "50%", "%2F", "a=b", "é", "日本", "\x01", "\x00", "\n", "\t", "'", '"',
    "\\", "..", ".", "null", "NULL", "__hive__", "\U0001f600", "x" * 3_000, "a:b*?<>|#", "end ",
]  # fmt: skip


def test_each_value_of_a_partition_is_exact_for_each_reader(delta):
    rows = [(k, text, k % 2 or None) for k, text in enumerate(ODD)]
    frame = delta.spark.createDataFrame(rows, "k int, t string, n smallint")
    _, address = build(delta, 1, frame, {"partition_by": ["t", "n"]})
    wanted = sorted(map(repr, rows))
    assert DeltaTable(stable(delta)).metadata().partition_columns == ["t", "n"]
    for found in by_each_reader(delta, stable(delta), "k, t, n"):
        assert found == wanted
    columns = [(name, parse_type(kind)) for name, kind in frame.dtypes]
    with duckdb.connect() as database:
        assert read_served(database, "t", address, columns, ["k"]) == len(rows)
        served = database.execute("select k, t, n from t where __fault is null").fetchall()
    assert sorted(map(repr, served)) == wanted


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(bool)
VALUES = st.tuples(
    st.none() | TEXTS,
    st.none() | st.booleans(),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.dates(),
)
KINDS = "k int, t string, b boolean, n bigint, d date"


@pytest.mark.matrix
@settings(max_examples=4, phases=[Phase.explicit, Phase.generate])
@given(values=st.lists(VALUES, min_size=1, max_size=12))
def test_whatever_a_partition_holds_is_exact_for_each_reader(delta_views, values):
    delta = delta_views()
    rows = [(k, *each) for k, each in enumerate(values)]
    frame = delta.spark.createDataFrame(rows, KINDS)
    for number, columns in enumerate((["t", "b"], ["n"], ["d"]), 1):
        build(delta, number, frame, {"partition_by": columns})
        for found in by_each_reader(delta, stable(delta), "k, t, b, n, d"):
            assert found == sorted(map(repr, rows))


@pytest.fixture(scope="module")
def delta_views(spark, tmp_path_factory):
    return lambda: delta_bench(tmp_path_factory.mktemp("warehouse"), spark, "values_")


@pytest.mark.matrix
def test_readers_follow_generations_of_other_layouts(delta):
    frame = delta.spark.sql("select id k, id % 2 part, 'x' s from range(10)")
    layouts: list[dict[str, Any]] = [
        {},
        {"partition_by": ["part"]},
        {"partition_by": ["s"], "cluster_by": ["part"]},
        {"target_file_mb": 1},
    ]
    for number, options in enumerate(layouts, 1):
        build(delta, number, frame, options)
    sink = delta.sink(key=("k",))
    wanted = sorted(map(repr, map(tuple, frame.collect())))
    for number in (1, 2, 3, 4):
        sink.publish(number)
        found = by_each_reader(delta, stable(delta), "k, part, s")
        assert found == [wanted] * len(found)
        columns = layouts[number - 1].get("partition_by", [])
        assert DeltaTable(stable(delta)).metadata().partition_columns == columns
    sink.discard(2)
    assert sink.generations() == [1, 3, 4]
    assert not Path(stable(delta), "_generations", "000002").exists()


@pytest.mark.matrix
def test_a_file_that_a_partition_lost_is_missed(delta):
    frame = delta.spark.sql("select id k, id % 2 part from range(4)")
    build(delta, 1, frame, {"partition_by": ["part"]})
    sink, _ = build(delta, 2, frame, {"partition_by": ["part"]})
    next(Path(stable(delta), "_generations", "000001").rglob("*.parquet")).unlink()
    with pytest.raises(SinkError, match="lacks 1 of its files"):
        sink.publish(1)


def clustered(delta, monkeypatch):
    """Publish twenty thousand rows in files of about a tenth of them."""
    monkeypatch.setattr(arrange, "_MB", 20_000)
    frame = delta.spark.sql(
        "select id k, id % 1000 n, date_add(date'2020-01-01', cast(id % 100 as int)) d,"
        " lpad(cast(id % 777 as string), 4, '0') s, timestamp_micros(id) m from range(20000)"
    ).repartition(3)
    options = {"cluster_by": ["n", "d", "s", "m"], "target_file_mb": 1}
    build(delta, 1, frame, options)
    return adds_of(stable(delta))


def test_files_have_a_size_and_ranges_by_which_readers_skip_them(delta, monkeypatch):
    adds = clustered(delta, monkeypatch)
    assert 4 <= len(adds) <= 40
    told = [json.loads(add["stats"]) for add in adds]
    assert {frozenset(each["minValues"]) for each in told} == {frozenset("kdns")}
    ranges = sorted((each["minValues"]["n"], each["maxValues"]["n"]) for each in told)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 999
    assert all(one[1] <= other[0] for one, other in pairwise(ranges))
    table = DeltaTable(stable(delta))
    scanned = table.to_pyarrow_dataset(partitions=None).get_fragments(pc.field("n") == 500)
    assert len(list(scanned)) <= 2
    wheres = {"n = 500": 20, "s = '0007'": 26, "d = date'2020-03-01'": 200, "k = 19999": 1}
    engine = QueryBuilder().register("t", table)
    frame = delta.spark.read.format("delta").load(stable(delta))
    for where, rows in wheres.items():
        query = f"select count(*) n from t where {where}"
        assert pa.table(engine.execute(query).read_all())["n"].to_pylist() == [rows], where
        assert frame.where(where).count() == rows, where


@pytest.mark.matrix
def test_twin_false_bounds_lose_rows(delta, monkeypatch):
    """So the bounds are what readers skip by, and the test above would see wrong ones."""
    true = layout._bounds

    def false(footer, name, kind):
        found = true(footer, name, kind)
        return found and (found[0], found[0], found[2])

    monkeypatch.setattr(layout, "_bounds", false)
    clustered(delta, monkeypatch)
    frame = delta.spark.read.format("delta").load(stable(delta))
    assert frame.where("d = date'2020-03-01'").count() < 200


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("select 1 k, '' t", {"partition_by": ["t"]}, r'"t" holds an empty text'),
    ("select 1 k, '__HIVE_DEFAULT_PARTITION__' t", {"partition_by": ["t"]}, "take for null"),
    ("select 1 k, date_from_unix_date(2147483647) t", {"partition_by": ["t"]}, "years 1 to 9999"),
    ("select id k, id t from range(4)", {"partition_by": ["t"]}, "more than 3 values"),
]


@pytest.mark.parametrize(("query", "options", "reason"), REFUSED)
def test_a_value_that_no_partition_can_have_is_refused(delta, monkeypatch, query, options, reason):
    monkeypatch.setattr(arrange, "MOST_PARTITIONS", 3)
    sink, rows = delta.sink(key=("k",), options=options), delta.spark.sql(query)
    sink.open(1, rows.schema)
    with pytest.raises(SinkError, match=reason):
        sink.write(rows)
    assert delta_rows(stable(delta)) is None
    assert sink.generations() == []


TYPES = "select 1 k, float(1) f, array(1) a, 1.5 n, timestamp_micros(0) m"
COLUMNS: list[tuple[dict[str, Any], str]] = [
    ({"partition_by": ["none"]}, r'partition_by: "none" is not a column'),
    ({"cluster_by": ["none"]}, r'cluster_by: "none" is not a column'),
    ({"partition_by": ["f"]}, r'"f" is of type float'),
    ({"partition_by": ["a"]}, r'"a" is of type array<int>'),
    ({"partition_by": ["n"]}, r'"n" is of type decimal'),
    ({"cluster_by": ["a"]}, "no order in a file"),
    ({"partition_by": ["m"]}, r'"m" is of type timestamp'),
]


@pytest.mark.parametrize(("options", "reason"), COLUMNS)
def test_columns_that_cannot_be_it_are_refused_before_a_row_is_written(delta, options, reason):
    schema = delta.spark.sql(TYPES).schema
    with pytest.raises(SinkError, match=reason):
        delta.sink(key=("k",), options=options).open(1, schema)


def test_a_layout_is_written_whole_by_a_refresh(delta):
    sink = delta.sink(key=("k",), options={"cluster_by": ["k"]})
    rows = delta.spark.sql("select 1 k")
    why = sink.obstacle(Change(prior=1, gone=rows, keys=1, rows=rows))
    assert why is not None
    assert "says how its files are laid out" in why


def test_no_rows_are_a_table_with_partitions(delta):
    frame = delta.spark.sql("select id k, id n from range(0)")
    build(delta, 1, frame, {"partition_by": ["n"]})
    assert by_each_reader(delta, stable(delta), "k, n") == [[]] * 4
