"""Every snippet of docs/python.md runs, in its order, on a captured project."""

import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.captured_project import captured_database

pytestmark = [pytest.mark.services, pytest.mark.spark]
PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text("utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TABLES = """
CREATE TABLE flights (flight_id integer PRIMARY KEY, origin text, dest text, dep_delay integer);
INSERT INTO flights SELECT n, 'JFK', 'BOS', n FROM generate_series(1, 100) n
"""


VIEW = (
    "-- key: origin\n-- sinks: delta\nSELECT origin, count(*) AS n FROM flights GROUP BY origin\n"
)


def test_the_page_has_snippets():
    assert len(SNIPPETS) >= 6


@pytest.mark.matrix
def test_the_snippets_run(spark, stack, tmp_path, monkeypatch):
    with captured_database(stack, tmp_path, TABLES) as (project, _):
        project.capture()
        project.execute("UPDATE flights SET dep_delay = 99 WHERE flight_id = 17")
        project.capture()
        project.view("by_origin.sql", VIEW)
        monkeypatch.chdir(project.root)
        names: dict[str, Any] = {}
        for number, snippet in enumerate(SNIPPETS):
            exec(compile(snippet, f"docs/python.md, snippet {number}", "exec"), names)  # noqa: S102
        assert len(names["changes"]) == 2
        assert names["busiest"].to_pylist() == [{"origin": "JFK", "count": 100}]
        assert names["late"][0][0] in {99, 100}
        assert names["then"].row(17)["dep_delay"] == 17
        source = spark.read.format("changelog").options(project=str(project.root), table="flights")
        frame = source.load().toArrow().sort_by("flight_id")
        assert frame.equals(names["rows"].sort_by("flight_id"))
        then = names["spark"].sql("SELECT * FROM flights_then WHERE flight_id = 17").collect()
        assert [row.dep_delay for row in then] == [17]
        assert_prove_finds_what_a_hand_has_changed(names["view"])


def assert_prove_finds_what_a_hand_has_changed(view):
    table = DeltaTable(view.serves())
    table.update(updates={"n": "n + 1"}, predicate="origin = 'JFK'")
    found = view.prove()
    assert (found.verified, found.mismatches) == (False, 1)
    (difference,) = found.differences
    assert (difference.column, difference.expected, difference.served) == ("n", "100", "101")
    view.rebuild()
    assert view.prove().verified
    assert [each.state for each in view.generations()][-1] == "published"
