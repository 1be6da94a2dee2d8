"""Keys of floats and arrays: equal keys are one row, from PostgreSQL to what readers look up.

PostgreSQL takes 0.0 and -0.0 for one key, and all NaNs. Whether an update of one to the other tells
the old key is decided by bytes, not by equality: so the log's key is always the row's own, and a
key of another text is a delete and a new row.
"""

import json

import pytest

from tests.support.captured_project import captured_database, rebuild_view
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

TABLES = """
CREATE TABLE floats (k double precision PRIMARY KEY, f real, n text);
CREATE TABLE arrays (ks integer[], ts text[], r real, n text, PRIMARY KEY (ks, ts, r));
INSERT INTO floats SELECT k, k::real, k::text FROM unnest(ARRAY[0, 'NaN', 'Infinity', '-Infinity',
    1e-30, 0.1, 123456789, 1e7, 9999999, 0.001, 1e22, -2.5]::double precision[]) AS k;
INSERT INTO arrays VALUES ('{1,2}', '{a,"b c",NULL}', 0.1, 'one'), ('{}', '{}', 'NaN', 'two'),
    ('{1,NULL}', '{"\\"q\\""}', '-0', 'three'), ('{3}', '{é}', 1e-20, 'four');
"""
CHANGES = """
UPDATE floats SET k = '-0', n = 'minus' WHERE k = 0;
UPDATE floats SET k = 'Infinity'::float8 - 'Infinity'::float8, n = 'other' WHERE k = 'NaN';
DELETE FROM floats WHERE k = 'Infinity';
UPDATE floats SET n = 'changed' WHERE k = 0.1;
INSERT INTO floats VALUES (4.9e-324, 0, 'least');
UPDATE arrays SET r = 0, n = 'plus' WHERE r = 0;
UPDATE arrays SET ks = ks || 3 WHERE n = 'one';
DELETE FROM arrays WHERE ks = '{3}';
"""
VIEWS = {
    "floats_copy": "-- key: k\n-- sinks: delta, cache\nSELECT * FROM floats",
    "arrays_copy": "-- key: r, ks, ts\n-- sinks: delta, cache\nSELECT * FROM arrays",
    "single": "-- key: ks\n-- sinks: delta, cache\n"
    "SELECT ks, count(*) AS n FROM arrays GROUP BY ks",
    "grouped": "-- key: f\nSELECT f, count(*) AS n FROM floats GROUP BY f",
    "joined": "-- key: k\nSELECT a.k, b.n FROM floats a JOIN floats b ON a.k = b.k",
}
COMPUTED = "-- key: x\nSELECT {} AS x, n FROM floats WHERE k > 1e-4 AND k < 10"


@pytest.fixture
def project(stack, tmp_path):
    with captured_database(stack, tmp_path, TABLES) as (made, _):
        yield made


def rebuilt(project, capsys, monkeypatch, *how: str) -> dict[str, int]:
    """Rebuild all views; return how many rows each has."""
    done = rebuild_view(capsys, monkeypatch, project, "--all", *how, "--json")
    assert done.code == 0, done.err
    assert {each["verified"] for each in done.results} == {True}
    return {each["view"]: each["rows"] for each in done.results}


@pytest.mark.parametrize("how", first(1, [[], ["--refresh"]]), ids=["whole", "refresh"])
def test_floats_and_arrays_are_keys_all_the_way(spark, project, capsys, monkeypatch, how):
    for name, text in VIEWS.items():
        project.view(f"{name}.sql", text)
    rebuilt(project, capsys, monkeypatch, *how)
    project.execute(CHANGES)
    project.capture()
    rows_of = rebuilt(project, capsys, monkeypatch, *how)
    assert rows_of == {
        "floats_copy": 12,
        "arrays_copy": 3,
        "single": 3,
        "grouped": 11,
        "joined": 12,
    }
    rows = {repr(row["k"]): row["n"] for row in project.delta("floats_copy")}
    assert rows["-0.0"] == "minus"
    assert rows["nan"] == "other"
    assert rows["0.1"] == "changed"
    assert "inf" not in rows
    assert "0.0" not in rows
    for key in ("0", "-0.0", "0.00"):
        told = rebuild_view(capsys, monkeypatch, project, "floats_copy", "--explain", key, "--json")
        assert json.loads(told.out)["row"]["n"] == "minus"
    told = rebuild_view(
        capsys, monkeypatch, project, "arrays_copy", "--explain", '["NaN", [], []]', "--json"
    )
    assert json.loads(told.out)["row"]["n"] == "two"

    # The twin: a key whose last digits may differ between two engines is refused, and its advice
    # works.
    project.view("computed.sql", COMPUTED.format("exp(k)"))
    done = rebuild_view(capsys, monkeypatch, project, "computed")
    assert done.code == 1
    assert "CAST it to a decimal" in done.err
    project.view("computed.sql", COMPUTED.format("CAST(k + 1 AS decimal(30, 10))"))
    assert rebuild_view(capsys, monkeypatch, project, "computed").code == 0
