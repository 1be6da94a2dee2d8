"""The plan accepts the text that the hint of a refused comparison asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import ColumnType, Kind, Locale, TypType, array_type, column_type
from views.meaning.view import as_meant
from views.project.sql import parse_sql_view
from views.rebuild.plan.analysis import analyse

X = TableName("public", "x")
CHAR, NUMERIC = column_type("bpchar", "character(10)"), column_type("numeric", "numeric")
COLUMNS = {
    "id": column_type("int4", "integer"),
    "t": column_type("text", "text"),
    "i": column_type("int4", "integer"),
    "n": column_type("numeric", "numeric(10,3)"),
    "d": column_type("float8", "double precision"),
    "f": column_type("bool", "boolean"),
    "dt": column_type("date", "date"),
    "c": CHAR,
    "by": column_type("bytea", "bytea"),
    "nu": NUMERIC,
    "u": column_type("uuid", "uuid"),
    "j": column_type("jsonb", "jsonb"),
    "ci": column_type("citext", "citext", builtin=False),
    "ip": column_type("inet", "inet"),
    "mood": column_type("mood", "mood", form=TypType.ENUM, builtin=False),
    "pair": column_type("pair", "pair", form=TypType.COMPOSITE, builtin=False),
    "german": ColumnType("text", Kind.STRING, locale=Locale("de_DE.utf8")),
    "ln": array_type(NUMERIC, "numeric[]"),
    "lc": array_type(CHAR, "character(10)[]"),
}
SCHEMA = LoggedSchema(
    X, ("id",), tuple(LoggedColumn(c, c, kind, nullable=c != "id") for c, kind in COLUMNS.items())
)


def planned(expression: str) -> str | None:
    return look(f"SELECT id, {expression} AS y FROM x")


def look(sql: str) -> str | None:
    """Return the reason why a view cannot be proved, or None."""
    text = f"-- key: id\n-- sinks: postgres\n{sql}\n"
    spec = as_meant(parse_sql_view("v", Path("v.sql"), text), {X: COLUMNS}, {X: ("id",)})
    return analyse(spec, {X: SCHEMA}).unprovable


@pytest.mark.parametrize(
    ("line", "said", "instead"),
    [
        ("nu < 3", "cast(nu AS decimal(38, 10))", "cast(nu AS decimal(38, 10)) < 3"),
        ("nu + 1", "cast(nu AS double)", "cast(nu AS double) + 1"),
        ("ln[0] = 1", "cast(ln[0] AS decimal(38, 10))", "cast(ln[0] AS decimal(38, 10)) = 1"),
        ("get(ln, 0) > 1", "cast(get(ln, 0) AS double)", "cast(get(ln, 0) AS double) > 1"),
        ("lc[0] = 'a'", "write rtrim(lc[0])", "rtrim(lc[0]) = 'a'"),
        ("get(lc, 0) = 'a'", "write rtrim(get(lc, 0))", "rtrim(get(lc, 0)) = 'a'"),
        ("by = 'a'", "X'00ff'", "by = X'00ff'"),
        ("by || 'a'", "as a column of the table", "by"),
        ("by LIKE 'a%'", "as a column of the table", "by"),
        ("pair = pair", "cast(pair AS string)", "cast(pair AS string) = cast(pair AS string)"),
        ("pair IS NULL", "cast(pair AS string) IS NULL", "cast(pair AS string) IS NULL"),
        ("ci = 'a'", "lower(cast(ci AS string))", "lower(cast(ci AS string)) = 'a'"),
        ("j = '1'", "cast(j AS string)", "cast(j AS string) = '1'"),
        ("j = '1'", "get_json_object(j, '$.…')", "get_json_object(j, '$.a') = '1'"),
        ("j || 'a'", "cast(j AS string)", "cast(j AS string) || 'a'"),
        ("ip < ip", "concat(ip)", "concat(ip) < concat(ip)"),
        ("mood < mood", "cast(mood AS string)", "cast(mood AS string) < cast(mood AS string)"),
        ("german < t", "cast(german AS string)", "cast(german AS string) < t"),
        ("t = d", "write cast(t AS double)", "cast(t AS double) = d"),
        ("t = i", "cast(i AS string)", "t = cast(i AS string)"),
        ("t = i", "cast(t AS int)", "cast(t AS int) = i"),
        ("t = n", "cast(t AS decimal(10, 3))", "cast(t AS decimal(10, 3)) = n"),
        ("t = f", "cast(f AS string)", "t = cast(f AS string)"),
        ("t = dt", "cast(t AS date)", "cast(t AS date) = dt"),
        ("t = 5", "write '5'", "t = '5'"),
        ("f = 1", "IS TRUE or IS FALSE", "f IS TRUE"),
        ("f = i", "IS TRUE or IS FALSE", "f IS FALSE"),
        ("dt = i", "such as year(x)", "year(dt) = i"),
        ("cast(t AS char(5))", "rpad(left(", "rpad(left(cast(t AS string), 5), 5, ' ')"),
        ("cast(t AS varchar(5))", "left(cast(", "left(cast(t AS string), 5)"),
    ],
)
def test_what_is_said_to_be_written_is_taken(line: str, said: str, instead: str) -> None:
    with pytest.raises(ViewError) as raised:
        planned(line)
    assert said in raised.value.hint
    assert planned(instead) is None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT id, i + 1 AS y FROM x WHERE y > 2", '"y" in WHERE is a name that SELECT gives'),
        ("SELECT x.id, x.i + 1 AS y FROM x JOIN x z ON z.id = y", '"y" in ON is a name'),
        ("SELECT id, v AS y FROM (SELECT id, i AS v FROM x WHERE v > 1) q", '"v" in WHERE'),
        ("SELECT id, b AS y FROM x AS z(id, b)", "z is given 2 names of columns, and has 19"),
    ],
)
def test_names_that_spark_does_not_find_are_refused(sql: str, said: str) -> None:
    with pytest.raises(ViewError, match=said):
        look(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, i + 1 AS i FROM x WHERE i > 2",
        "SELECT id, y FROM (SELECT id, i AS y FROM x) q WHERE y > 1",
        "SELECT id, sum(i) AS y FROM x GROUP BY id HAVING y > 1",
        "SELECT q.id, q.v AS y FROM (SELECT id, i FROM x) AS q(id, v) WHERE q.v > 1",
        "WITH q(id, v) AS (SELECT id, i FROM x) SELECT id, v AS y FROM q",
    ],
)
def test_names_that_it_finds_are_taken(sql: str) -> None:
    assert look(sql) is None
