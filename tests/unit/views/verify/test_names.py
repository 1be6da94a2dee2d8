"""Names of every kind in a view's query, as the verifier and explanations read them."""

from __future__ import annotations

import duckdb
import pytest

from changelog.contract.rows.relation import TableName
from views.explain.provenance import trace
from views.verify.cli import show
from views.verify.compare.report import VerifyReport
from views.verify.sql.evaluate import evaluate
from views.verify.values.names import folded, reading_name
from views.verify.values.types import parse_type, quoted

NAMES = (
    *("É", "İ", "ß", "ΟΔΟΣ", "ς", "K", "Title", "select", "{x}", "{{x}}", "a;b", 'a"b', "a.b"),
    *(
        "a b",
        "a\\b",
        "a`b",
        "100%",
        "$x",
        "😀",
        "1a",
        "a'b",
        "a--b",
        "/*a*/",
        "x" * 63,
        "a\nb",
        "#",
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_part_of_the_grammar(name: str) -> None:
    table, column = TableName(name, name), "`" + name.replace("`", "``") + "`"
    kinds = {"id": parse_type("int"), name: parse_type("string")}
    columns = [("id", parse_type("int")), (name, parse_type("string"))]
    queries = [
        f"SELECT id, {column} FROM {column}.{column}",
        f"SELECT * FROM {column}.{column} WHERE {column} <> ''",
        f"SELECT t.id, t.{column} FROM {column}.{column} AS t ORDER BY {column}",
        f"WITH {column} AS (SELECT * FROM {column}.{column}) SELECT * FROM {column}",
    ]
    with duckdb.connect() as database:
        database.execute(
            f"CREATE TABLE {reading_name(table)} AS SELECT 1 AS id, 'v' AS {quoted(folded(name))}"
        )
        for sql in queries:
            evaluate(database, "expected", sql, {table: kinds}, columns)
            assert database.execute("FROM expected").fetchall() == [(1, "v")]
            (source,) = trace(sql, {table: ["id", name]}, ["id"]).sources
            assert source.table == table


def test_tables_whose_names_differ_in_case_alone_stay_apart() -> None:
    tables = [TableName("public", name) for name in ("Orders", "orders", "ORDERS")]
    kinds = {table: {"id": parse_type("int")} for table in tables}
    with duckdb.connect() as database:
        for number, table in enumerate(tables):
            database.execute(f"CREATE TABLE {reading_name(table)} AS SELECT {number} AS id")
        sql = "SELECT a.id AS x, b.id AS y, c.id AS z FROM Orders a, orders b, public.ORDERS c"
        columns = [(name, parse_type("int")) for name in "xyz"]
        evaluate(database, "expected", sql, kinds, columns)
        assert database.execute("FROM expected").fetchall() == [(0, 1, 2)]


def test_a_query_of_a_with_clause_is_meant_before_a_table_whatever_the_case() -> None:
    table = TableName("public", "Totals")
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE {reading_name(table)} AS SELECT 1 AS id")
        sql = "WITH totals AS (SELECT id + 1 AS id FROM Totals) SELECT id FROM TOTALS"
        kinds = {table: {"id": parse_type("int")}}
        evaluate(database, "expected", sql, kinds, [("id", parse_type("int"))])
        assert database.execute("FROM expected").fetchall() == [(2,)]


def test_two_long_names_are_told_apart_on_a_narrow_terminal(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    names = [f"public.{'x' * 50}_{end}" for end in ("[red]one", "two")]
    show(
        tuple(
            VerifyReport(view=name, verified=True, rows_expected=1, rows_served=1, mismatches=0)
            for name in names
        )
    )
    cells = [
        line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if "│" in line
    ]
    assert "".join(cells) == "".join(names)
