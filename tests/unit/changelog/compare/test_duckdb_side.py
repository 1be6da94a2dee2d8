"""Copies that DuckDB reads: files that are overwritten meanwhile are read again, or refused."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager

import duckdb
import pytest

from changelog.compare import duckdb_side
from changelog.compare.duckdb_side import DuckdbFileSide, ParquetSide
from changelog.contract.base.errors import ConfigurationError, SinkError, VerdictError


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(duckdb_side, "_PAUSES_S", (0.1, 0.2, 0.4))


def parquet(file, rows):
    duckdb.connect().execute(f"COPY (SELECT 1 AS id FROM range({rows})) TO '{file}'")


@contextmanager
def half_written(file, times):
    """Overwrite a file with incomplete contents again and again, and then with all of it."""
    whole = file.read_bytes()
    file.write_bytes(whole[:9])
    done = threading.Event()

    def overwrite():
        count = 0
        while not done.is_set() and count < times:
            count += 1
            file.write_bytes(whole[: 9 + count % 50])
            time.sleep(0.01)
        file.write_bytes(whole)

    writer = threading.Thread(target=overwrite)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def count(side):
    return side._fetched(f"SELECT count(*) FROM {side.relation}")


def test_a_file_that_is_overwritten_for_a_moment_is_read_again(tmp_path):
    file = tmp_path / "a.parquet"
    parquet(file, 7)
    with closing(ParquetSide(str(file))) as side, half_written(file, times=15):
        assert count(side) == [(7,)]


def test_a_file_that_is_being_written_at_the_start_is_waited_for(tmp_path):
    file = tmp_path / "a.parquet"
    parquet(file, 7)
    with half_written(file, times=15), closing(ParquetSide(str(file))) as side:
        assert count(side) == [(7,)]


def test_a_file_that_is_overwritten_all_the_time_is_not_compared(tmp_path):
    file = tmp_path / "a.parquet"
    parquet(file, 7)
    with (
        closing(ParquetSide(str(file))) as side,
        half_written(file, times=10_000),
        pytest.raises(VerdictError, match="overwritten while it was read, 3 times in a row"),
    ):
        count(side)


def test_a_broken_file_is_no_overwritten_one(tmp_path):
    file = tmp_path / "a.parquet"
    file.write_bytes(b"not Parquet")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ParquetSide(str(file))


def test_an_error_of_the_query_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(duckdb_side, "_PAUSES_S", (0.1, 100.0))
    file = tmp_path / "a.parquet"
    parquet(file, 7)
    with closing(ParquetSide(str(file))) as side, pytest.raises(SinkError, match="nothing"):
        side._fetched(f"SELECT nothing FROM {side.relation}")


def test_a_duckdb_file_that_is_replaced_meanwhile_is_read_again(tmp_path):
    file = tmp_path / "copy.duckdb"
    with closing(duckdb.connect(str(file))) as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS id")
    with closing(DuckdbFileSide(str(file), "t")) as side, half_written(file, times=15):
        assert count(side) == [(1,)]
