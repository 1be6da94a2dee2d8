"""Tables and columns of any name that PostgreSQL takes: captured, rebuilt, verified.

DuckDB folds the case of ASCII letters, Spark and sqlglot that of all letters, Kafka takes few
characters at all: names have to stay apart all the way. Where Spark cannot, the rebuild says so
before Spark starts, and names both.
"""

import json

import pytest

from tests.support.captured_project import (
    CapturedProject,
    captured_database,
    rebuild_view,
    write_settings,
)
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

NAMES = (
    "É",
    "İstanbul",
    "Straße",
    "ΟΔΟΣ",
    "ελλάς",
    "select",
    "{x}",
    "a;b",
    'qu"ote',
    "do.t",
    "sp ace",
    "back\\slash",
    "back`tick",
    "per%cent",
    "dol$lar",
    "😀😀😀",
    "1st",
    "apo'strophe",
    "a--b/*c*/",
    "x" * 63,
)
SOME = ("É", "İstanbul", "select", 'qu"ote', "do.t", "back`tick", "😀😀😀", "x" * 63)
"""Names of tables in `make test`, where columns have all names; `make test-all` has all tables."""
TWINS = ("Orders", "orders", "ORDERS")
COLUMNS = ("TitleCase", *NAMES)


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def statements(names) -> str:
    made = []
    for number, table in enumerate((*names, *TWINS)):
        made.append(
            f"CREATE TABLE {identifier(table)} (id integer PRIMARY KEY, {identifier(table)} text);"
            f"INSERT INTO {identifier(table)} SELECT g, '{number} ' || g"
            " FROM generate_series(1, 3) g;"
        )
    columns = ", ".join(f"{identifier(name)} text" for name in COLUMNS)
    values = ", ".join(f"'{number}'" for number in range(len(COLUMNS)))
    made.append(f"CREATE TABLE wide (id integer PRIMARY KEY, {columns});")
    made.append(f"INSERT INTO wide VALUES (1, {values}), (2, {values});")
    return "".join(made)


def every_table(names) -> str:
    parts = [
        f"SELECT {number} AS n, id, {spark_name(table)} AS v FROM {spark_name(table)}"
        for number, table in enumerate((*names, *TWINS))
    ]
    return "-- key: n, id\n" + "\nUNION ALL ".join(parts)


def every_column() -> str:
    listed = ", ".join(f"w.{spark_name(name)} AS c{n}" for n, name in enumerate(COLUMNS))
    where = " OR ".join(f"{spark_name(name)} IS NULL" for name in COLUMNS)
    return f"-- key: id\nSELECT id, {listed} FROM wide w WHERE NOT ({where})"


VIEWS = {
    "every_column": every_column(),
    "twins": "-- key: id\nSELECT o.id, o.`Orders` AS a, p.orders AS b, q.orders AS c\n"
    "FROM Orders o JOIN orders p ON o.id = p.id JOIN ORDERS q ON q.id = p.id",
    "shadow": "-- key: id\nWITH Totals AS (SELECT id FROM Orders) SELECT * FROM totals",
}


@pytest.fixture
def project(stack, tmp_path, names):
    with captured_database(stack, tmp_path, statements(names)) as (made, _):
        yield made


@pytest.mark.parametrize("names", first(1, [[*SOME], [*NAMES]]), ids=["some", "all"])
def test_any_name_is_captured_rebuilt_and_verified(spark, project, capsys, monkeypatch, names):
    views = {"every_table": every_table(names), **VIEWS}
    for name, text in views.items():
        project.view(f"{name}.sql", text)
    done = rebuild_view(capsys, monkeypatch, project, "--all", "--json")
    assert done.code == 0, done.err
    found = {each["view"]: (each["verified"], each["mismatches"]) for each in done.results}
    assert found == dict.fromkeys(views, (True, 0))
    wanted = [(n, i) for n in range(len(names) + len(TWINS)) for i in (1, 2, 3)]
    assert [
        (row["n"], row["id"], row["v"])
        for row in sorted(project.delta("every_table"), key=lambda row: (row["n"], row["id"]))
    ] == [(n, i, f"{n} {i}") for n, i in wanted]
    assert [row[f"c{n}"] for row in project.delta("every_column") for n in range(len(COLUMNS))] == [
        str(n) for _ in (1, 2) for n in range(len(COLUMNS))
    ]
    number = len(names)
    assert project.delta("twins")[0] == {
        "id": 1,
        "a": f"{number} 1",
        "b": f"{number + 1} 1",
        "c": f"{number + 2} 1",
    }
    explained = rebuild_view(capsys, monkeypatch, project, "twins", "--explain", "1", "--json")
    assert json.loads(explained.out)["row"]["b"] == f"{number + 1} 1"


def test_columns_that_differ_in_case_alone_are_compared_with_the_source_and_refused_by_name(
    endpoints, dsn, kafka, registry, prefix, tmp_path, capsys, monkeypatch
):
    write_settings(tmp_path, endpoints, dsn, prefix)
    project = CapturedProject(tmp_path, dsn)
    project.execute(
        'CREATE TABLE cased (id integer PRIMARY KEY, name text, "Name" text, "É" text, "é" text);'
        "INSERT INTO cased VALUES (1, 'a', 'b', 'c', 'd')"
    )
    project.capture()
    project.view("cased_copy.sql", "-- key: id\nSELECT id FROM cased")
    # Nothing of Spark may run: the refusal comes before.
    monkeypatch.setattr("views.rebuild.rebuild.session", lambda _: pytest.fail("Spark was started"))
    done = rebuild_view(capsys, monkeypatch, project, "cased_copy")
    assert done.code == 1
    assert '"name" and "Name"' in done.err
