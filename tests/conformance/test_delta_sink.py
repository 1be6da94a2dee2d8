"""What only the Delta sink promises: any Delta reader, exact values, files that stay."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from changelog.contract.base.errors import SinkError
from tests.conformance.conftest import delta_rows
from tests.support.matrix import first
from tests.support.small_disk import small_disk
from views.sinks.base import SinkSettings
from views.sinks.delta import sink as delta_module
from views.sinks.make import make_sink

pytestmark = pytest.mark.spark

EVERY_TYPE = """
select 1 k, true b, cast(1 as tinyint) i1, cast(2 as smallint) i2, 9223372036854775807 i8,
  float(0.1) f, double('NaN') d, cast('-0.0000001' as decimal(38,10)) n, 'é' s, X'00ff' x,
  date'0001-01-01' day, timestamp'1600-01-01 00:00:00.000001Z' t,
  timestamp_ntz'2500-03-10 02:30:00' z, array(1, null) a,
  named_struct('p', array(1.5), 'q', cast(null as int)) st, map('m', 1) m, cast(null as string) v
union all select 2, false, cast(0 as tinyint), cast(0 as smallint), 0, float(0), 0D, 0BD, '',
  X'', date_from_unix_date(2147483647),
  timestamp_micros(9223372036854775807),
  cast(timestamp_micros(9223372036854775807) as timestamp_ntz), array(), null, null, 'x'
union all select 3, null, null, null, null, null, null, null, null, null,
  date_from_unix_date(-2147483648), timestamp_micros(-9223372036854775807 - 1),
  cast(timestamp_micros(-9223372036854775807 - 1) as timestamp_ntz), null, null, null, null
