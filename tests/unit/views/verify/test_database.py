"""DuckDB for a user's SQL: nothing outside is in reach."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from views.verify.values.database import closed_database


@pytest.mark.parametrize(
    "statement",
    [
        "FROM read_text('{file}')",
        "FROM '{file}'",
        "FROM read_csv('{file}')",
        "COPY (SELECT 1) TO '{file}.csv'",
        "ATTACH '{file}.db'",
        "EXPORT DATABASE '{file}.folder'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "FROM read_text('{allowed}/../{name}')",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
    ],
)
def test_no_statement_reaches_a_file_or_an_extension(tmp_path, statement):
    file, allowed = tmp_path / "secret.csv", tmp_path / "allowed"
    file.write_text("a,b")
    allowed.mkdir()
    with closed_database(folders=[allowed]) as database, pytest.raises(duckdb.Error):
        database.execute(statement.format(file=file, allowed=allowed, name=file.name)).fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["allowed", "secret.csv"]


def test_the_folders_that_are_allowed_and_tables_of_arrow_are_read(tmp_path):
    with closed_database(folders=[tmp_path]) as database:
        database.register("rows", pa.table({"a": [1, 2]}))
        database.execute(f"COPY (FROM rows) TO '{tmp_path}/rows.parquet'")
        assert database.execute(f"FROM '{tmp_path}/rows.parquet'").fetchall() == [(1,), (2,)]


def test_what_does_not_fit_into_memory_still_spills(tmp_path):
    settings = {"memory_limit": "50MB", "threads": "1", "temp_directory": str(tmp_path / "spill")}
    with closed_database(settings) as database:
        database.execute(
            "CREATE TABLE t AS "
            "SELECT md5(i::VARCHAR) a, md5((-i)::VARCHAR) b FROM range(1_000_000) r(i)"
        )
        query = "SELECT count(*) FROM (SELECT DISTINCT a, b FROM t ORDER BY b, a)"
        assert database.execute(query).fetchone() == (1_000_000,)
