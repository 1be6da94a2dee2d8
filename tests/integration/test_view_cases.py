"""`changelog test`: cases of views in Spark and in DuckDB, without servers."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from changelog.cli import app
from changelog.runtime.setting import WrittenFloat
from tests.support.narrow import misfits, shown
from views.cases import run
from views.cases.file import parse_cases, read_cases
from views.cases.report import tell_result
from views.cases.run import Result, run_cases
from views.project.catalog import Catalog
from views.project.sql import parse_sql_view
from views.scaffold.cli import write_project
from views.verify.sql.evaluate import evaluate

TABLES = """
[tables.t]
id = "bigint"
n = "integer"
price = "numeric(6,2)"
at = "timestamptz"
tags = "text[]"
"""
SQL = """-- key: id
SELECT id, n + 1 AS more, price * 2 AS twice, at, hour(at) AS hour, tags, 1.0D / id AS part,
    named_struct('n', n, 'tags', tags) AS nested
FROM t
"""
PARAMETERS = r"""
odd = "it's \\ \u0041 \n %_ -- /* $x {x} ünï \" \\u0041 \\n"
rate = 19.90
less = -3
flag = true
day = 2024-02-29
moment = 2024-01-01T01:00:00.5+02:00
big = 9007199254740993
"""
CASE = """
[[case]]
name = "all types"
tables.t = [
    { id = 3, n = 1, price = 1.25, at = 2024-01-01T01:00:00+02:00, tags = ["a", "b"] },
    { id = 7 },
]
rows = [
    { id = 7, part = 0.14285714285714285, nested = {} },
    { id = 3, more = 2, twice = 2.50, at = 2023-12-31T23:00:00Z, hour = 23, REST },
]
""".replace("REST", 'tags = ["a", "b"], part = 0.3333333333, nested = { n = 1, tags = ["a", "b"] }')


def results(spark, case: str, sql: str = SQL, *, prove: bool = True) -> list[Result]:
    spec = parse_sql_view("v", Path("views/v.sql"), sql)
    return run_cases(spark, [(spec, parse_cases(spec, "v.cases.toml", TABLES + case))], prove=prove)


def told(result: Result) -> str:
    out = Console(width=160)
    with out.capture() as captured:
        tell_result(out, result)
    return captured.get()


def test_a_case_of_many_types_passes_in_both_engines(spark) -> None:
    (result,) = results(spark, CASE)
    assert result.passed, told(result)
    assert [each.engine for each in result.told] == ["Spark", "DuckDB"]


def test_twin_what_differs_is_told_once_for_both_engines(spark) -> None:
    wrong = CASE.replace("more = 2", "more = 3").replace("{ id = 7,", "{ id = 8,", 2)
    (result,) = results(spark, wrong.replace("{ id = 8 }", "{ id = 7 }"))
    assert not result.passed
    text = told(result)
    assert "Spark and DuckDB" in text
    assert all(word in text for word in ("different", "more", "missing", "unexpected"))
    json.dumps(result.to_json())


def test_lists_in_an_order_that_spark_leaves_open_are_compared_as_bags(spark) -> None:
    sql = "-- key: k\nSELECT 1 AS k, collect_list(n) AS all FROM t"
    case = """