"""


def publish(bench, number, rows, key=("k",)):
    sink = bench.sink(key=key)
    sink.open(number, rows.schema)
    sink.write(rows)
    sink.seal()
    sink.publish(number)
    return sink


def stable(bench) -> str:
    return f"{bench.settings.warehouse}/{bench.view}"


@pytest.mark.matrix
def test_every_type_is_read_back_exactly_by_each_reader(delta):
    """Three readers: deltalake's engine, DuckDB over it, Spark."""
    rows = delta.spark.sql(EVERY_TYPE)
    before = delta.spark.conf.get("spark.sql.parquet.outputTimestampType")
    publish(delta, 1, rows)
    assert delta.spark.conf.get("spark.sql.parquet.outputTimestampType") == before
    engine = QueryBuilder().register("v", DeltaTable(stable(delta)))
    table = pa.table(engine.execute("select * from v order by k").read_all())
    first = table.slice(0, 1).drop_columns(["d", "t", "z", "day"]).to_pylist()[0]
    assert first == {
        "k": 1, "b": True, "i1": 1, "i2": 2, "i8": 2**63 - 1, "f": pytest.approx(0.1),
        "n": decimal.Decimal("-0.0000001000"), "s": "é", "x": b"\x00\xff", "a": [1, None],
        "st": {"p": [decimal.Decimal("1.5")], "q": None}, "m": [("m", 1)], "v": None,
    }  # fmt: skip
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    early = dt.datetime(1600, 1, 1, microsecond=1, tzinfo=dt.UTC) - epoch
    late = dt.datetime(2500, 3, 10, 2, 30, tzinfo=dt.UTC) - epoch
    micros = [span // dt.timedelta(microseconds=1) for span in (early, late)]
    ends = [2**63 - 1, -(2**63)]
    assert table["t"].cast(pa.int64()).to_pylist() == [micros[0], *ends]
    assert table["z"].cast(pa.int64()).to_pylist() == [micros[1], *ends]
    assert table["day"].cast(pa.int32()).to_pylist() == [-719162, 2**31 - 1, -(2**31)]
    connection = duckdb.connect()
    connection.register("served", table)
    counts: Any = connection.execute("select count(*), count(*) filter (isnan(d)) from served")
    assert counts.fetchall() == [(3, 1)]
    read = delta.spark.read.format("delta").load(stable(delta))
    texts = [frame.withColumn("m", F.to_json("m")) for frame in (read, rows)]
    assert texts[0].exceptAll(texts[1]).count() == texts[1].exceptAll(texts[0]).count() == 0
    assert read.count() == 3
    assert read.where("t > timestamp'2019-01-01 00:00:00Z'").count() == 1


@pytest.mark.matrix
def test_generations_may_differ_in_columns_and_table_features(delta):
    plain, moment = "select 1 k, 'a' name", "select 2 k, timestamp_ntz'2020-01-01 00:00:00' z"
    sink = publish(delta, 1, delta.spark.sql(plain))
    assert DeltaTable(stable(delta)).protocol().min_reader_version == 1
    publish(delta, 2, delta.spark.sql(moment))
    assert DeltaTable(stable(delta)).protocol().reader_features == ["timestampNtz"]
    assert delta_rows(stable(delta)) == [{"k": 2, "z": dt.datetime.fromisoformat("2020-01-01")}]
    sink.publish(1)
    assert delta_rows(stable(delta)) == [{"k": 1, "name": "a"}]
    found = delta.spark.read.format("delta").load(stable(delta)).collect()
    assert [row.asDict() for row in found] == [{"k": 1, "name": "a"}]


def test_publishing_moves_and_copies_no_file(delta):
    publish(delta, 1, delta.spark.range(1000).withColumnRenamed("id", "k"))
    files = sorted(Path(stable(delta)).rglob("*.parquet"))
    assert files
    assert all("_generations" in str(file) for file in files)
    publish(delta, 2, delta.spark.range(10).withColumnRenamed("id", "k"))
    assert set(files) <= set(Path(stable(delta)).rglob("*.parquet"))


@pytest.mark.matrix
def test_vacuum_keeps_every_generation(delta):
    sink = publish(delta, 1, delta.spark.sql("select 1 k"))
    publish(delta, 2, delta.spark.sql("select 2 k"))
    files = sorted(Path(stable(delta)).rglob("*.parquet"))
    for full in (True, False):
        DeltaTable(stable(delta)).vacuum(dry_run=False, full=full)
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # Spark's 10,000 tasks for listing take minutes here.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    for name, value in settings.items():
        delta.spark.conf.set(name, value)
    delta.spark.sql(f"VACUUM delta.`{stable(delta)}` RETAIN 0 HOURS")
    for name in settings:
        delta.spark.conf.unset(name)
    assert sorted(Path(stable(delta)).rglob("*.parquet")) == files
    sink.publish(1)
    assert delta_rows(stable(delta)) == [{"k": 1}]


def test_a_generation_that_lost_a_file_is_not_published(delta):
    sink = publish(delta, 1, delta.spark.sql("select 1 k"))
    publish(delta, 2, delta.spark.sql("select 2 k"))
    next(Path(stable(delta), "_generations", "000001").glob("*.parquet")).unlink()
    with pytest.raises(SinkError, match="lacks 1 of its files"):
        sink.publish(1)
    assert delta_rows(stable(delta)) == [{"k": 2}]


def test_a_removal_that_was_killed_does_not_look_whole(delta):
    publish(delta, 1, delta.spark.sql("select 1 k"))
    sink = publish(delta, 2, delta.spark.sql("select 2 k"))
    sink._files.remove(f"{stable(delta)}/_generations/000001/_delta_log")
    with pytest.raises(SinkError, match="not sealed"):
        sink.publish(1)
    assert sink.generations() == [1, 2]
    sink.discard(1)
    assert sink.generations() == [2]


def test_a_drop_that_was_killed_is_ended_by_the_next(delta):
    sink = publish(delta, 1, delta.spark.sql("select 1 k"))
    log = Path(stable(delta)) / "_delta_log" / f"{0:020d}.json"
    log.write_text("{", encoding="utf-8")  # what is left cannot be read as a table
    with pytest.raises(SinkError):
        sink.published()
    sink.drop()
    assert not Path(stable(delta)).exists()


def test_a_drop_leaves_what_somebody_else_put_in_the_folder(delta):
    sink = publish(delta, 1, delta.spark.sql("select 1 k"))
    note = Path(stable(delta)) / "note.txt"
    note.write_text("mine", encoding="utf-8")
    sink.drop()
    assert [path.name for path in Path(stable(delta)).iterdir()] == ["note.txt"]


def test_a_table_of_somebody_else_is_not_touched(delta):
    write_deltalake(stable(delta), pa.table({"k": [5]}))
    sink = delta.sink(key=("k",))
    schema = delta.spark.sql("select 1 k").schema
    for act in (lambda: sink.open(1, schema), sink.published, sink.drop):
        with pytest.raises(SinkError, match="not published from here"):
            act()
    assert delta_rows(stable(delta)) == [{"k": 5}]


def test_column_names_that_need_column_mapping_are_refused(delta):
    with pytest.raises(SinkError, match=r'"two words".*does not store'):
        delta.sink(key=("k",)).open(1, delta.spark.sql("select 1 k, 2 `two words`").schema)


FEATURES = [("columnMapping.mode", "name"), ("enableDeletionVectors", "true")]


@pytest.mark.parametrize(("setting", "value"), FEATURES)
def test_tables_that_some_readers_misread_are_never_sealed(delta, setting, value):
    sink, rows = delta.sink(key=("k",)), delta.spark.sql("select 1 k")
    sink.open(1, rows.schema)
    sink.write(rows)
    place = f"{stable(delta)}/_generations/000001"
    delta.spark.sql(
        f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.{setting}' = '{value}')"
    )
    with pytest.raises(SinkError, match="some readers lack"):
        sink.seal()
    assert delta_rows(stable(delta)) is None


@pytest.mark.parametrize(("setting", "value"), FEATURES)
def test_what_a_session_gives_new_tables_is_not_for_ours(delta, setting, value):
    name = f"spark.databricks.delta.properties.defaults.{setting}"
    delta.spark.conf.set(name, value)
    try:
        publish(delta, 1, delta.spark.sql("select 1 k"))
    finally:
        delta.spark.conf.unset(name)
    assert DeltaTable(stable(delta)).protocol().min_reader_version == 1


@pytest.mark.matrix
@pytest.mark.parametrize("rows", first(1, ["values (1), (1)", "values (1), (cast(null as int))"]))
def test_spark_counts_the_keys_of_many_rows(delta, monkeypatch, rows):
    monkeypatch.setattr(delta_module, "COUNT_HERE", 0)
    with pytest.raises(SinkError, match=r"share one key \(k=1\)|null in its key"):
        publish(delta, 1, delta.spark.sql(f"select * from {rows} as t(k)"))
    publish(delta, 2, delta.spark.sql("select 1 k"))


def test_the_errors_of_a_query_are_not_the_sinks(delta):
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        publish(delta, 1, delta.spark.range(2).selectExpr("id k", "1 / id x"))


@pytest.fixture
def full_disk(tmp_path):
    """A disk of 2 MiB, where this machine lets us mount one."""
    with small_disk(tmp_path / "disk", 2048) as made:
        yield made.place


def test_a_full_disk_is_said_and_publishes_nothing(delta, full_disk):
    settings = SinkSettings(warehouse=str(full_disk))
    sink = make_sink("delta", view=delta.view, key=("k",), settings=settings, spark=delta.spark)
    small = delta.spark.sql("select 1 k, 'a' s")
    sink.open(1, small.schema)
    sink.write(small)
    sink.seal()
    sink.publish(1)
    big = delta.spark.range(200_000).selectExpr(
        "cast(id as int) k", "sha2(cast(id as string), 256) s"
    )
    sink.open(2, big.schema)
    with pytest.raises(SinkError, match="no space left"):
        sink.write(big)
    assert delta_rows(f"{full_disk}/{delta.view}") == [{"k": 1, "s": "a"}]
    assert sink.published() == 1
    sink.discard(2)
    assert sink.generations() == [1]
