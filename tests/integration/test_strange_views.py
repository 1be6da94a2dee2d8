"""Views that Spark hardly reads anything for, or fails at: each is its own, and says why in words.

One database and one run: what a view does must not show in another one.
"""

from __future__ import annotations

import json
import re
import uuid
from functools import partial

import pytest

from tests.support.captured_project import captured_database, rebuild_view
from tests.support.ended_database import end
from views.verify import view as verifier
from views.verify.served import served

pytestmark = [pytest.mark.services, pytest.mark.spark]

SOURCE = """
CREATE TABLE c (id integer PRIMARY KEY, name text);
CREATE TABLE o (id integer PRIMARY KEY, c_id integer, word text, big bigint, day date);
CREATE TABLE hot (id integer PRIMARY KEY, day date, at timestamp);
INSERT INTO hot VALUES (1, 'infinity', 'infinity'), (2, '2024-01-01', '-infinity');
CREATE TABLE ends (id integer PRIMARY KEY, day date, at timestamp, tz timestamptz);
INSERT INTO ends VALUES (1, 'infinity', 'infinity', 'infinity'), (3, '12024-01-01', '12024-01-01',
    '12024-01-01'), (2, '-infinity', '-infinity', '-infinity');
INSERT INTO o SELECT g, g % 10, 'w' || g, 9223372036854775807, '2020-02-29'
FROM generate_series(1, 1000) g;
"""
PRUNED = {
    "inner_join": "SELECT o.id, c.name FROM o JOIN c ON c.id = o.c_id",
    "left_join": "SELECT o.id, c.name FROM o LEFT JOIN c ON c.id = o.c_id",
    "right_join": "SELECT c.id, o.word FROM o RIGHT JOIN c ON c.id = o.c_id",
    "contradiction": "SELECT id, word FROM o WHERE 1 = 0",
    "half_a_union": "SELECT id, word FROM o UNION ALL SELECT id, word FROM o WHERE false",
    "of_nothing": "SELECT id, count(*) AS times FROM c GROUP BY id",
    "in_nothing": "SELECT id, word FROM o WHERE c_id IN (SELECT id FROM c)",
    "no_row_at_all": "SELECT id, word FROM o ORDER BY id LIMIT 0",
}
FAILING = {
    "overflows": ("big + 1 AS more", 'column "more" (big + 1): a number is out of the range'),
    "sums": (
        "sum(big) OVER () AS total",
        'column "total" (sum(big)): a number is out of the range',
    ),
    "divides": ("id / (c_id - 5) AS part", 'column "part" (id / (c_id - 5)): division by zero'),
    "no_number": (
        "cast(word AS int) AS number",
        "column \"number\" (cast(word AS int)): 'w1' is no value of type INT",
    ),
    "several": (
        "(SELECT word FROM o) AS part",
        'column "part" (select word from o): a query in brackets gives several rows where one',
    ),
}
FRAME = "BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW"
INFINITE = "a date, timestamp or interval is infinite or out of range"
HOT = {
    "as_moment": ("SELECT id, day = at AS same FROM hot", f'column "same" (day = at): {INFINITE}'),
    "joined": ("SELECT a.id FROM hot a JOIN hot b ON a.day = b.at", f"day = at: {INFINITE}"),
    "in_a_range": (
        f"SELECT id, count(*) OVER (ORDER BY at RANGE {FRAME}) AS n FROM hot",
        'column "n" (count(*) over (order by at range between',
    ),
}


ENDS = {"days": "day", "moments": "at", "zoned": "tz", "lists": "array(day) AS l, array(tz) AS m"}


@pytest.fixture(scope="module")
def shared(stack, spark, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("strange") / "shop", SOURCE) as (it, _):
        yield it


@pytest.fixture
def project(shared):
    for path in (shared.root / "views").glob("*"):
        path.unlink()
    return shared


@pytest.fixture
def run(capsys, monkeypatch, project):
    return partial(rebuild_view, capsys, monkeypatch, project)


