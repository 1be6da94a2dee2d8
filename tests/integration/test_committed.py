"""Delta tables read as files: all rows that their logs know, and no others."""

import shutil

import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake.exceptions import TableNotFoundError

from replay.committed import committed

SCHEMA = "id bigint, moment timestamp, name string"


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


@pytest.mark.parametrize("name", ["a b", "a{b}", "a[c]*"])
def test_signs_in_a_folders_name_stand_for_themselves(spark, write, name) -> None:
    assert read(spark, write(name), write("plain")) == sorted([*range(10), *range(10)])


def test_rows_that_are_deleted_in_their_files_are_not_read(spark, write) -> None:
    place = write("marked", **{"delta.enableDeletionVectors": "true"})
    SparkTable.forPath(spark, place).delete("id < 4")
    assert read(spark, place) == list(range(4, 10))
    assert read(spark, write("plain", 2), place) == [0, 1, *range(4, 10)]


def test_columns_under_other_names_in_their_files_are_read(spark, write) -> None:
    place = write("mapped", **{"delta.columnMapping.mode": "name"})
    assert read(spark, place) == list(range(10))


def test_a_file_that_is_gone_is_an_error_whatever_the_session_says(
    spark, write, tmp_path, monkeypatch
) -> None:
    place, setting = write("holed"), "spark.sql.files.ignoreMissingFiles"
    frame = committed(spark, [place], SCHEMA)
    with monkeypatch.context() as defect:
        defect.setattr("replay.committed._WHOLE", {})
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
