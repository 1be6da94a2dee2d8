"""Queries in PostgreSQL's SQL: their text in Spark's, and what is refused, with place and hint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

import pytest

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import ColumnType, Locale, TypType, column_type
from tests.support.hostile_rows import column_types
from views.meaning.view import as_meant
from views.postgres.functions import AGGREGATES, FUNCTIONS, SPECIAL, WINDOWS
from views.postgres.view import in_spark
from views.project.catalog import Catalog, with_parameters, with_views
from views.project.definition import text_of
from views.project.sql import parse_sql_view
from views.rebuild.plan.analysis import analyse
from views.verify.sql.functions import page

T, U = TableName("public", "t"), TableName("public", "u")
OWN = column_types() | {
    "c": column_type("bpchar", "character(5)"),
    "j": column_type("jsonb", "jsonb"),
    "Up": column_type("int4", "integer"),
    "big": column_type("numeric", "numeric"),
    "e": column_type("mood", "mood", form=TypType.ENUM, builtin=False, labels=("sad", "ok")),
    "eo": column_type("mood", "mood", form=TypType.ENUM, builtin=False),
}
TABLES = {T: OWN, U: {name: OWN[name] for name in ("k", "a", "n", "s")}}
KEYS = {T: ("k",), U: ("k",)}
PATH = Path("v.sql")


LEFT_OF_ANY = (
    "substring(t.s, 1, CASE WHEN t.a >= 0 OR t.a IS NULL THEN t.a"
    " ELSE greatest(length(t.s) + t.a, 0) END)"
)


def made(query: str) -> str:
    return in_spark(query, TABLES, KEYS).replace("`", "")


SIMPLE = (
    r"replace(replace(upper(replace(replace(t.{}, '~', '~0'), 'ß', '~1')), '~1', 'ß'), '~0', '~')"
)
OF_CTYPES = {
    name: replace(column_type("text", "text"), locale=Locale(ctype=ctype))
    for name, ctype in {"k": "", "s": "", "ascii": "C", "icu": "full", "turkish": "tr_TR"}.items()
}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("upper(s)", SIMPLE.format("s")),
        ("upper(icu)", "upper(replace(t.icu, 'ß', 'SS'))"),
        ("upper(ascii)", f"translate(t.ascii, '{ascii_lowercase}', '{ascii_uppercase}')"),
        ("lower(icu)", "lower(t.icu)"),
        ("icu NOT ILIKE 'Ä%'", "(t.icu NOT ILIKE 'Ä%')"),
        (
            "ascii NOT ILIKE 'ÄB%'",
            f"(translate(t.ascii, '{ascii_uppercase}', '{ascii_lowercase}') NOT LIKE 'Äb%')",
        ),
        ("upper(left(ascii, 2) || 1) = upper('ä')", "translate(("),
        ("upper(ascii || s)", "change case by different rules"),
        ("ascii || 'ä' ILIKE 'x'", "change case by different rules"),
        ("upper(icu || s COLLATE ucs_basic)", "change case by different rules"),
        (
            "upper((icu || s) COLLATE ucs_basic)",
            f"translate(cast((t.icu || t.s) AS string), '{ascii_lowercase}', '{ascii_uppercase}')",
        ),
        ('lower(turkish COLLATE "C.utf8")', "lower(cast(t.turkish AS string))"),
        ("lower(coalesce(turkish, 'x'))", "by the rules of tr_TR"),
        ("lower((SELECT min(x.turkish) FROM t AS x))", "by the rules of tr_TR"),
    ],
)
def test_letters_change_case_by_the_rules_of_a_collation(value: str, text: str) -> None:
    assert text in made_or_refused(value, OF_CTYPES)


def made_or_refused(value: str, columns: dict[str, ColumnType]) -> str:
    try:
        return in_spark(f"SELECT {value} AS x FROM t", {T: columns}, KEYS).replace("`", "")
    except ViewError as error:
        return str(error)


GERMAN = Locale("de_DE.utf8")
OF_A_DATABASE = {
    name: replace(kind, database=GERMAN, locale=GERMAN if name in {"s", "c"} else Locale())
    for name, kind in OWN.items()
}


@pytest.mark.parametrize(
    "value",
    [
        *("max(s)", "s < 'b'", "k || s > 'b'", "greatest(s, 'b')", "least(a::text, 'b')"),
        *("j ->> 'a' BETWEEN 'a' AND 'b'", "min(j ->> 'a')", "c >= 'a'", "max(e::text)"),
        *("to_char(ts, 'AM') < 'b'", "string_agg(k::text, ',' ORDER BY a::text)", "max(upper(s))"),
        *("row_number() OVER (ORDER BY c, k)", "(a, j ->> 'a') < (1, 'b')"),
        *("array_agg(a ORDER BY CASE WHEN f THEN 'a' ELSE 'b' END)", "'a' < a::text"),
        *("max((SELECT min(x.s || 'b') FROM t AS x))", 'max(coalesce(s COLLATE "C", s))'),
    ],
)
def test_texts_are_sorted_by_the_collation_that_they_have(value: str) -> None:
    """JSON, enums and numbers have none: their texts have that of the database."""
    text = made_or_refused(value, OF_A_DATABASE)
    assert "do not sort texts by the collation de_DE.utf8" in text
    assert 'write x COLLATE "C"' in text
    assert "do not sort texts" not in made_or_refused(value, OWN)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('max(s COLLATE "C")', "max(cast(t.s AS string))"),
        ("(j ->> 'a') COLLATE \"C\" < 'b'", "(cast(get_json_object(t.j, '$.a') AS string) < 'b')"),
        ("j ->> 'a' = 'b'", "(get_json_object(t.j, '$.a') = 'b')"),
        ("max(e)", "label_place(t.e, array('sad', 'ok'))"),
        ("max(a) + length(s)", "(max(t.a) + length(t.s))"),
        ('max(s COLLATE "de_DE")', "the engines do not have the collation de_DE"),
        ('c COLLATE "C"', "cast it first: x::text"),
        ('a COLLATE "C"', "COLLATE of integer"),
    ],
)
def test_a_collation_is_named_for_the_order_of_code_points(value: str, text: str) -> None:
    assert text in made_or_refused(value, OF_A_DATABASE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a / 2", "cast((t.a div 2) AS int)"),
        ("a / 2.0", "cast(quotient(t.a, 2.0, 0, 1, 24) AS decimal(35, 24))"),
        ("avg(g)", "quotient(sum(cast(t.g AS decimal(19, 0))), count(t.g), 0, 0, 20)"),
        ("round(n / a, 2)", "quotient(t.n, t.a, 3, 0, 24, 2)"),
        ("s ~ '^a.$'", r"(t.s RLIKE '^a[\\s\\S]\\z')"),
        ("s !~* 'k1'", "(NOT (t.s RLIKE '[kK]1'))"),
        ("d::int", "cast(rint(cast(t.d AS double)) AS int)"),
        ("round(r)", "rint(cast(t.r AS double))"),
        ("(n / a)::int", "cast(quotient(t.n, t.a, 3, 0, 24, 0) AS int)"),
        ("sm + sm", "cast((t.sm + t.sm) AS smallint)"),
        ("n::int", "cast(round(t.n, 0) AS int)"),
        ("g::numeric", "cast(t.g AS decimal(19, 0))"),
        ("concat(s, c)", "concat(coalesce(t.s, ''), coalesce(t.c, ''))"),
        ("s || a", "(t.s || cast(t.a AS string))"),
        ("c::text", "trim(TRAILING ' ' FROM t.c)"),
        ("dt - date '2024-01-01'", "datediff(t.dt, DATE '2024-01-01')"),
        ("dt + interval '1 year 2 months'", "(cast(t.dt AS timestamp_ntz) + interval '14' month)"),
        ("extract(dow FROM dt)", "(dayofweek(t.dt) - 1)"),
        ("tz AT TIME ZONE 'utc'", "cast(t.tz AS timestamp_ntz)"),
        ('"Up" + K', "(t.Up + t.k)"),
        ("a = '5'", "(t.a = 5)"),
        ("f IS NOT UNKNOWN", "(t.f IS NOT NULL)"),
        ("s NOT LIKE 'a%'", "(t.s NOT LIKE 'a%')"),
        ("(a, k) < (1, 2)", "((t.a < 1) OR ((t.a = 1) AND (t.k < 2)))"),
        ("j -> 'a' ->> 'b'", "get_json_object(t.j, '$.a.b')"),
        ("nullif(a, 1.5)", "CASE WHEN (t.a = 1.5) THEN NULL ELSE t.a END"),
        ("left(s, a)", LEFT_OF_ANY),
        ("right(s, -2)", "substring(t.s, 3)"),
        ("substr(s, 0)", "substring(t.s, 1)"),
        ("substr(s, a)", "substring(t.s, CASE WHEN t.a < 1 THEN 1 ELSE t.a END)"),
        ("chr(10)", r"'\n'"),
        ("log(d)", "log10(t.d)"),
        ("reverse(c)", "reverse(t.c)"),
        ("lag(d, 1, 0) OVER (ORDER BY k)",
         "lag(t.d, 1, cast(0 AS double)) OVER (ORDER BY t.k ASC NULLS LAST)"),
        ("lead(s, 2, 'x') OVER (ORDER BY k)",
         "lead(t.s, 2, 'x') OVER (ORDER BY t.k ASC NULLS LAST)"),
        ("a = ANY('{1,2}')", "(t.a IN (1, 2))"),
        ("a <> ALL('{1,2}'::int[])", "(t.a NOT IN (1, 2))"),
        ("a = ANY(l)",
         "CASE WHEN array_size(t.l) = 0 THEN false ELSE array_contains(t.l, t.a) END"),
        ("cardinality(l)", "array_size(t.l)"),
        ("a > ANY(ARRAY[1, 2])", "((t.a > 1) OR (t.a > 2))"),
        ("a <= ALL (ARRAY[1, 2])", "((t.a <= 1) AND (t.a <= 2))"),
        ("j #>> '{a,b}'", "get_json_object(t.j, '$.a.b')"),
        ("j -> 1 ->> 'a.b'", r"get_json_object(t.j, '$[1][\'a.b\']')"),
        ("j #>> '{0}'",
         r"coalesce(json_element(t.j, '$[0]'), get_json_object(t.j, '$[\'0\']'))"),
        ("l[1]", "get(t.l, 0)"),
        ("l[0]", "get(t.l, -1)"),
        ("l[sm]", "get(t.l, CASE WHEN t.sm >= 1 THEN t.sm - 1 END)"),
        ("l <@ '{1,NULL}'", "has_all(cast(array(1, cast(NULL AS int)) AS array<int>), t.l)"),
        ("a = ANY('{}')", "false"),
        ("d::numeric(9,2)", "significant(t.d, 15, 9, 2)"),
        ("round(r::numeric, 1)", "significant(t.r, 6, 37, 1)"),
        ("array_agg(DISTINCT a ORDER BY a DESC) FILTER (WHERE f)",
         "array_agg(DISTINCT t.a ORDER BY t.a DESC NULLS FIRST) FILTER (WHERE t.f)"),
        ("string_agg(c, '-' ORDER BY k)",
         ("array_join(array_agg(trim(TRAILING ' ' FROM t.c) ORDER BY t.k ASC NULLS LAST)"
          " FILTER (WHERE (trim(TRAILING ' ' FROM t.c) IS NOT NULL)), '-')")),
        ("extract(year FROM dt)",
         "(extract(year FROM t.dt) - cast(t.dt < DATE '0001-01-01' AS int))"),
        ("(date '2024-02-29')::text", "cast(DATE '2024-02-29' AS string)"),
        ("(SELECT s FROM u WHERE k = 1)", "(SELECT u.s AS c0 FROM public.u AS u WHERE (u.k = 1))"),
        ("e < 'ok'",
         "(label_place(t.e, array('sad', 'ok')) < label_place('ok', array('sad', 'ok')))"),
        ("jsonb_build_object('bb', a, 'c', NULL, 'a', s)",
         "named_struct('a', t.s, 'c', cast(NULL AS string), 'bb', t.a)"),
        ("coalesce(json_agg(json_build_object('n', n) ORDER BY k), '[]')",
         ("coalesce(array_agg(named_struct('n', t.n) ORDER BY t.k ASC NULLS LAST),"
          " cast(array() AS array<struct<n: decimal(10, 3)>>))")),
        ("l[2:]", "list_part(t.l, 2, array_size(t.l))"),
        ("sm || l", "list_joined(array(cast(t.sm AS int)), t.l)"),
        ("l || '{1}'", "list_joined(t.l, cast(array(1) AS array<int>))"),
        ("array_position(l, a)", "list_place(t.l, t.a)"),
        ("array_remove(l, NULL)", "list_without(t.l, cast(cast(NULL AS int) AS int))"),
        ("max(e)", "get(array('sad', 'ok'), max(label_place(t.e, array('sad', 'ok'))) - 1)"),
        ("E'x'", None),
    ],
)  # fmt: skip
def test_values_are_written_by_their_types(value, text):
    query = f"SELECT {value} AS x FROM t"
    if text is None:
        with pytest.raises(ViewError):
            made(query)
    else:
        assert made(query) == f"SELECT {text} AS x FROM public.t AS t"


def test_exists_is_a_join_that_adds_no_column():
    assert made(
        "SELECT t.k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.a > 3)"
    ) == (
        "SELECT t.k AS k FROM public.t AS t LEFT ANTI JOIN (SELECT u.k AS c0 FROM public.u AS u"
        " WHERE (u.a > 3)) AS sub_1 ON (sub_1.c0 = t.k)"
    )


def test_lateral_is_a_join_by_what_is_equal_or_values():
    assert made(
        "SELECT t.k, q.n FROM t LEFT JOIN LATERAL (SELECT u.n FROM u WHERE u.a = t.a"
        " ORDER BY u.k LIMIT 1) q ON true"
    ) == (
        "SELECT t.k AS k, q.n AS n FROM public.t AS t LEFT JOIN (SELECT u.a AS c0, row_number()"
        " OVER (PARTITION BY u.a ORDER BY u.k ASC NULLS LAST) AS place, u.n AS n FROM public.u"
        " AS u) AS q ON (q.c0 = t.a) AND (q.place <= 1)"
    )
    assert made("SELECT k, y FROM t, LATERAL (SELECT t.a * 2 AS y) q").startswith(
        "SELECT t.k AS k, (t.a * 2) AS y FROM public.t AS t"
    )


def test_a_subquery_by_a_primary_key_is_a_join():
    assert made("SELECT k, (SELECT u.n FROM u WHERE u.k = t.a AND u.s = 'x') AS x FROM t") == (
        "SELECT t.k AS k, sub_1.n AS x FROM public.t AS t LEFT JOIN public.u AS sub_1"
        " ON (sub_1.k = t.a) AND (sub_1.s = 'x')"
    )
    assert "CASE WHEN sub_1.k IS NOT NULL THEN coalesce(sub_1.s, '') END AS x" in made(
        "SELECT k, (SELECT coalesce(s, '') FROM u WHERE u.k = t.a) AS x FROM t"
    )
    twice = made("SELECT (SELECT s FROM u WHERE u.k = t.a) AS x, count(*) AS n FROM t GROUP BY 1")
    assert twice.count("LEFT JOIN") == 1
    assert twice.endswith("GROUP BY sub_1.s")
    assert "max(sub_1.s) AS x" in made(
        "SELECT t.a, (SELECT s FROM u WHERE u.k = t.a) AS x, count(*) AS n FROM t GROUP BY t.a"
    )


def test_the_first_of_several_rows_is_a_join_with_numbered_ones():
    text = "(SELECT u.n FROM u WHERE u.a = t.a AND u.s <> 'x' ORDER BY u.k DESC LIMIT 1)"
    assert made(f"SELECT k, {text} AS x FROM t") == (
        "SELECT t.k AS k, sub_1.value AS x FROM public.t AS t LEFT JOIN (SELECT u.a AS c0,"
        " row_number() OVER (PARTITION BY u.a ORDER BY u.k DESC NULLS FIRST) AS place,"
        " u.n AS value FROM public.u AS u WHERE (u.s <> 'x')) AS sub_1"
        " ON (sub_1.c0 = t.a) AND (sub_1.place <= 1)"
    )
    twice = made(f"SELECT k FROM t WHERE {text} > 1 OR {text} IS NULL")
    assert twice.count("LEFT JOIN") == 1
    assert "max(sub_1.value) AS x" in made(f"SELECT t.a, {text} AS x FROM t GROUP BY t.a")


def test_a_value_that_all_rows_are_divided_by_is_joined():
    assert made("SELECT a, sum(n) / (SELECT sum(n) FROM u) AS x FROM t GROUP BY a").endswith(
        "quotient(sum(t.n), max(sub_1.value_1), 3, 3, 24) AS x FROM public.t AS t"
        " CROSS JOIN (SELECT sum(u.n) AS value_1 FROM public.u AS u) AS sub_1 GROUP BY t.a"
    )


def test_natural_joins_are_by_the_columns_of_both():
    assert made("SELECT k, s FROM (SELECT k, a FROM t) AS p NATURAL LEFT JOIN u").endswith(
        "AS p LEFT JOIN public.u AS u ON (p.k = u.k) AND (p.a = u.a)"
    )
    assert " CROSS JOIN " in made("SELECT d FROM (SELECT d FROM t) AS p NATURAL JOIN u")


def test_windows_in_a_lateral_keep_to_the_rows_of_each():
    assert "row_number() OVER (PARTITION BY u.a, u.s ORDER BY u.k ASC NULLS LAST) AS r" in made(
        "SELECT t.k, q.r FROM t, LATERAL (SELECT row_number() OVER (PARTITION BY s ORDER BY k)"
        " AS r FROM u WHERE u.a = t.a) q"
    )


def test_a_primary_key_among_the_groups_determines_its_row():
    assert made("SELECT t.k, t.s, count(*) FROM t JOIN u USING (k) GROUP BY t.k").endswith(
        "GROUP BY t.k, t.s"
    )


def test_groups_of_grouping_sets_are_chosen_by_aggregates_and_grouping():
    having = "HAVING count(*) > 1 AND max(s) > 'a' AND grouping(s) = 0"
    assert "HAVING" in made(f"SELECT s, count(*) AS n FROM t GROUP BY ROLLUP (s) {having}")


def test_nulls_are_last_and_an_order_without_a_limit_goes():
    assert made("SELECT k FROM t ORDER BY a DESC, s LIMIT 3").endswith(
        "ORDER BY t.a DESC NULLS FIRST, t.s ASC NULLS LAST LIMIT 3"
    )
    assert "ORDER" not in made("SELECT k FROM t ORDER BY a")


REFUSED = {
    "SELECT k, x FROM t, unnest(l) AS x": ("unnest is not known", "= ANY(l)"),
    "SELECT k, x FROM t CROSS JOIN LATERAL unnest(l) u(x)": ("unnest is not known", "= ANY(l)"),
    "SELECT k, unnest(l) AS x FROM t": ("unnest is not known", "= ANY(l)"),
    "SELECT l || g AS x FROM t": ("bigint is not converted to integer", "cast it"),
    "SELECT l[1:g] AS x FROM t": ("a bound is bigint", "integer"),
    "SELECT json_agg(a) AS x FROM t": ("order of the values", "json_agg(x ORDER BY y)"),
    "SELECT json_build_object('a', d) AS x FROM t": ("double precision in JSON", "numeric"),
    "SELECT json_build_object('a', j) AS x FROM t": ("jsonb in JSON", "a column of its own"),
    "SELECT json_build_object('a', 1, 'A', 2) AS x FROM t": ("each once", "write"),
    "SELECT json_build_object(s, 1) AS x FROM t": ("constants of letters", "write"),
    "SELECT DISTINCT jsonb_build_object('a', a) AS x FROM t": ("not compared", "made of"),
    "SELECT count(*) AS x FROM t GROUP BY jsonb_build_object('a', a)": ("not compared", "made of"),
    "SELECT k FROM t ORDER BY jsonb_build_object('a', a), k LIMIT 1": ("not compared", "made of"),
    "SELECT row_to_json(t) AS x FROM t": ("row_to_json is not known", "json_build_object"),
    "SELECT max(eo) AS x FROM t": ("does not have the order of the enum's labels", "capture anew"),
    "SELECT k FROM t WHERE eo > 'a'": ("does not have the order", "capture anew"),
    "SELECT k FROM t WHERE e = 'a'": ("not known to be a constant", "sad or ok"),
    "SELECT k,\n  n / 3 / a AS q FROM t": ("2:3: ", "round("),
    "SELECT avg(n / 3) AS q FROM t": ("1:8: ", "round("),
    "SELECT k, m / 3 * (n / 3) AS q FROM t": ("digits", "numeric("),
    "SELECT k, nope(s) AS x FROM t": ("nope is not known", ""),
    "SELECT k, now() AS x FROM t": ("now is not known", "column"),
    "SELECT k, round(d, 2) AS x FROM t": ("does not round", "numeric"),
    "SELECT k, d::numeric AS x FROM t": ("digits", "numeric(18, 4)"),
    "SELECT k, date '2024-01-01'::timestamp AS x FROM t": ("what is cast", "(date '2024-01-01')"),
    "SELECT k, date_trunc('month', tz) AS x FROM t": ("timestamptz", "x, 'UTC')"),
    "SELECT k, date_trunc('month', tz, 'CET') AS x FROM t": ("time zones", "'UTC'"),
    "SELECT k, initcap(s) AS x FROM t": ("initcap", "upper(left("),
    "SELECT k, octet_length(c) AS x FROM t": ("char(n)", "::text"),
    "SELECT k, chr(a) AS x FROM t": ("constant", ""),
    "SELECT k, chr(55296) AS x FROM t": ("a character", ""),
    "SELECT k, age(ts, ts) AS x FROM t": ("age", "extract"),
    "SELECT k, a > ANY(l) AS x FROM t": ("written out", "= ANY"),
    "SELECT k, g = ANY(l) AS x FROM t": ("not converted to integer", "cast"),
    "SELECT k, array_agg(c ORDER BY k) AS x FROM t GROUP BY k": ("char(n)", "::text"),
    "SELECT k, coalesce(c, s) AS x FROM t": ("char(n) and text", "…::text"),
    "SELECT k, c FROM t UNION SELECT k, s FROM u": ("char(n) and text", "…::text"),
    "SELECT k, array_agg(DISTINCT s ORDER BY a) AS x FROM t GROUP BY k": ("themselves", "same"),
    "SELECT k, a = ANY('{\"1\"}') AS x FROM t": ("integers and texts", ""),
    "SELECT k, l[1][2] AS x FROM t": ("no part", ""),
    "SELECT k, l[g] AS x FROM t": ("bigint", "::integer"),
    "SELECT k, l && '{a}' AS x FROM t": ("'{a}'", ""),
    "SELECT k, l @> ARRAY[g] AS x FROM t": ("different types", "::integer[]"),
    "SELECT k, j @> '{}' AS x FROM t": ("jsonb", "->>"),
    "SELECT k, j ->> -1 AS x FROM t": ("from 0", "->> 1"),
    "SELECT k, j #>> '{a,-1}' AS x FROM t": ("from 0", "->> 1"),
    "SELECT k, j -> 0 AS x FROM t": ("not known", ""),
    "SELECT k, j ->> 0 AS x FROM t": ("single value", "#>>"),
    "SELECT k, n / (SELECT sum(n) FROM u WHERE u.a = t.a) AS x FROM t": ("division", "around it"),
    "SELECT sum(n) / (SELECT sum(n) FROM u) AS x FROM t": ("with groups", "around this one"),
    "SELECT a, (SELECT s FROM u WHERE u.k = t.k) AS x FROM t GROUP BY a": (
        "not grouped by",
        "join",
    ),
    "SELECT k, ts = tz AS x FROM t": ("is not compared", "AT TIME ZONE 'UTC'"),
    "SELECT k, s + 1 AS x FROM t": ("text + integer", ""),
    "SELECT k, s = a AS x FROM t": ("is not compared", "cast"),
    "SELECT k, s LIKE 'a\\%' AS x FROM t": ("escaped", "left("),
    "SELECT k, s ~ '\\d' AS x FROM t": ("pattern", "[0-9]"),
    "SELECT k, s ~ s AS x FROM t": ("pattern", "[0-9]"),
    "SELECT k, regexp_replace(s, 'a|b', '', 'g') AS x FROM t": (
        "different parts",
        "one repetition",
    ),
    "SELECT k, regexp_replace(s, 'a', '') AS x FROM t": ("first match", "'g'"),
    "SELECT k, regexp_replace(s, 'a', '\\1', 'g') AS x FROM t": ("without $", ""),
    "SELECT k, a || g FROM t": ("integer || bigint", "::text"),
    "SELECT k, s || 'x' FROM t": ("no name", "AS name"),
    "SELECT k, '2024-13-01'::date AS x FROM t": ("is not known to be", "'2024-02-29'"),
    "SELECT missing FROM t": ("no such column", "known are"),
    "SELECT t.missing FROM t": ("no such column", "it has"),
    "SELECT k FROM t, u": ("several tables", "t.k"),
    "SELECT t.k FROM t NATURAL JOIN u, t w RIGHT JOIN u v ON true": ("such a join", "JOIN"),
    "SELECT t.k FROM t, LATERAL (SELECT u.a FROM u WHERE u.k < t.k) q": ("LATERAL", "equal"),
    "SELECT t.k FROM t, LATERAL (SELECT u.a FROM u WHERE u.k = t.k LIMIT 1) q": (
        "not determined",
        "ORDER",
    ),
    "SELECT t.k FROM t, LATERAL (SELECT u.n FROM u WHERE u.a = t.d) q": ("LATERAL", "equal"),
    "SELECT s, count(*) FILTER (WHERE a IN (SELECT u.a FROM u WHERE u.s = t.s)) AS x FROM t"
    " GROUP BY s": ("names a column of the query around it", "EXISTS"),
    "SELECT s, max(k) FILTER (WHERE NOT (a IN (SELECT u.a FROM u WHERE u.s = t.s))) AS x FROM t"
    " GROUP BY s": ("names a column of the query around it", "EXISTS"),
    "SELECT k, (SELECT u.a FROM u WHERE u.s = t.s LIMIT 1) AS x FROM t": ("determined", "ORDER"),
    "SELECT k, (SELECT u.a FROM u WHERE u.s = t.s ORDER BY u.k LIMIT 2) AS x FROM t": (
        "several rows",
        "primary key",
    ),
    "SELECT k, (SELECT u.a FROM u WHERE u.k < t.k ORDER BY u.k LIMIT 1) AS x FROM t": (
        "such a condition",
        "equal",
    ),
    "SELECT s, (SELECT u.a FROM u WHERE u.a = t.a ORDER BY u.k LIMIT 1) AS x FROM t GROUP BY s": (
        "not grouped by",
        "",
    ),
    "SELECT t.k FROM t, LATERAL (SELECT u.a FROM u GROUP BY u.a) q": ("LATERAL", "row_number"),
    "SELECT k FROM t FOR UPDATE": ("FOR UPDATE", ""),
    "SELECT k FROM t TABLESAMPLE SYSTEM (10)": ("TABLESAMPLE", ""),
    "SELECT k FROM elsewhere": ("not captured", ""),
    "SELECT k, EXISTS (SELECT 1 FROM u LIMIT 1) AS x FROM t": ("EXISTS", "WHERE"),
    "SELECT k FROM t WHERE f OR a IN (SELECT a FROM u WHERE u.k = t.k)": ("IN", "NOT EXISTS"),
    "SELECT k, (SELECT u.n FROM u WHERE u.a = t.k) AS x FROM t": ("around it", "primary key"),
    "SELECT DISTINCT ON (a) k FROM t": ("DISTINCT ON", "ORDER BY"),
    "SELECT DISTINCT ON (a) a, k FROM t ORDER BY n, k": ("DISTINCT ON", "begin it"),
    "SELECT k, string_agg(s, ',') AS x FROM t GROUP BY k": ("order", "ORDER BY y"),
    "SELECT k, current_date AS x FROM t": ("not known", "column"),
    "SELECT k, floor(d) AS x FROM t": ("floor", "numeric"),
    "SELECT k FROM t WHERE a > ANY (SELECT a FROM u)": ("= ANY", "max()"),
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY d) AS x FROM t": ("infinite", "exact"),
    "SELECT k, array_agg(s) AS x FROM t GROUP BY k": ("not determined", "ORDER BY y"),
    "SELECT k, split_part(s, '', 1) AS x FROM t": ("split_part", ""),
    "SELECT k, s FROM t UNION SELECT k, a FROM u": ("not converted to one type", ""),
    "SELECT k, big + 1 AS x FROM t": ("numeric as text", ""),
    "SELECT k, m * m AS x FROM t": ("digits", "numeric(18, 4)"),
    "WITH RECURSIVE q AS (SELECT 1 AS k) SELECT k FROM q, t": ("RECURSIVE", ""),
    "SELECT k, f = a < 3 AS x FROM t": ("computed first", "parentheses"),
    "SELECT k, -a ^ 2 AS x FROM t": ("computed first", "parentheses"),
    "SELECT s, count(*) AS n FROM t GROUP BY CUBE (s) HAVING s > 'a'": ("HAVING", "WHERE of a"),
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_not_known_is_refused_with_what_to_write(query):
    why, hint = REFUSED[query]
    with pytest.raises(ViewError) as refused:
        in_spark(query, TABLES, KEYS)
    assert why in str(refused.value.args[0])
    assert hint in refused.value.hint


def view(query: str, header: str = "-- key: k\n-- dialect: postgres\n"):
    return parse_sql_view("v", PATH, header + query)


def test_the_place_of_an_error_is_in_the_authors_file():
    with pytest.raises(ViewError, match=r'view "v": v\.sql:4:3: nope\(k\): function nope'):
        as_meant(view("SELECT k,\n  nope(k) AS x FROM t"), TABLES, KEYS)


def test_the_authors_text_stays_and_comparisons_of_the_result_are_looked_at():
    spec = as_meant(view("SELECT k FROM t WHERE c = 'ab '"), TABLES, KEYS)
    assert text_of(spec).endswith("c = 'ab '")
    assert "trim(TRAILING ' ' FROM `t`.`c`) = 'ab'" in (spec.sql or "")
    with pytest.raises(ViewError, match="numeric") as told:
        as_meant(view("SELECT k FROM t WHERE big = big"), TABLES, KEYS)
    assert "::numeric(38, 10)" in told.value.hint, "PostgreSQL's spelling, not Spark's"
    assert "::double precision" in told.value.hint
    assert "cast(" not in told.value.hint


def test_a_plan_shows_the_dialect_and_the_text():
    columns = tuple(
        LoggedColumn(name, name, kind, nullable=name != "k") for name, kind in OWN.items()
    )
    logged = {T: LoggedSchema(T, ("k",), columns)}
    found = analyse(as_meant(view("SELECT k, a / 2 AS h FROM t"), TABLES, KEYS), logged)
    assert found.lines()[0].startswith(
        "PostgreSQL's SQL, computed as: SELECT `t`.`k` AS `k`, cast(("
    )
    assert found.lines()[1:3] == ["proof: every row", "a refresh computes the rows that changed"]
    assert found.to_json()["dialect"] == "postgres"


@pytest.mark.parametrize(
    ("query", "proof"),
    [
        ("SELECT c AS k, count(*) AS n FROM t GROUP BY c ORDER BY n, c LIMIT 2", "every row"),
        ("SELECT c AS k, count(*) AS n FROM t GROUP BY c ORDER BY n LIMIT 2", "columns of GROUP"),
        ("SELECT a AS k, string_agg(s, ',' ORDER BY n, s) AS x FROM t GROUP BY a", "every row"),
        ("SELECT a AS k, string_agg(s, ',' ORDER BY t.k) AS x FROM t GROUP BY a", "every row"),
        ("SELECT a AS k, string_agg(s, ',' ORDER BY n) AS x FROM t GROUP BY a", "primary key: k"),
    ],
)
def test_an_order_that_leaves_rows_open_is_not_proved(query, proof):
    columns = tuple(
        LoggedColumn(name, name, kind, nullable=name != "k") for name, kind in OWN.items()
    )
    spec = as_meant(view(query), TABLES, KEYS)
    assert proof in analyse(spec, {T: LoggedSchema(T, ("k",), columns)}).lines()[1]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("-- key: k\n-- dialect: mysql\n", "no language of views"),
        ("-- key: k\n-- dialekt: postgres\n", "dialect"),
    ],
)
def test_other_languages_are_none(tmp_path, header, why):
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text(f"{header}SELECT k FROM t")
    with pytest.raises(ViewError, match=why):
        Catalog.of(tmp_path).load("v")


def test_spark_is_the_language_without_a_header():
    assert view("SELECT a / 2 AS h, k FROM t", "-- key: k\n").source.dialect == "spark"


def test_names_without_quotes_are_folded_in_ascii_alone():
    assert view('SELECT K FROM T, "U"').tables == (T, TableName("public", "U"))
    columns = {T: {"k": OWN["k"], "Ä": OWN["a"]}}
    assert "`t`.`Ä` AS `Ä`" in in_spark("SELECT k, Ä FROM T", columns, KEYS)
    with pytest.raises(ViewError, match="no such column"):
        in_spark("SELECT k, Ä FROM t", {T: {"k": OWN["k"], "ä": OWN["a"]}}, KEYS)


def test_parameters_are_literals_of_postgresql():
    text, _ = with_parameters(PATH, "SELECT :name AS x", {"name": "it's \\"}, "postgres")
    assert text == "SELECT 'it''s \\' AS x"


def test_views_of_one_language_read_each_other():
    inner = view('SELECT k, a / 2 AS "Half" FROM t')
    outer = with_views(view('SELECT inner_one.k, "Half" FROM inner_one'), {"inner_one": inner})
    spec = as_meant(outer, TABLES, KEYS)
    assert "cast((`t`.`a` div 2) AS int) AS `Half`" in (spec.sql or "")
    other = parse_sql_view("v", PATH, "-- key: k\nSELECT k FROM inner_one")
    with pytest.raises(ViewError, match="is in Spark's SQL, and reads view"):
        with_views(other, {"inner_one": inner})


def test_the_page_names_each_function():
    text = page()
    for name in (*FUNCTIONS, *SPECIAL, *AGGREGATES, *WINDOWS):
        assert name in text


def test_two_tables_have_the_longer_order_of_their_enum_or_none():
    def mood(*labels):
        return column_type("mood", "mood", form=TypType.ENUM, builtin=False, labels=labels)

    def order_of(one, other):
        tables = {T: {"k": OWN["k"], "e": one}, U: {"k": OWN["k"], "e": other}}
        return in_spark("SELECT t.k FROM t JOIN u ON t.e < u.e", tables, KEYS)

    longer = mood("sad", "so so", "ok")
    for pair in ((mood("sad", "ok"), longer), (longer, mood("sad", "ok"))):
        assert order_of(*pair).count("array('sad', 'so so', 'ok')") == 2
    with pytest.raises(ViewError, match="enum is not compared with enum"):
        order_of(mood("ok", "sad"), longer)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("width_bucket(d, 0, 1, 3)", "docs/sql.md has what a view may be written with"),
        ("s::date", "docs/sql.md has"),
        ("trunc(d)", "write it of a numeric with its digits"),
        ("current_user", "another one at each call"),
        ("generate_series(1, 2)", "VALUES (1), (2)"),
    ],
)
def test_a_refusal_says_what_to_do_instead(value: str, hint: str) -> None:
    with pytest.raises(ViewError) as refused:
        made(f"SELECT k, {value} FROM t")
    assert hint in str(refused.value)


def test_a_part_without_a_place_is_told_by_the_one_before() -> None:
    with pytest.raises(ViewError, match=r"^near 2:6: CURRENT_DATE: "):
        made("SELECT k FROM t WHERE s = 'a'\n AND dt > CURRENT_DATE")
