"""DuckDB that runs the SQL of others: what it may not reach."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from changelog.runtime.closed_database import closed_database

ROOT = Path(__file__).parents[4]
OWN = {
    "changelog/runtime/closed_database.py",
    "changelog/publish/duckdb.py",  # the user's file, shut as soon as it is open
    "replay/api/frames.py",  # for the user's own program: no SQL of others runs there
}
REACHING = {
    "a file read": "SELECT * FROM read_text('{place}')",
    "a file as a table": "SELECT * FROM '{place}'",
    "a folder": "SELECT * FROM glob('{place}*')",
    "a file written": "COPY (SELECT 1) TO '{place}.out'",
    "a database": "ATTACH '{place}.db'",
    "an export": "EXPORT DATABASE '{place}.d'",
    "the network": "SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')",
    "an extension": "INSTALL httpfs",
    "an extension that is there": "LOAD httpfs",
    "a variable of Python": "SELECT * FROM hidden",
    "its own settings": "SET enable_external_access = true",
    "its folders": "SET allowed_directories = ['/']",
    "a way out of them": "SELECT * FROM read_text('{place.parent}/allowed/../{place.name}')",
}


@pytest.mark.parametrize("case", REACHING)
def test_the_sql_of_others_reaches_nothing(tmp_path, case):
    place = tmp_path / "secret.csv"
    place.write_text("canary\n")
    hidden = duckdb.connect().sql("SELECT 'canary' AS x").to_arrow_table()
    with closed_database(folders=[tmp_path / "allowed"]) as database:
        with pytest.raises(duckdb.Error) as caught:
            database.execute(REACHING[case].format(place=place)).fetchall()
        assert "canary" not in str(caught.value)
    assert hidden.num_rows == 1
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


def test_what_does_not_fit_goes_to_its_folder_all_the_same(tmp_path):
    settings = {"memory_limit": "100MB", "temp_directory": str(tmp_path / "spill"), "threads": "1"}
    with closed_database(settings) as database:
        database.execute("CREATE TABLE t AS SELECT i, md5(i::VARCHAR) m FROM range(3000000) r(i)")
        assert any((tmp_path / "spill").iterdir())
        assert database.execute("SELECT count(*) FROM t").fetchone() == (3_000_000,)


def test_folders_that_are_named_are_open_and_no_others(tmp_path):
    with closed_database(folders=[tmp_path / "own"]) as database:
        (tmp_path / "own").mkdir()
        own, other = tmp_path / "own" / "rows.parquet", tmp_path / "rows.parquet"
        database.execute(f"COPY (SELECT 7 AS n) TO '{own}' (FORMAT parquet)")
        assert database.execute(f"FROM read_parquet('{own}')").fetchall() == [(7,)]
        with pytest.raises(duckdb.PermissionException):
            database.execute(f"COPY (SELECT 7 AS n) TO '{other}' (FORMAT parquet)")


def test_no_progress_of_long_queries_goes_to_stdout(tmp_path):
    """Where results go: DuckDB 2 writes a bar there from the third second on. Twin: by itself."""
    of_long = "SELECT sum(hash(a.range + b.range)) FROM range(100000) a, range(100000) b"
    program = f"""
import sys, threading
import duckdb
from changelog.runtime.closed_database import closed_database
database = closed_database() if sys.argv[1:] else duckdb.connect()
threading.Timer(4.0, database.interrupt).start()
try:
    database.execute({of_long!r})
except duckdb.InterruptException:
    print("interrupted")
"""
    for words, is_quiet in ((["closed"], True), ([], False)):
        ran = subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert "interrupted" in ran.stdout
        assert (ran.stdout.strip() == "interrupted") is is_quiet, ran.stdout


def test_no_other_module_opens_a_database():
    opening = {
        str(path.relative_to(ROOT))
        for package in ("changelog", "replay", "views")
        for path in (ROOT / package).rglob("*.py")
        if "duckdb.connect(" in path.read_text("utf-8")
    }
    assert opening == OWN
