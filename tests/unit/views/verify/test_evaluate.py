"""Spark SQL by DuckDB: what must come out as Spark gives it, and what must be refused."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from changelog.contract.rows.relation import TableName
from views.verify.compare.compare import Equality
from views.verify.sql import evaluate as evaluate_module
from views.verify.sql.evaluate import Keys, Prepared, computing, evaluate
from views.verify.sql.translate import UnverifiableError, translate
from views.verify.values.names import reading_name
from views.verify.values.types import Type, duckdb_type, parse_type, quoted

COLUMNS = {
    "a": "int",
    "b": "decimal(10,2)",
    "d": "double",
    "ts": "timestamp",
    "dt": "date",
    "Cc": "string",
}
TABLES: dict[TableName, dict[str, Type]] = {
    TableName("public", "t"): {name: parse_type(kind) for name, kind in COLUMNS.items()},
    TableName("other", "u"): {"a": parse_type("int"), "s": parse_type("string")},
}


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        for name, columns in TABLES.items():
            listed = ", ".join(f"{quoted(n)} {duckdb_type(kind)}" for n, kind in columns.items())
            made.execute(f"CREATE TABLE {reading_name(name)} ({listed})")
        made.execute(
            f"INSERT INTO {reading_name(TableName('public', 't'))} VALUES"
            "(1, 1.25, 2.675, '2013-01-01 05:06:07', '2013-01-06', 'x'),"
            "(-2, -2.50, -1.005, '2013-02-01', '2013-01-07', NULL)"
        )
        other = reading_name(TableName("other", "u"))
        made.execute(f"INSERT INTO {other} VALUES (1, 'one'), (3, NULL)")
        yield made


# Each value as Spark 4 gives it with ANSI mode on.
@pytest.mark.parametrize(
    ("expression", "kind", "values"),
    [
        ("a / 2", "double", [-1.0, 0.5]),
        ("a div 2", "bigint", [-1, 0]),
        ("a % 2", "int", [0, 1]),
        ("pmod(a, 3)", "int", [1, 1]),
        ("round(d, 2)", "double", [-1.01, 2.68]),
        ("round(b, 1)", "decimal(10,1)", [Decimal("-2.5"), Decimal("1.3")]),
        ("b / 3", "decimal(14,6)", [Decimal("-0.833333"), Decimal("0.416667")]),
        ("b / b", "decimal(23,13)", [Decimal(1), Decimal(1)]),
        ("b * 2 + a", "decimal(13,2)", [Decimal("-7.00"), Decimal("3.50")]),
        ("a * 0.5", "decimal(12,1)", [Decimal("-1.0"), Decimal("0.5")]),
        ("cast(d as int)", "int", [-1, 2]),
        ("cast(b as int)", "int", [-2, 1]),
        ("cast(d as decimal(10,2))", "decimal(10,2)", [Decimal("-1.01"), Decimal("2.68")]),
        ("ceil(d)", "bigint", [-1, 3]),
        ("floor(d)", "bigint", [-2, 2]),
        ("concat(Cc, '-', a)", "string", [None, "x-1"]),
        ("concat_ws('-', Cc, 'y')", "string", ["y", "x-y"]),
        ("substring(Cc, 1, 1)", "string", [None, "x"]),
        ("dayofweek(dt)", "int", [2, 1]),
        ("year(ts)", "int", [2013, 2013]),
        ("date_format(ts, 'yyyy-MM-dd')", "string", ["2013-02-01", "2013-01-01"]),
        ("date_format(ts, 'yyyy DDD')", "string", ["2013 032", "2013 001"]),
        ("date_format(ts, 'D')", "string", ["32", "1"]),
        ("cast(date_add(dt, 1) as string)", "string", ["2013-01-08", "2013-01-07"]),
        ("datediff(dt, date '2013-01-01')", "int", [6, 5]),
        ("date_trunc('month', ts) = timestamp '2013-01-01'", "boolean", [False, True]),
        ("coalesce(Cc, '?')", "string", ["?", "x"]),
        ("if(a > 0, b, 0)", "decimal(12,2)", [Decimal(0), Decimal("1.25")]),
        ("Cc <=> null", "boolean", [True, False]),
        ("named_struct('Ab', a, 'c', Cc)", "struct<Ab:int,c:string>", None),
        ("row_number() over (order by Cc)", "int", [1, 2]),
        ("b - lag(b) over (order by a)", "decimal(13,2)", [None, Decimal("3.75")]),
        (
            "b - lead(b, 1, 0) over (order by a)",
            "decimal(13,2)",
            [Decimal("-3.75"), Decimal("1.25")],
        ),
        (
            "b - first_value(b) ignore nulls over (order by a)",
            "decimal(13,2)",
            [Decimal(0), Decimal("3.75")],
        ),
    ],
)
def test_an_expression_has_sparks_value(
    database: duckdb.DuckDBPyConnection, expression: str, kind: str, values: list[Any] | None
) -> None:
    columns = [("a", parse_type("int")), ("x", parse_type(kind))]
    evaluate(database, "out", f"SELECT a, {expression} AS x FROM t", TABLES, columns)
    found = [row[1] for row in database.execute("FROM out ORDER BY a").fetchall()]
    if values is None:
        values = [{"Ab": -2, "c": None}, {"Ab": 1, "c": "x"}]
        assert [tuple(row.values()) for row in found] == [tuple(row.values()) for row in values]
    else:
        assert found == values


def test_aggregates_have_sparks_values_and_types(database: duckdb.DuckDBPyConnection) -> None:
    sql = """-- key: k
    WITH q AS (SELECT 1 AS k, b, d, a FROM public.t)
    SELECT k, avg(b) AS m, sum(b) AS s, sum(b) / count(*) AS q, count(DISTINCT a) AS n,
           avg(a) AS v FROM q GROUP BY k"""
    kinds = ["int", "decimal(14,6)", "decimal(20,2)", "decimal(38,20)", "bigint", "double"]
    columns = [(n, parse_type(k)) for n, k in zip("kmsqnv", kinds, strict=True)]
    floats = evaluate(database, "out", sql, TABLES, columns)
    assert database.execute("FROM out").fetchall() == [
        (1, Decimal("-0.625"), Decimal("-1.25"), Decimal("-0.625"), 2, -0.5)
    ]
    assert floats.floats == {"k": Equality.ZEROS, **dict.fromkeys("msqnv", Equality.NEAR)}


def test_what_stays_of_an_evaluation_is_of_the_same_query_over_the_same_types(
    database: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated: list[str] = []

    def noted(sql: str, tables: Any) -> Any:
        translated.append(sql)
        return translate(sql, tables)

    monkeypatch.setattr(evaluate_module, "translate", noted)
    prepared, columns = Prepared(), [("x", parse_type("int"))]
    first, second = "SELECT a AS x FROM t", "SELECT a + 1 AS x FROM t"
    other = {TableName("public", "t"): {"a": parse_type("bigint")}}
    for sql in (first, second, first, second):
        evaluate(database, "out", sql, TABLES, columns, prepared=prepared)
    assert translated == [first, second]
    assert [row for (row,) in database.execute("FROM out ORDER BY x").fetchall()] == [-1, 2]
    assert prepared.translation(first, other) is not prepared.translation(first, TABLES)
    assert len(translated) == 3


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        pytest.param("SELECT a, b FROM t WHERE a > 0", "VIEW", id="row by row"),
        pytest.param("SELECT a, max(b) AS b FROM t GROUP BY a", "BASE TABLE", id="groups"),
    ],
)
def test_rows_that_each_come_from_one_row_are_computed_as_they_are_read(
    database: duckdb.DuckDBPyConnection, sql: str, kind: str
) -> None:
    columns = [("a", parse_type("int")), ("b", parse_type("decimal(10,2)"))]
    query = "SELECT table_type FROM information_schema.tables WHERE table_name = 'out'"
    for _ in range(2):  # the second replaces the first
        evaluate(database, "out", sql, TABLES, columns)
        assert database.execute(query).fetchall() == [(kind,)]


def test_captured_columns_are_told_from_computed_ones(database: duckdb.DuckDBPyConnection) -> None:
    sql = """SELECT q.a, q.d, q.e, struct(q.d, u.s AS t) AS st
             FROM (SELECT *, d + 0 AS e FROM t) q LEFT JOIN other.u ON q.a = u.a"""
    kinds = {"a": "int", "d": "double", "e": "double", "st": "struct<d:double,t:string>"}
    columns = [(name, parse_type(kind)) for name, kind in kinds.items()]
    floats = evaluate(database, "out", sql, TABLES, columns)
    assert floats.floats == dict.fromkeys(kinds, Equality.EXACT) | {"e": Equality.NEAR}
    assert len(database.execute("FROM out").fetchall()) == 2


@pytest.mark.parametrize("end", ["", " ", "  ", "\t", "\t ", " \u00a0", "x "])
def test_blanks_alone_leave_the_end_of_a_text(database, end) -> None:
    other = reading_name(TableName("other", "u"))
    database.execute(f"UPDATE {other} SET s = ? WHERE a = 1", [f" a{end}"])
    sql = "SELECT trim(TRAILING ' ' FROM s) AS s, count(*) AS n FROM other.u GROUP BY 1"
    columns = [("s", parse_type("string")), ("n", parse_type("bigint"))]
    evaluate(database, "out", sql, TABLES, columns)
    rows = database.execute("FROM out ORDER BY s NULLS FIRST").fetchall()
    assert rows == [(None, 1), (f" a{end}".rstrip(" "), 1)]


def computed(
    database: duckdb.DuckDBPyConnection, sql: str, columns: list[tuple[str, Type]]
) -> list[Any]:
    """Return the rows of a query; errors about values arise only when a view is read."""
    evaluate(database, "out", sql, TABLES, columns)
    with computing():
        return database.execute("FROM out").fetchall()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT first(a) FROM t", "First"),
        ("SELECT rand() FROM t", "function rand is not known"),
        # sqlglot takes them for functions of other names; Spark has none of them, or another.
        ("SELECT strpos(Cc, 'a') FROM t", "function strpos is not known"),
        ("SELECT starts_with(Cc, 'a') FROM t", "function starts_with is not known"),
        ("SELECT log(2) FROM t", "function log is not known"),
        ("SELECT my_function(a) FROM t", "my_function"),
        ("SELECT cast(d AS string) FROM t", "write such a value"),
        ("SELECT substring(Cc, 0, 2) FROM t", "start from 1"),
        ("SELECT substring(Cc, a, 2) FROM t", "start before the first letter"),
        ("SELECT concat_ws(',', collect_list(Cc)) FROM t", ""),
        ("SELECT collect_list(a)[0] FROM t", "order"),
        ("WITH q AS (SELECT collect_set(a) AS l FROM t) SELECT l[0] FROM q", "order"),
        ("WITH q AS (SELECT collect_list(a) AS l FROM t) SELECT DISTINCT l FROM q", "order"),
        ("WITH q AS (SELECT collect_list(a) AS l FROM t) SELECT l = l FROM q", "order"),
        ("SELECT Cc RLIKE '[' FROM t", "only a constant pattern that Java and RE2 read alike"),
        ("SELECT nothing FROM t", "nothing"),
        ("SELECT a FROM missing", ""),
        ("SELEC a FROM t", "sqlglot"),
        ("DROP TABLE t", "not a query"),
        ("SELECT a AS other FROM t", "the view has x"),
        ("SELECT a + Cc AS x FROM t", ""),
        *(
            (f"SELECT row_number() OVER ({placed}) AS x FROM t", "compute it in a subquery")
            for placed in (
                "PARTITION BY lower(Cc) ORDER BY a",
                "ORDER BY a, upper(Cc) DESC",
                "PARTITION BY date_trunc('day', ts) ORDER BY a",
                "ORDER BY cast(ts AS string)",
            )
        ),
        (
            "SELECT rank() OVER (ORDER BY lower(Cc)) AS x FROM t GROUP BY Cc",
            "compute it in a subquery",
        ),
        (
            "SELECT cast(rank() OVER (ORDER BY lower(Cc)) AS string) AS x FROM t",
            "compute it in a subquery",
        ),
        ("SELECT row_number() OVER w AS x FROM t WINDOW w AS (ORDER BY lower(Cc))", "in OVER"),
    ],
)
def test_sql_that_is_not_known_to_mean_the_same_is_refused(
    database: duckdb.DuckDBPyConnection, sql: str, why: str
) -> None:
    named = sql.replace(" FROM", " AS x FROM", 1) if " AS " not in sql else sql
    with pytest.raises(UnverifiableError, match="cannot verify this SQL") as caught:
        computed(database, named, [("x", parse_type("int"))])
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        (
            "SELECT row_number() OVER (PARTITION BY l, d ORDER BY a) AS x "
            "FROM (SELECT *, lower(Cc) AS l, date_trunc('day', ts) AS d FROM t)"
        ),
        (
            "SELECT rank() OVER (PARTITION BY date_trunc('day', ts) ORDER BY lower(Cc)) AS x "
            "FROM t GROUP BY lower(Cc), date_trunc('day', ts)"
        ),
        "SELECT row_number() OVER (PARTITION BY a ORDER BY max(upper(Cc))) AS x FROM t GROUP BY a",
    ],
)
def test_a_window_is_placed_by_what_is_computed_before(
    database: duckdb.DuckDBPyConnection, sql: str
) -> None:
    evaluate(database, "out", sql, TABLES, [("x", parse_type("int"))])
    assert database.execute("FROM out").fetchall() == [(1,), (1,)]


def test_a_result_that_a_cast_would_round_is_refused(database: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnverifiableError, match="DECIMAL"):
        evaluate(database, "out", "SELECT b AS x FROM t", TABLES, [("x", parse_type("int"))])


NESTED = "array<struct<n:int,own:array<int>>>"


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("collect_list(a)", "array<int>", [-2, 1]),
        ("collect_list(Cc)", "array<string>", ["x"]),
        ("collect_list(CASE WHEN a > 9 THEN a END)", "array<int>", []),
        ("collect_list(a) FILTER (WHERE a > 9)", "array<int>", []),
        ("collect_set(a * 0)", "array<int>", [0]),
        ("size(collect_list(a))", "int", 2),
        ("sort_array(collect_list(Cc))", "array<string>", ["x"]),
        ("struct(max(a) AS m, collect_list(a) AS l)", "struct<m:int,l:array<int>>", (1, [-2, 1])),
        ("coalesce(collect_list(a), array(7))", "array<int>", [-2, 1]),
    ],
)
def test_lists_are_empty_without_elements_and_in_one_order(
    database, expression: str, kind: str, value: Any
) -> None:
    columns = [("x", parse_type(kind))]
    evaluated = evaluate(database, "out", f"SELECT {expression} AS x FROM t", TABLES, columns)
    ((found,),) = database.execute("FROM out").fetchall()
    assert (tuple(found.values()) if isinstance(found, dict) else found) == value
    assert set(evaluated.bags) == (set() if "size" in expression or "sort" in expression else {"x"})


def test_lists_in_lists_are_each_put_in_order(database) -> None:
    sql = """
    WITH inner_lists AS (
        SELECT k % 2 AS n, k % 4 AS m, collect_list(k) AS own FROM g GROUP BY k % 2, k % 4
    )
    SELECT 1 AS id, collect_list(struct(n, own)) AS x FROM inner_lists
    """
    tables = {TableName("public", "g"): {"k": parse_type("int")}}
    columns = [("id", parse_type("int")), ("x", parse_type(NESTED))]
    found = []
    table = reading_name(TableName("public", "g"))
    for order in ("k", "k DESC", "hash(k)"):
        database.execute(
            f"CREATE OR REPLACE TABLE {table} AS FROM range(9) AS r(k) ORDER BY {order}"
        )
        database.execute(f"ALTER TABLE {table} ALTER k TYPE INTEGER")
        assert set(evaluate(database, "out", sql, tables, columns).bags) == {"x"}
        found.append(database.execute("SELECT x FROM out").fetchall())
    assert found[0] == found[1] == found[2]
    (((first, *_),),) = found[0]
    assert first == {"n": 0, "own": [0, 4, 8]}


KEYED = {"n": "bigint", "s": "string", "dt": "date", "i": "smallint"}
ROWS = [
    (-(2**63), "it's", "0044-03-15 (BC)", -1),
    (2**63 - 1, "", "2013-01-06", 7),
    (0, "12", "12013-01-06", 0),
    (12, "2013-01-06", "2013-01-07", 12),
]


@pytest.mark.parametrize(
    "key", [("n",), ("s",), ("dt",), ("i",), ("n", "s"), ("s", "dt", "i"), ("wider",), ("text",)]
)
@pytest.mark.parametrize("wanted", [[], [0], [0, 2], [1, 3], [0, 1, 2, 3]])
def test_of_some_keys_the_rows_of_these_and_no_other_are_computed(key, wanted):
    """Whether a key's column comes as it is, or cast, as `wider` and `text` do."""
    keyed = TableName("public", "keyed")
    types = {name: parse_type(kind) for name, kind in KEYED.items()}
    columns = {**types, "wider": parse_type("bigint"), "text": parse_type("string")}
    sql = "SELECT n, s, dt, i, i AS wider, cast(dt AS string) AS text FROM keyed"
    with duckdb.connect() as database:
        named = ", ".join(f"{name} {duckdb_type(kind)}" for name, kind in types.items())
        database.execute(f"CREATE TABLE {reading_name(keyed)} ({named})")
        database.executemany(f"INSERT INTO {reading_name(keyed)} VALUES (?, ?, ?, ?)", ROWS)
        evaluate(database, "whole", sql, {keyed: types}, [*columns.items()])
        listed = ", ".join(key)
        picked = f"FROM whole WHERE i IN ({', '.join(str(ROWS[n][3]) for n in wanted) or 'NULL'})"
        database.execute(f"CREATE TABLE sent AS SELECT {listed} {picked}")
        only = Keys("sent", database.sql("FROM sent").to_arrow_table())
        evaluate(database, "found", sql, {keyed: types}, [*columns.items()], only=only)
        found = database.execute("FROM found ORDER BY i").fetchall()
        assert found == database.execute(f"{picked} ORDER BY i").fetchall()
        assert len(found) == len(wanted)


def test_columns_of_sets_stand_as_they_are_captured_where_those_of_each_query_do() -> None:
    of = {TableName("public", "t"): {"d": parse_type("double")}}
    assert translate("SELECT d AS x FROM t UNION SELECT d FROM t", of).bare == {"x"}
    assert translate("SELECT d AS x FROM t UNION SELECT d * 2 FROM t", of).bare == frozenset()


@pytest.mark.parametrize("pattern", ["DD", "yyyyy", "MMMMM", "EEEEE"])
def test_a_pattern_of_more_letters_than_are_told_apart_is_not_proved(database, pattern):
    columns = [("x", parse_type("string"))]
    with pytest.raises(UnverifiableError, match="letters that are not checked"):
        evaluate(
            database, "out", f"SELECT date_format(ts, '{pattern}') AS x FROM t", TABLES, columns
        )