[[case]]
name = "any order"
tables.t = [{ id = 1, n = 5 }, { id = 2, n = 4 }]
rows = [{ k = 1, all = [4, 5] }]
"""
    (result,) = results(spark, case, sql)
    assert result.passed, told(result)


def test_twin_a_case_that_passes_in_one_engine_only_fails_and_says_which(
    spark, monkeypatch: pytest.MonkeyPatch
) -> None:

    def other(database, table, sql, tables, columns):
        return evaluate(database, table, sql.replace("n + 1", "n + 2"), tables, columns)

    monkeypatch.setattr(run, "evaluate", other)
    (result,) = results(spark, CASE)
    assert not result.passed
    assert "DuckDB alone (Spark gives what is expected)" in told(result)


def test_sql_that_cannot_be_proved_fails_unless_spark_is_asked_alone(spark) -> None:
    sql = "-- key: id\nSELECT id, soundex('a') AS s FROM t"
    case = '[[case]]\nname = "a"\ntables.t = [{ id = 1 }]\nrows = [{ id = 1, s = "A000" }]\n'
    (result,) = results(spark, case, sql)
    assert not result.passed
    assert "cannot verify this SQL" in told(result)
    (result,) = results(spark, case, sql, prove=False)
    assert result.passed, told(result)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ('error = "division by zero"', ""),
        ('error = "overflow"', "the error is another one than 'overflow'"),
        ("rows = []", "Division by zero"),
    ],
)
def test_an_error_can_be_expected(spark, expected: str, words: str) -> None:
    sql = "-- key: id\nSELECT id, n / (id - id) AS q FROM t"
    case = f'[[case]]\nname = "a"\ntables.t = [{{ id = 1, n = 1 }}]\n{expected}\n'
    (result,) = results(spark, case, sql)
    assert result.passed == (not words)
    assert words.lower() in told(result).lower()


def test_an_expected_error_that_does_not_come_fails(spark) -> None:
    case = '[[case]]\nname = "a"\ntables.t = [{ id = 1 }]\nerror = "anything"\n'
    (result,) = results(spark, case)
    assert "gives 1 rows where an error is expected" in told(result)


def test_a_case_that_expects_a_column_that_is_not_there_says_so(spark) -> None:
    case = '[[case]]\nname = "a"\ntables.t = [{ id = 1 }]\nrows = [{ id = 1, mor = 1 }]\n'
    (result,) = results(spark, case)
    assert "it expects a column mor" in told(result)


def test_a_view_in_python_is_computed_by_spark_alone(spark, tmp_path: Path) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    (folder / "p.py").write_text(
        "from views import view\n\n@view(key='id')\ndef p(t):\n    return t.select('id', 'at')\n"
    )
    (folder / "p.cases.toml").write_text(
        TABLES + '[[case]]\nname = "a"\ntables.t = [{ id = 1, at = 2024-01-01T00:00:00Z }]\n'
        "contains = [{ at = 2024-01-01T00:00:00Z }]\n"
    )
    spec = Catalog.of(tmp_path).load("p")
    (result,) = run_cases(spark, [(spec, read_cases(spec))])
    assert result.passed, told(result)
    assert [each.engine for each in result.told] == ["Spark"]


def test_a_case_of_a_view_on_views_gives_rows_of_tables(spark, tmp_path: Path) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    (folder / "sums.sql").write_text("-- key: n\nSELECT n, sum(price) AS s FROM t GROUP BY n")
    (folder / "most.sql").write_text(
        "-- key: n\nSELECT a.n, b.s FROM sums AS a JOIN sums AS b USING (n) WHERE a.s > 2"
    )
    (folder / "most.cases.toml").write_text(
        TABLES + '[[case]]\nname = "a"\ntables.t = [{ n = 1, price = 2 }, { n = 1, price = 0.5 },'
        " { n = 2, price = 2 }]\nrows = [{ n = 1, s = 2.50 }]\n"
    )
    spec = Catalog.of(tmp_path).load("most")
    (result,) = run_cases(spark, [(spec, read_cases(spec))])
    assert result.passed, told(result)
    assert [each.engine for each in result.told] == ["Spark", "DuckDB"]


def test_parameters_are_the_same_values_in_both_engines(spark, tmp_path: Path) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    values = tomllib.loads(PARAMETERS, parse_float=WrittenFloat)
    listed = ", ".join(f":{name} AS {name}" for name in values)
    where = "WHERE at >= :moment AND price * :rate > 2 AND n > - :less"
    (folder / "p.sql").write_text(f"-- key: id\nSELECT id, {listed} FROM t {where}\n")
    row = "{ id = 1, n = 4, price = 1.25, at = 2024-01-01T00:00:00Z }"
    (folder / "p.cases.toml").write_text(
        f'{TABLES}[[case]]\nname = "a"\ntables.t = [{row}]\n[[case.rows]]\nid = 1\n{PARAMETERS}'
    )
    spec = Catalog.of(tmp_path, values).load("p")
    (result,) = run_cases(spark, [(spec, read_cases(spec))])
    assert result.passed, told(result)
    assert [each.engine for each in result.told] == ["Spark", "DuckDB"]


def test_the_cases_that_the_project_brings_along_pass(spark, tmp_path: Path) -> None:
    write_project(tmp_path)
    demo = Path(str(files("views.demo") / "project"))
    specs = [
        Catalog.of(tmp_path).load("orders_per_customer"),
        Catalog.of(demo).load("route_delays"),
    ]
    found = run_cases(spark, [(spec, read_cases(spec)) for spec in specs])
    assert [result.passed for result in found] == [True] * 4


def write_project_with_a_case_that_fails(tmp_path: Path) -> None:
    write_project(tmp_path)
    cases = tmp_path / "views" / "orders_per_customer.cases.toml"
    cases.write_text(cases.read_text("utf-8").replace("orders = 2", "orders = 3"), "utf-8")


def says_which_case_fails(out: str, err: str) -> None:
    told = json.loads(out)
    assert not told["passed"]
    assert [case["passed"] for case in told["cases"]] == [False, True]
    (difference,) = told["cases"][0]["engines"]["duckdb"]["differences"]
    assert (difference["column"], difference["expected"], difference["found"]) == ("orders", 3, 2)
    assert "1 of 2 cases passed" in err
    assert "testing" not in err, "no bar without a terminal"


def test_the_command_ends_with_1_and_says_which_case_fails(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project_with_a_case_that_fails(tmp_path)
    monkeypatch.setattr("replay.spark.session.session", lambda _: spark)
    monkeypatch.setattr("replay.spark.connect.release", lambda *_: None)
    words = ["test", "--json", "--project", str(tmp_path)]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 1, ran.stderr
    says_which_case_fails(ran.stdout, ran.stderr)


@pytest.mark.matrix
def test_the_command_of_a_shell_leaves_nothing_of_spark_behind(tmp_path: Path) -> None:
    write_project_with_a_case_that_fails(tmp_path)
    command = [str(Path(sys.executable).with_name("changelog")), "test", "--json"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    says_which_case_fails(ran.stdout, ran.stderr)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("spark-")] == []


@pytest.mark.matrix
def test_a_narrow_terminal_shows_how_many_cases_are_done(tmp_path: Path) -> None:
    write_project(tmp_path)
    command = str(Path(sys.executable).with_name("changelog"))
    text, code = shown([command, "test", "--project", str(tmp_path)])
    assert code == 0, text
    assert misfits(text) == []
    assert "testing: Spark" in text
    assert "2 of 2, " in text


@pytest.mark.matrix
def test_cases_in_python_begin_the_session_that_rebuilds_go_on_with(tmp_path: Path) -> None:
    write_project(tmp_path)
    settings = tmp_path / "changelog.toml"
    text = settings.read_text("utf-8")
    own = '[spark]\nmaster = "local[1]"\nsettings."spark.of.tests" = "ours"\n'
    assert text.count("\n[spark]\n") == 1
    settings.write_text(text.replace("[spark]\n", own), "utf-8")
    code = """
from pyspark.sql import SparkSession
from views import Project
print(Project.open(".").test().passed)
spark = SparkSession.getActiveSession()
print(spark.sparkContext.master, spark.sparkContext.getConf().get("spark.of.tests"))
"""
    nobody = {
        "CHANGELOG_KAFKA_BROKERS": "127.0.0.1:1",
        "CHANGELOG_REGISTRY_URL": "http://127.0.0.1:1",
    }
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **nobody},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-2:] == ["True", "local[1] ours"]
