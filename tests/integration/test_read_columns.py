"""Values that no type of Spark holds count only in the columns that a view reads.

In both engines: Spark leaves out what the plan does not read, kept states included, and so does
the verifier. A view that does read such a value fails, and names the row.
"""

import json

import pytest

from tests.support.captured_project import captured_database, rebuild_view

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLE = """
CREATE TABLE prices (
    id integer PRIMARY KEY, name text, price numeric(4, 2), grid integer[], amount numeric(6, 2)
);
INSERT INTO prices VALUES (1, 'a', 1.25, '{1,2}', 10), (2, 'b', NULL, NULL, 20),
    (7, 'c', 'NaN', '{{1,2},{3,4}}', 70);
"""
NOT_READ = {
    "named": "-- key: id\nSELECT id, name, amount FROM prices",
    "inside": "-- key: id\nSELECT id FROM (SELECT *, amount * 2 AS twice FROM prices) p",
    "counted": "-- key: name\nSELECT name, count(*) AS n FROM prices GROUP BY name",
    "paired": "-- key: a, b\nSELECT p.id AS a, q.id AS b FROM prices p JOIN prices q USING (name)",
    "either": "-- key: id\nSELECT id FROM prices UNION SELECT id + 10 FROM prices",
    "cheap": "-- key: id\nSELECT id, price, grid FROM prices WHERE id < 7",
}
PYTHON = """
from views import view

@view(key="id", columns={"prices": ["id", "name"]})
def declared(prices):
    assert prices.columns == ["id", "name"]
    return prices
"""
READ = {
    "star": ("-- key: id\nSELECT * FROM prices", ""),
    "compared": ("-- key: id\nSELECT id FROM prices WHERE price > 1", "price"),
    "summed": ("-- key: name\nSELECT name, sum(price) AS s FROM prices GROUP BY name", "price"),
    "sized": ("-- key: id\nSELECT id, size(grid) AS n FROM prices", "grid"),
}


@pytest.fixture
def project(stack, tmp_path):
    with captured_database(stack, tmp_path, TABLE) as (made, _):
        yield made


def verdicts(done) -> dict[str, tuple]:
    assert done.code == 0, done.err
    return {each["view"]: (each["verified"], each["mismatches"]) for each in done.results}


@pytest.mark.matrix
def test_a_value_without_a_place_counts_only_where_a_view_reads_it(
    spark, project, capsys, monkeypatch
):
    for name, text in NOT_READ.items():
        project.view(f"{name}.sql", text)
    project.view("declared.py", PYTHON)
    done = rebuild_view(capsys, monkeypatch, project, "--all", "--json")
    assert verdicts(done) == dict.fromkeys(NOT_READ, (True, 0)) | {"declared": (None, 0)}
    assert project.delta("named")[2]["id"] == 7
    explained = rebuild_view(capsys, monkeypatch, project, "named", "--explain", "7", "--json")
    assert json.loads(explained.out)["row"]["name"] == "c"
    refused(project, capsys, monkeypatch, "star")


@pytest.mark.matrix
def test_so_it_is_with_what_a_checkpoint_keeps_and_wherever_it_is_read(
    spark, project, capsys, monkeypatch
):
    for name, text in NOT_READ.items():
        project.view(f"{name}.sql", text)
    rebuild_view(capsys, monkeypatch, project, "--all", "--refresh")
    project.execute("UPDATE prices SET name = name || 'x', grid = '{{5}}' WHERE id <> 2")
    project.view("cheap.sql", "-- key: id\nSELECT id, price FROM prices WHERE id < 7")
    project.capture()
    done = rebuild_view(capsys, monkeypatch, project, "--all", "--refresh", "--json")
    assert verdicts(done) == dict.fromkeys(NOT_READ, (True, 0))
    for name in READ:
        refused(project, capsys, monkeypatch, name)


def refused(project, capsys, monkeypatch, name):
    """The twin: of the same table, a view that does read a value without a place.

    It is never taken for a null, whichever engine meets it.
    """
    text, column = READ[name]
    project.view(f"{name}.sql", text)
    done = rebuild_view(capsys, monkeypatch, project, name)
    assert done.code == 1
    assert f'column "{column}' in done.err
    assert "leave the column out of the view" in done.err