@pytest.mark.matrix
def test_what_spark_does_not_read_and_what_it_fails_at_leaves_the_other_views_alone(project, run):
    """The failing views come first by name: what they counted of the shared tables is no number."""
    failing = {name: f"SELECT id, {value} FROM o" for name, (value, _) in FAILING.items()}
    failing |= {name: sql for name, (sql, _) in HOT.items()}
    said = {name: words for name, (_, words) in (FAILING | HOT).items()}
    for number, (name, sql) in enumerate({**failing, **PRUNED}.items()):
        sinks = "delta, search, cache" if name == "contradiction" else "delta"
        project.view(f"v{number:02d}_{name}.sql", f"-- key: id\n-- sinks: {sinks}\n{sql}\n")
    ran = run("--all", "--json")
    results = {each["view"][4:]: each for each in ran.results}
    assert {name: each["published"] for name, each in results.items()} == {
        **dict.fromkeys(said, False),
        **dict.fromkeys(PRUNED, True),
    }, ran.err
    assert all(results[name]["verified"] for name in PRUNED)
    assert {name: results[name]["rows"] for name in PRUNED} == {
        name: 1000 if name in {"left_join", "half_a_union"} else 0 for name in PRUNED
    }
    for name, each in results.items():
        records = {"of_nothing": 0}.get(name, 2 if name in HOT else 1000)
        assert each["records_read"] in {None, records}
    for name, words in said.items():
        # Which row is met first depends on Spark's tasks.
        assert words in re.sub(r"'w\d+'", "'w1'", results[name]["error"])
        assert " | hint: " in results[name]["error"]
    assert "Traceback" not in ran.err
    assert "at org.apache.spark" not in ran.err
    # The same from checkpoints: a layer of a tombstone alone.
    project.execute("INSERT INTO c VALUES (1, 'one'); DELETE FROM c")
    project.capture()
    again = run("--all", "--json", "--refresh")
    results = {each["view"][4:]: each for each in again.results}
    assert [name for name, each in results.items() if each["published"]] == list(PRUNED), again.err


@pytest.mark.matrix
def test_names_keep_their_case_and_the_key_is_written_in_either(project, run, stack):
    settings = project.root / "changelog.toml"
    before = settings.read_text(encoding="utf-8")
    url = f"sinks.postgres.url = {json.dumps(stack.endpoints().postgres)}\n"
    settings.write_text(url + before, encoding="utf-8")
    named = f"v{uuid.uuid4().hex[:12]}"
    views = {
        "quoted": (
            '"SEGMENT"',
            "delta",
            'SELECT id AS "SEGMENT", word AS Word FROM o WHERE id < 5',
        ),
        "upper": (
            "id",
            "delta, search, cache, topic",
            "SELECT ID, word AS WORD FROM o WHERE id < 5",
        ),
        "star": ("ID", "delta", "SELECT * FROM o WHERE id < 5"),
        "dots": (
            "Id",
            "postgres",
            "SELECT id AS ID, word AS `a.b`, day AS `..` FROM o WHERE id < 5",
        ),
    }
    for name, (key, sinks, sql) in views.items():
        project.view(f"{named}_{name}.sql", f"-- key: {key}\n-- sinks: {sinks}\n{sql}\n")
    try:
        assert run("--all", "--plan").code == 0
        ran = run("--all", "--json")
        assert ran.code == 0, ran.err
        assert all(each["verified"] and each["rows"] == 4 for each in ran.results)
        assert project.delta(f"{named}_quoted")[0] == {"SEGMENT": 1, "Word": "w1"}
        assert run("--all", "--json", "--refresh").code == 0  # makes checkpoints
        project.execute("UPDATE o SET word = 'new' WHERE id = 2")
        project.capture()
        ran = run("--all", "--json", "--refresh")
        assert ran.code == 0, ran.err
        assert project.delta(f"{named}_upper")[1] == {"ID": 2, "WORD": "new"}
        assert project.delta(f"{named}_star")[1]["word"] == "new"
        (result,) = (each for each in ran.results if each["view"].endswith("star"))
        assert result["origin"].startswith("refresh: ")
    finally:
        settings.write_text(before, encoding="utf-8")


@pytest.mark.matrix
def test_infinities_of_both_signs_are_proved_in_every_sink(project, run):
    for name, value in ENDS.items():
        project.view(
            f"{name}.sql",
            f"-- key: id\n-- sinks: topic, delta, search, cache\nSELECT id, {value} FROM ends\n",
        )
    ran = run("--all", "--json")
    assert ran.code == 0, ran.err
    assert {each["view"]: each["verified"] for each in ran.results} == dict.fromkeys(ENDS, True)


@pytest.mark.matrix
def test_an_error_inside_duckdb_ends_the_proof_of_one_view_alone(project, run, monkeypatch):
    sound = served.read_served

    def read(database, table, address, columns, key):
        if "ended" in address.location["path"]:
            end(database)
        return sound(database, table, address, columns, key)

    monkeypatch.setattr(verifier, "read_served", read)
    for name in ("a_first", "ended", "later", "yet_later"):
        project.view(f"{name}.sql", "-- key: id\nSELECT id, word FROM o\n")
    results = {each["view"]: each for each in run("--all", "--json").results}
    others = ("a_first", "later", "yet_later")
    assert {name: results[name]["verified"] for name in others} == dict.fromkeys(others, True)
    assert not results["ended"]["verified"]
    assert "DuckDB failed inside: INTERNAL Error" in json.dumps(results["ended"])
