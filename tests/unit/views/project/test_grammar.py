"""Texts that Spark does not parse, or parses otherwise, are refused with a hint that works."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from changelog.contract.base.errors import ViewError
from tests.support.compared_signatures import TYPES
from tests.support.hostile_rows import query_of
from views.project import grammar
from views.project.sql import sql_source
from views.verify.sql.translate import translate

PATH = Path("v.sql")
PARENTHESES = "put parentheses"
REFUSED = [
    # Operators that Spark, PostgreSQL and sqlglot bind in different orders.
    ("8 | 3 & 4", PARENTHESES, "8 | (3 & 4)"),
    ("a ^ 3 & 1", PARENTHESES, "(a ^ 3) & 1"),
    ("s || a + 1", PARENTHESES, "s || (a + 1)"),
    ("s || a - 1 || s", PARENTHESES, "s || (a - 1) || s"),
    ("a | 1 || s", PARENTHESES, "(a | 1) || s"),
    ("~a + 1", PARENTHESES, "~(a + 1)"),
    ("a < 5 = f", PARENTHESES, "(a < 5) = f"),
    ("f = a < 5", PARENTHESES, "f = (a < 5)"),
    ("a = g = true", PARENTHESES, "(a = g) = true"),
    ("f = a IN (1)", PARENTHESES, "f = (a IN (1))"),
    ("f = a NOT IN (1)", PARENTHESES, "f = (a NOT IN (1))"),
    ("a BETWEEN 1 AND 2 = f", PARENTHESES, "(a BETWEEN 1 AND 2) = f"),
    ("f = s LIKE 'x'", PARENTHESES, "f = (s LIKE 'x')"),
    ("a IS NULL = f", PARENTHESES, "(a IS NULL) = f"),
    ("a IS NOT NULL = f", PARENTHESES, "(a IS NOT NULL) = f"),
    (
        "ts + interval '1 month 2 days'",
        "write interval '1 month' + interval '2 days', one after one",
        "ts + interval '1 month' + interval '2 days'",
    ),
    # Types of PostgreSQL.
    ("n::decimal", "write decimal(18, 2) with", "n::decimal(18, 2)"),
    ("cast(n AS numeric)", "write numeric(18, 2) with", "cast(n AS numeric(18, 2))"),
    ("cast(a AS text)", "write string", "cast(a AS string)"),
    ("a::varchar", "write string", "a::string"),
    ("cast(a AS character varying)", "write string", "cast(a AS string)"),
    ("cast(a AS double precision)", "write double", "cast(a AS double)"),
    ("try_cast(s AS int8)", "write bigint", "try_cast(s AS bigint)"),
    ("cast(a AS float4)", "write real", "cast(a AS real)"),
    ("cast(a AS bool)", "write boolean", "cast(a AS boolean)"),
    ("cast(ts AS timestamptz)", "write timestamp", "cast(ts AS timestamp)"),
    ("cast(ts AS timestamp with time zone)", "write timestamp", "cast(ts AS timestamp)"),
    ("cast(dt AS datetime)", "write timestamp_ntz", "cast(dt AS timestamp_ntz)"),
    ("cast(a AS number)", "write decimal(18, 2), with", "cast(a AS decimal(18, 2))"),
    ("cast(s AS char)", "write left(cast(… AS string), 1)", "left(cast(s AS string), 1)"),
    ("cast(b AS bytea)", "write the column without a cast", "b"),
    ("cast(ts AS time)", "write date_format(…, 'HH:mm:ss')", "date_format(ts, 'HH:mm:ss')"),
    ("dt + cast(s AS interval)", "such as dt + interval '1' day", "dt + interval '1' day"),
    ("cast(ts AS timestamp(3))", "write timestamp", "cast(ts AS timestamp)"),
    ("'{1}'::int[] = l", "write array(…) of values cast to int", "array(cast('1' AS int)) = l"),
    ("text 'x'", "write cast('…' AS string)", "cast('x' AS string)"),
    ("numeric '1.5'", "AS decimal(18, 2))", "cast('1.5' AS decimal(18, 2))"),
    # Forms that Spark's parser or analyser refuses.
    ("a BETWEEN SYMMETRIC 3 AND 1", "least(3, 1)", "a BETWEEN least(3, 1) AND greatest(3, 1)"),
    ("a BETWEEN ASYMMETRIC 1 AND 3", "write a BETWEEN 1 AND 3", "a BETWEEN 1 AND 3"),
    (
        "SELECT DISTINCT ON (g) g AS k, a AS x0 FROM t ORDER BY g, k",
        "row_number() OVER (PARTITION BY … ORDER BY …)",
        ("SELECT g AS k, a AS x0 FROM (SELECT g, a, row_number() OVER (PARTITION BY g ORDER BY k) "
        "AS r FROM t) q WHERE r = 1"),
    ),
    (
        "count(DISTINCT a) OVER (PARTITION BY g)",
        "in a subquery with GROUP BY",
        ("SELECT t.k, q.x AS x0 FROM t JOIN (SELECT g, count(DISTINCT a) AS x FROM t GROUP BY g) q "
        "ON q.g = t.g"),
    ),
    ("SELECT k, a AS x0 FROM t ORDER BY k FETCH FIRST 3 ROWS ONLY", "write LIMIT 3",
     "SELECT k, a AS x0 FROM t ORDER BY k LIMIT 3"),
    ("SELECT k, a AS x0 FROM t ORDER BY a FETCH FIRST 3 ROWS WITH TIES", "rank() OVER",
     "SELECT k, a AS x0 FROM (SELECT k, a, rank() OVER (ORDER BY a) AS r FROM t) q WHERE r <= 3"),
    ("SELECT k, a AS x0 FROM t ORDER BY k OFFSET 2 ROWS", "write OFFSET 2",
     "SELECT k, a AS x0 FROM t ORDER BY k OFFSET 2"),
    ("SELECT k, a AS x0 FROM t ORDER BY k LIMIT 2, 3", "LIMIT … OFFSET 2",
     "SELECT k, a AS x0 FROM t ORDER BY k LIMIT 3 OFFSET 2"),
    ("SELECT k, a AS x0 FROM t ORDER BY k OFFSET 1 LIMIT 2", "LIMIT … OFFSET 1",
     "SELECT k, a AS x0 FROM t ORDER BY k LIMIT 2 OFFSET 1"),
    ("SELECT * FROM (WITH q AS MATERIALIZED (SELECT k, a FROM t) SELECT * FROM q) p",
     "WITH name AS (SELECT …)", "SELECT * FROM (WITH q AS (SELECT k, a FROM t) SELECT * FROM q) p"),
    ("array[1, 2] = l", "write array(1, 2)", "array(1, 2) = l"),
    ("l[1:2]", "with get(l, 0)", "get(l, 0)"),
    ("@ a", "write the value", "a"),
    ('SELECT "t"."k", "t"."a" AS x0 FROM t', "write t.k", "SELECT t.k, t.a AS x0 FROM t"),
    ("1e400", "write a number below 1.8e308", "1.7e308"),
    ("1234567890123456789012345678901234567890", "such as 1.5e40", "1.5e40"),
    ("SELECT 1 AS k, count(t.*) AS x0 FROM t", "write count(*)",
     "SELECT 1 AS k, count(*) AS x0 FROM t"),
    ("greatest(a)", "write a", "a"),
    ("a ISNULL", "write IS NULL", "a IS NULL"),
    ("a NOTNULL", "write IS NOT NULL", "a IS NOT NULL"),
    ("0x1F", "write 31", "31"),
    ("SELECT k, a AS x0 FROM t WHERE a = ANY (SELECT a FROM t)", "write a IN (…)",
     "SELECT k, a AS x0 FROM t WHERE a IN (SELECT a FROM t)"),
    ("a = ANY (array(1, 2))", "write a IN (…)", "a IN (1, 2)"),
    ("SELECT k, a AS x0 FROM t WHERE a <> ALL (SELECT k FROM t)", "write a NOT IN (…)",
     "SELECT k, a AS x0 FROM t WHERE a NOT IN (SELECT k FROM t)"),
    ("SELECT k, a AS x0 FROM t WHERE a > ALL (SELECT k FROM t)", "(SELECT max(x) FROM …)",
     "SELECT k, a AS x0 FROM t WHERE a > (SELECT max(k) FROM t)"),
    ("SELECT k, a AS x0 FROM ONLY t", "write FROM t", "SELECT k, a AS x0 FROM t"),
    # Windows.
    ("row_number() OVER ()", "write OVER (ORDER BY …)", "row_number() OVER (ORDER BY k)"),
    ("lag(a) OVER (PARTITION BY g)", "write OVER", "lag(a) OVER (PARTITION BY g ORDER BY k)"),
    ("rank() OVER (ORDER BY k ROWS 1 PRECEDING)", "leave out ROWS", "rank() OVER (ORDER BY k)"),
    ("SELECT k, lag(a) OVER w AS x0 FROM t WINDOW w AS (ORDER BY k ROWS 1 PRECEDING)",
     "leave out ROWS or RANGE", "SELECT k, lag(a) OVER w AS x0 FROM t WINDOW w AS (ORDER BY k)"),
    ("SELECT k, sum(a) OVER (w ORDER BY k) AS x0 FROM t WINDOW w AS (PARTITION BY g)",
     "write all of it", "sum(a) OVER (PARTITION BY g ORDER BY k)"),
    ("ntile(0) OVER (ORDER BY k)", "such as ntile(4)", "ntile(4) OVER (ORDER BY k)"),
    ("lag(a, k) OVER (ORDER BY k)", "write a number, such as 1", "lag(a, 1) OVER (ORDER BY k)"),
    ("sum(a) OVER (ORDER BY k ROWS BETWEEN -1 PRECEDING AND CURRENT ROW)", "1 PRECEDING or",
     "sum(a) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"),
    ("sum(a) OVER (ORDER BY k ROWS BETWEEN a PRECEDING AND CURRENT ROW)", "1 PRECEDING or",
     "sum(a) OVER (ORDER BY k ROWS 1 PRECEDING)"),
    ("sum(a) OVER (ORDER BY k ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING)", "the earlier end first",
     "sum(a) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"),
    ("sum(a) OVER (ORDER BY k ROWS UNBOUNDED FOLLOWING)", "the earlier end first",
     "sum(a) OVER (ORDER BY k ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)"),
    ("sum(a) OVER (RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)", "write ORDER BY before RANGE",
     "sum(a) OVER (ORDER BY k RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)"),
    ("sum(a) OVER (ORDER BY k, a RANGE 1 PRECEDING)", "write ROWS",
     "sum(a) OVER (ORDER BY k, a ROWS 1 PRECEDING)"),
    ("sum(a) OVER (ORDER BY k GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)", "ROWS or RANGE",
     "sum(a) OVER (ORDER BY k RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)"),
    ("sum(a) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
     "leave out EXCLUDE", "sum(a) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"),
]  # fmt: skip
"""Refused texts, a part of each hint, and the texts that it asks for."""
TAKEN = [
    *("a | 3 | 1", "a & 3 + 1", "~a & 1", "s || a || s", "a + 1 || s", "NOT a = g", "f AND a < 5"),
    *("1.0D / a", "5L", "1.5BD", "2F"),
    *("a = k IS TRUE", "(a < 5) IS NULL", "cast(a AS long)", "a::decimal(10)", "cast(a AS real)"),
    *("cast(s AS timestamp without time zone)", "sum(a) OVER (ORDER BY k ROWS 1 PRECEDING)"),
    "row_number() OVER (ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "sum(a) OVER (RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "sum(a) OVER (ORDER BY dt RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW)",
    "SELECT k, rank() OVER w AS x0 FROM t WINDOW w AS (ORDER BY k)",
    "SELECT k, cast((SELECT max(a) AS text FROM t) AS string) AS x0 FROM t",
    *("date '2024-01-01'", "isnull(a)", "X'1F' = b", "l[0]"),
]


def planned(line: str) -> None:
    sql_source(PATH, query_of(line))


@pytest.mark.parametrize(("line", "said", "instead"), REFUSED)
def test_what_spark_does_not_read_is_refused_with_what_to_write(line, said, instead):
    with pytest.raises(ViewError) as raised:
        planned(line)
    assert said in raised.value.hint
    assert str(raised.value).startswith("v.sql")
    planned(instead)
    translate(query_of(instead), TYPES)


@pytest.mark.parametrize("line", TAKEN)
def test_what_it_reads_stays(line):
    planned(line)


@pytest.mark.parametrize("line", ["length()", "nullif(a)", "|/ d"])
def test_what_lacks_a_part_is_said_without_the_parsers_own_words(line):
    with pytest.raises(ViewError, match="an operator or a function lacks a part"):
        planned(line)


def test_each_hint_is_tried():
    hints = []
    for line, _, _ in REFUSED:
        with pytest.raises(ViewError) as raised:
            planned(line)
        hints.append(raised.value.hint)
    said = "\n".join(hints)
    words = ("write ", "leave out", "put ", "compute ", "compare ", "take ", "number the")
    texts = {
        node.value
        for module in (grammar,)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(words)
    }
    assert len(texts) > 25
    assert [text for text in texts if text not in said] == []
