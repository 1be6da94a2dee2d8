"""Cases of views, up to the engines."""

from pathlib import Path
from typing import Any

from views.cases.file import parse_cases
from views.cases.run import SPARK, run_cases
from views.project.sql import parse_sql_view

CASES = """
[tables.t]
id = "numeric"
n = "integer"

[[case]]
name = "empty"
rows = []
"""


def first_engine(sql: str) -> str:
    """Return the name of what answers the case of a view first."""
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: id\n{sql}")
    no_session: Any = None
    (result,) = run_cases(no_session, [(spec, parse_cases(spec, "v.cases.toml", CASES))])
    return result.told[0].engine


def test_each_column_of_a_table_may_be_its_key():
    assert first_engine("SELECT id, n FROM t") == SPARK
    assert first_engine("SELECT id + 1 AS id, n FROM t GROUP BY id, n") == "case", "groups"
