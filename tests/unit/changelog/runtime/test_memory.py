"""Memory of a process: modules that it does not load, and pages that it returns."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest

from changelog.runtime.closed_database import closed_database, return_freed
from tests.support.ended_database import end

SCRIPT = """
import sys
from changelog.runtime.process.memory import keep_little
if sys.argv[1] == "little":
    keep_little()
import pyarrow as pa
import pyarrow.compute
numbers = pa.table({"n": [1, None], "t": pa.array(["a", "b"])})
print("pandas" in sys.modules, pa.compute.sum(numbers["n"]).as_py())
import pandas as pd
print(numbers.to_pandas()["t"].tolist(), pa.array(pd.Series([1.0, None])).null_count)
"""


def run(way: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, way], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_arrow_leaves_pandas_alone_until_somebody_wants_it() -> None:
    assert run("little") == ["False 1", "['a', 'b'] 1"]


def test_twin_without_it_arrow_imports_pandas() -> None:
    assert run("as it is")[0] == "True 1"


MEASURED = """
import re, sys
from pathlib import Path

def mb(kind):
    text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    return int(re.search(rf"^{kind}:\\s+(\\d+)", text, re.MULTILINE)[1]) >> 10
"""
CODE = f"""{MEASURED}
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from changelog.runtime.process.memory import leave_code

def answers():
    numbers = pa.table({{"n": list(range(1000)), "t": ["a", "b"] * 500}})
    rows = duckdb.sql("SELECT t, sum(n)::BIGINT FROM numbers GROUP BY t ORDER BY t").fetchall()
    return rows, pc.sum(numbers["n"]).as_py(), re.sub("a", "b", "banana")

before, first = answers(), mb("Rss") - mb("Anonymous")
leave_code()
left = mb("Rss") - mb("Anonymous")
try:
    duckdb.sql("SELECT no_function(1)")  # what C++ throws goes through code that was left
except duckdb.Error:
    pass
print(left < first / 2 or (first, left), answers() == before)
"""
FREED = f"""{MEASURED}
from changelog.runtime.closed_database import closed_database, return_freed

def limit():
    return database.execute("SELECT current_setting('memory_limit')").fetchall()

database = closed_database({{"memory_limit": "500MB"}})
database.execute("CREATE TABLE t AS SELECT i, md5(i::VARCHAR) m FROM range(3000000) r(i)")
database.execute("DROP TABLE t")
before, has = limit(), mb("Anonymous")
if sys.argv[1] == "returned":
    return_freed(database, "500MB")
database.execute("SELECT 1").fetchall()
print(has - mb("Anonymous") > 30 or (has, mb("Anonymous")), limit() == before)
"""


def printed(script: str, *words: str) -> str:
    """Run a script in a process of its own; return its output."""
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_code_that_is_left_is_out_of_memory_and_runs_again() -> None:
    assert printed(CODE) == "True True"


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_duckdb_returns_what_it_has_freed_and_keeps_its_limit() -> None:
    assert printed(FREED, "returned") == "True True"


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_twin_by_itself_duckdb_keeps_it() -> None:
    assert printed(FREED, "kept") != "True True"


def test_a_database_that_has_ended_returns_nothing_and_says_nothing():
    database = closed_database()
    with pytest.raises(duckdb.InternalException):
        end(database)
    with pytest.raises(duckdb.FatalException):
        database.execute("SELECT 1")
    return_freed(database, "500MB")
