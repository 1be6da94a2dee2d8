"""Values whose types in Spark are not those in PostgreSQL: the plan says so."""

from __future__ import annotations

import pytest

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import array_type, column_type
from tests.support.hostile_rows import column_types, expressions, query_of
from views.rebuild.plan.other_types import other_types
from views.rebuild.plan.parts import annotated

TABLE = TableName("public", "t")
COLUMNS = {
    name: column_type(base, formatted)
    for name, base, formatted in (
        ("k", "int4", "integer"),
        ("ts", "timestamp", "timestamp without time zone"),
        ("tz", "timestamptz", "timestamp with time zone"),
        ("dt", "date", "date"),
        ("r", "float4", "real"),
        ("d", "float8", "double precision"),
        ("n", "numeric", "numeric(15,2)"),
        ("w", "numeric", "numeric(30,10)"),
        ("i", "int4", "integer"),
        ("iv", "interval", "interval"),
        ("ti", "time", "time without time zone"),
        ("ir", "int4range", "int4range"),
        ("u", "uuid", "uuid"),
        ("j", "jsonb", "jsonb"),
    )
} | {
    "l": array_type(column_type("int4", "integer"), "integer[]"),
    "ln": array_type(column_type("numeric", "numeric(8,2)"), "numeric(8,2)[]"),
}


def said(query: str) -> tuple[str, ...]:
    return sentences(query, COLUMNS, {TABLE: {"k"}})


def sentences(query: str, columns, filled=None) -> tuple[str, ...]:
    typed = annotated(query, {TABLE: columns})
    return other_types(typed, query, {TABLE: columns}, filled)


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("date_trunc('month', ts)", "write cast(date_trunc('MONTH', ts) as timestamp_ntz)"),
        ("cast(dt AS timestamp)", "write cast(dt as timestamp_ntz)"),
        ("cast(ts AS timestamp)", "write cast(ts as timestamp_ntz)"),
        ("cast(tz AS string)", "has no offset"),
        ("sum(r) OVER ()", "is a double"),
        ("avg(n) OVER ()", "has 6 digits after the point"),
        ("avg(i) OVER ()", "is a double, where PostgreSQL's average of integers is a numeric"),
        ("n / i", "has 13 digits after the point"),
        ("100.00 * sum(n) OVER () / sum(n) OVER ()", "digits after the point"),
        ("i / 2", "write i div 2"),
        ("sqrt(n)", "is a double, of 15 digits"),
        ("cast(iv AS string)", "is ISO 8601 text"),
        ("power(i, 0.5)", "is a double, of 15 digits"),
        ("array_agg(i) OVER ()", "is without the nulls"),
        ("i = 1e2", "write 100"),
        ("i = 1e40", "write cast(1e40 as double)"),
        ("ln", "is a list of texts, where PostgreSQL's is one of numerics: write cast(ln[0] as"),
        ("w * w", "is rounded to 6 digits after the point"),
    ],
)
def test_another_type_than_postgresqls_is_said(expression: str, advice: str) -> None:
    (sentence,) = said(f"SELECT k, {expression} AS x FROM t")
    assert advice in sentence
    if "iv" in expression:
        return  # known of a table's columns alone
    nested = f"WITH c AS (SELECT * FROM t) SELECT k, {expression} AS x FROM c"
    assert said(nested) == (sentence,)


@pytest.mark.parametrize(
    "expression",
    [
        "round(2.5)",
        "round(2.5 * n)",
        "ceil(-0.5)",
        "floor(2.5)",
        "cast(2.5 AS decimal(10,1))",
        "date_trunc('month', tz)",
        "date_trunc('month', dt)",
        "cast(date_trunc('month', ts) AS timestamp_ntz)",
        "cast(date_trunc('month', ts) AS date)",
        "cast(dt AS timestamp_ntz)",
        "cast(ts AS string)",
        "sum(d) OVER ()",
        "avg(d) OVER ()",
        "avg(r) OVER ()",
        "n * (1 - n) * (1 + n)",
        "n + w",
        "i div 2",
        "d / i",
        "i * i",
        "ts",
    ],
)
def test_of_the_same_types_nothing_is_said(expression: str) -> None:
    assert said(f"SELECT k, {expression} AS x FROM t") == ()


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("cast(d AS int)", "rounds it, halves to the even number"),
        ("cast(n AS bigint)", "write cast(round(n) as bigint)"),
        ("cast(n AS float)", "write cast(n as double), or as real"),
        ("cast(tz AS timestamp)", "write cast(tz as timestamp_ntz)"),
        ("timestamp '2024-01-31 10:00:00'", "as timestamp_ntz)"),
        ("extract(dow FROM ts)", "write extract(dow from ts) - 1"),
        ("sign(d)", "is NaN of NaN"),
        ("round(r)", "rounds halves away from 0"),
        ("floor(d)", "0 of NaN"),
        ("dt + interval '1' month", "is a date, where PostgreSQL's is a timestamp"),
        ("dt - interval '1' hour", "has a time zone here"),
        ("concat(dt, '-', i)", "write concat_ws('', dt, '-', i)"),
        ("concat_ws('/', k = 1, 'x')", "where PostgreSQL's is t or f"),
        ("'a' || coalesce(n, 0)", "where PostgreSQL's text of it has its own"),
        ("cast(1 + greatest(n, w) AS string)", "greatest(n, w) in cast(1 + greatest"),
        ("dt || tz", "tz in dt || tz has no offset"),
        ("lag(i, 1, n) OVER (ORDER BY k)", "cast i to the type of n"),
        ("lead(r, 1, d) OVER (ORDER BY k)", "cast r to the type of d"),
        ("lag(dt, 1, ts) OVER (ORDER BY k)", "cast dt to the type of ts"),
        ("i ^ 2", "write power(i, 2)"),
        ("l[0]", "where PostgreSQL counts them from 1"),
        ("r IN (0.1)", "write cast(0.1 as real) for 0.1"),
        ("r = '0.1'", "write cast(0.1 as real) for '0.1'"),
        ("coalesce(r, 0)", "is a double, where PostgreSQL's is a real"),
        (r"'a\nb'", r"write r'a\nb'"),
        ("rank() OVER (ORDER BY i)", "write i nulls last"),
        ("rank() OVER (ORDER BY i DESC)", "write i desc nulls first"),
    ],
)
def test_another_value_than_postgresqls_is_said(expression: str, sentence: str) -> None:
    (found,) = said(f"SELECT k, {expression} AS x FROM t")
    assert sentence in found


