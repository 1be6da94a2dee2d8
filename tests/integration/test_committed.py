"""Delta tables read as files: all rows that their logs know, and no others."""

import shutil

import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from replay.store import committed as committed_module
from replay.store.committed import committed
from tests.support.matrix import first

EVERY_TYPE = """
select 1 k, true b, 9223372036854775807 i, double('NaN') d, cast('-0.1' as decimal(38, 10)) n,
  'é' s, X'00ff' x, date'0001-01-01' day, timestamp'1600-01-01 00:00:00.000001Z' t,
  timestamp_ntz'2500-03-10 02:30:00' z, array(1, null) a, map('m', 1) m, cast('c' as char(3)) c,
  named_struct('p', array(1.5), 'q', cast(null as int)) st
union all select 2, null, null, null, null, null, null, null,
  timestamp_micros(9223372036854775807), null, null, null, 'd', null
"""
SCHEMA = "id bigint, moment timestamp, name string"


@pytest.mark.parametrize("storage", first(1, ["disk", "objects"]))
def test_what_is_written_is_read_back_exactly(spark, tmp_path, monkeypatch, storage) -> None:
    """A table as any reader sees it: every row, all types, a log of one commit."""
    monkeypatch.setattr(committed_module, "_renames_cheaply", lambda _: storage == "disk")
    place = str(tmp_path / "a table {of} [signs]")
    frame = spark.sql(EVERY_TYPE).repartition(3)
    committed_module.write(frame, place, metadata={"frontier": "0/1"})
    table = DeltaTable(place)
    assert (table.version(), table.count()) == (0, 2)
    assert table.protocol().reader_features == ["timestampNtz"]
    assert all(field.nullable for field in table.schema().fields)
    assert "0/1" in str(table.history(1))
    again = spark.read.format("delta").load(place)
    assert again.schema.simpleString() == frame.schema.simpleString()
    texts = [each.withColumn("m", F.to_json("m")) for each in (again, frame)]
    assert texts[0].exceptAll(texts[1]).count() == texts[1].exceptAll(texts[0]).count() == 0
    with pytest.raises(Exception, match=r"PATH_(ALREADY_)?EXISTS"):
        committed_module.write(frame, place)


def test_a_write_that_fails_leaves_no_table(spark, tmp_path) -> None:
    frame = spark.range(10).selectExpr("assert_true(id < 9, 'seeded') x", "id").repartition(2)
    with pytest.raises(Exception, match="seeded"):
        committed_module.write(frame, str(tmp_path / "broken"))
    assert not DeltaTable.is_deltatable(str(tmp_path / "broken"))


@pytest.fixture
def write(spark, tmp_path):
    def written(name, rows=10, **options):
        place = str(tmp_path / name)
        frame = spark.range(rows).selectExpr("id", "timestamp_micros(id) moment", "'x' name")
        frame.repartition(3).write.format("delta").options(**options).save(place)
        return place

    return written


def read(spark, *places):
    frame = committed(spark, places, SCHEMA)
    assert frame.dtypes == [("id", "bigint"), ("moment", "timestamp"), ("name", "string")]
    return sorted(row.id for row in frame.collect())


def test_all_rows_of_several_tables_are_read(spark, write) -> None:
    empty, one, other = write("empty", 0), write("one"), write("other", 5)
    assert read(spark, one) == list(range(10))
    assert read(spark, empty) == []
    assert read(spark, empty, one, other) == sorted([*range(10), *range(5)])


def test_files_that_the_log_does_not_name_are_not_read(spark, write, tmp_path) -> None:
    place = write("twice")
    first = next((tmp_path / "twice").glob("part-00000-*.parquet"))
    shutil.copy(first, first.with_name("part-00000-again.snappy.parquet"))
    assert read(spark, place) == list(range(10))
    assert spark.read.schema(SCHEMA).parquet(place).count() > 10  # what reading the folder gives


@pytest.mark.parametrize("name", first(1, ["a[c]*", "a{b}", "a b"]))
def test_signs_in_a_folders_name_stand_for_themselves(spark, write, name) -> None:
    assert read(spark, write(name), write("plain")) == sorted([*range(10), *range(10)])


@pytest.mark.matrix
def test_rows_that_are_deleted_in_their_files_are_not_read(spark, write) -> None:
    place = write("marked", **{"delta.enableDeletionVectors": "true"})
    SparkTable.forPath(spark, place).delete("id < 4")
    assert read(spark, place) == list(range(4, 10))
    assert read(spark, write("plain", 2), place) == [0, 1, *range(4, 10)]


@pytest.mark.matrix
def test_columns_under_other_names_in_their_files_are_read(spark, write) -> None:
    place = write("mapped", **{"delta.columnMapping.mode": "name"})
    assert read(spark, place) == list(range(10))


def test_a_file_that_is_gone_is_an_error_whatever_the_session_says(
    spark, write, tmp_path, monkeypatch
) -> None:
    place, setting = write("holed"), "spark.sql.files.ignoreMissingFiles"
    frame = committed(spark, [place], SCHEMA)
    with monkeypatch.context() as defect:
        defect.setattr("replay.store.committed._WHOLE", {})
        lenient = committed(spark, [place], SCHEMA)
    next((tmp_path / "holed").glob("part-*.parquet")).unlink()
    spark.conf.set(setting, "true")
    try:
        assert lenient.count() < 10
        with pytest.raises(Exception, match=r"does not exist|FILE_NOT_EXIST"):
            frame.collect()
        with pytest.raises(Exception, match=r"does not exist|PATH_NOT_FOUND"):
            committed(spark, [place], SCHEMA)
    finally:
        spark.conf.unset(setting)


def test_a_place_without_a_table_is_told(spark, tmp_path) -> None:
    with pytest.raises(TableNotFoundError):
        committed(spark, [str(tmp_path / "nothing")], SCHEMA)