@pytest.mark.parametrize(
    "expression",
    [
        "cast(round(n) AS int)",
        "cast(1e3 AS int)",
        "cast(n AS real)",
        "ts > timestamp '2024-01-31 10:00:00'",
        "cast(dt + interval '1' month AS date)",
        "dt < dt - interval '1' month",
        "concat(k, '-', k)",
        "'a' || coalesce(n, 0.25)",
        "cast(coalesce(i, 0) AS string)",
        "lag(n, 1, i) OVER (ORDER BY k)",
        "lag(r, 1, 0.5) OVER (ORDER BY k)",
        "d < 1e18",
        "element_at(l, 1)",
        "sqrt(i)",
        "power(d, 0.5)",
        "collect_list(i) OVER ()",
        "i IN (1, r)",
        "r = 0.1",
        "r IN (1, 2)",
        "coalesce(r, d)",
        "'it''s'",
        r"r'a\nb'",
        "rank() OVER (ORDER BY i NULLS LAST)",
        "rank() OVER (ORDER BY i DESC NULLS FIRST, k)",
        "rank() OVER (ORDER BY coalesce(i, 0), k + 1)",
        "sum(i) OVER (ORDER BY k)",
    ],
)
def test_of_the_same_value_nothing_is_said(expression: str) -> None:
    assert said(f"SELECT k, {expression} AS x FROM t") == ()


def test_where_nulls_stand_counts_for_what_can_be_null_and_changes_rows() -> None:
    assert said("SELECT k FROM t ORDER BY i") == ()
    assert len(said("SELECT k FROM t ORDER BY i LIMIT 3")) == 1
    assert said("SELECT k FROM t ORDER BY k LIMIT 3") == ()
    of_groups = "SELECT i, rank() OVER (ORDER BY {} DESC) AS x FROM t GROUP BY i"
    assert said(of_groups.format("count(*)")) == said(of_groups.format("max(k)")) == ()
    assert len(said(of_groups.format("max(i)"))) == 1
    joined = "SELECT a.k, rank() OVER (ORDER BY b.k) AS x FROM t a {} JOIN t b ON a.i = b.k"
    assert said(joined.format("")) == ()
    assert len(said(joined.format("LEFT"))) == 1


LETTERS_AND_BITS = {"upper(s)", "upper(s) ### k<>4", "upper('Straße')", "X'41'"}


def test_each_line_that_postgresql_answers_otherwise_is_said() -> None:
    columns = column_types()
    lines = expressions("otherwise")
    unsaid = {line for line in lines if not sentences(query_of(line), columns)}
    assert unsaid == LETTERS_AND_BITS


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("cast(ti AS string) > '12:00'", "time without time zone"),
        ("(cast(ti AS string)) IN ('12:00:00', '1:00')", "time without time zone"),
        ("cast(ir AS string) = '[1,5]'", "int4range"),
        ("cast(ir AS string) < cast(ir AS string)", "int4range"),
        ("max(cast(ir AS string)) OVER ()", "int4range"),
        ("cast(u AS string) = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "uuid"),
        ("cast(j AS string) = '{}'", "jsonb"),
    ],
)
def test_a_comparison_of_texts_is_said_to_be_one(expression: str, kind: str) -> None:
    (sentence,) = said(f"SELECT k, {expression} AS x FROM t")
    assert sentence.endswith(f"compares texts by their code points, and not values of type {kind}")


@pytest.mark.parametrize(
    "expression",
    [
        "cast(ti AS string) > '12:00:00'",
        "cast(ir AS string) = '[1,6)'",
        "cast(u AS string) IN ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')",
        "cast(ti AS string)",
        "size(ln)",
        "l",
    ],
)
def test_of_one_with_the_answer_of_the_values_nothing_is_said(expression: str) -> None:
    assert said(f"SELECT k, {expression} AS x FROM t") == ()


LIST = "ln is a list of texts, where PostgreSQL's is one of numerics: write cast(ln[0] as decimal("


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT * FROM t", 1),
        ("SELECT k, ln FROM t UNION ALL SELECT k, ln FROM t", 1),
        ("SELECT k, ln FROM (SELECT k, ln FROM t UNION ALL SELECT k, ln FROM t) q", 1),
        ("SELECT k, ln FROM (SELECT k, l AS ln FROM t) q", 0),
        ("SELECT k, n FROM (SELECT k, size(ln) AS n FROM t) q", 0),
        ("VALUES (1)", 0),
    ],
)
def test_a_list_of_numerics_is_said_where_the_view_has_it(query: str, count: int) -> None:
    sentences = said(query)
    assert len(sentences) == count
    assert all(sentence.startswith(LIST) for sentence in sentences)
