"""The plan accepts the SQL of each hint that it gives."""

from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType

import pytest

import views.base.engine_error as spark_errors
from tests.support.compared_signatures import TABLE, TYPES
from tests.support.hostile_rows import COLUMNS, column_types, expressions, query_of
from views.rebuild.plan.other_types import other_types
from views.rebuild.plan.parts import annotated
from views.verify.sql import bags, constants, ends
from views.verify.sql import translate as translation
from views.verify.sql.translate import UnverifiableError, translate

TOTAL = "SELECT g AS k, count(*) AS x0 FROM t GROUP BY g UNION ALL SELECT NULL, count(*) FROM t"
REFUSED = [
    ("m > '1.5'", "write 1.5 without quotes", "m > 1.5"),
    (
        "SELECT k, r IN (SELECT n FROM t) AS x0 FROM t",
        "write it in WHERE",
        "SELECT k, r AS x0 FROM t WHERE r IN (SELECT n FROM t)",
    ),
    (
        "SELECT k, r AS x0 FROM t UNION ALL SELECT k, n FROM t",
        "cast column x0 to double on both sides",
        "SELECT k, cast(r AS double) AS x0 FROM t UNION ALL SELECT k, cast(n AS double) FROM t",
    ),
    ("dt - date '2024-01-01'", r"write datediff\(dt, ", "datediff(dt, date '2024-01-01')"),
    ("date_diff(SECOND, ts, tz)", r"write datediff\(tz, ts\)", "datediff(tz, ts)"),
    ("date_diff(DAY, dt, ts)", r"write datediff\(ts, dt\)", "datediff(ts, dt)"),
    ("m + g", r"such as cast\(m AS decimal\(16, 4\)\)", "cast(m AS decimal(16, 4)) + g"),
    ("n - m", r"such as cast\(m AS decimal\(16, 4\)\)", "n - cast(m AS decimal(16, 4))"),
    (
        "m * m",
        r"such as cast\(m AS decimal\(16, 4\)\)",
        "cast(m AS decimal(16, 4)) * cast(m AS decimal(16, 4))",
    ),
    ("lpad(a, 3, '0')", r"write cast\(a AS string\)", "lpad(cast(a AS string), 3, '0')"),
    ("n LIKE '1%'", r"write cast\(n AS string\)", "cast(n AS string) LIKE '1%'"),
    ("substring(dt, 1, 4)", r"write cast\(dt AS string\)", "substring(cast(dt AS string), 1, 4)"),
    (
        "SELECT r AS k FROM t EXCEPT SELECT d FROM t",
        "or to a decimal if k is of the view's key",
        "SELECT cast(r AS decimal(9, 4)) AS k FROM t EXCEPT SELECT cast(d AS decimal(9, 4)) FROM t",
    ),
    (
        "CASE WHEN f THEN sm / m ELSE m END",
        "cast them to one",
        "CASE WHEN f THEN cast(sm / m AS decimal(38,10)) ELSE m END",
    ),
    ("cast(s AS decimal(50,10))", "cast to double", "cast(s AS double)"),
    ("round(n, -7)", r"write round\(n / 10000000\) \* 10000000", "round(n / 10000000) * 10000000"),
    ("round(d, -2)", r"write round\(d / 100\) \* 100", "round(d / 100) * 100"),
    ("interval '1' day", "such as dt [+] interval '1' day", "dt + interval '1' day"),
    ("dt.year", "write its text", "cast(dt AS string)"),
    (
        "try_cast(s AS date)",
        "WHERE, and write cast",
        "SELECT k, cast(s AS date) AS x0 FROM t WHERE k > 1",
    ),
    (
        "SELECT g AS k, every(f) AS x0 FROM t GROUP BY g",
        "write bool_and",
        "SELECT g AS k, bool_and(f) AS x0 FROM t GROUP BY g",
    ),
    (
        "SELECT g AS k, any(f) AS x0 FROM t GROUP BY g",
        r"write bool_or\(f\)",
        "SELECT g AS k, bool_or(f) AS x0 FROM t GROUP BY g",
    ),
    ("a = 'x'", "write one without quotes", "a = 5"),
    ("ceil(n, 1)", r"round\(\) has one", "round(n, 1)"),
    (
        "rank() OVER (ORDER BY floor(d))",
        re.escape("(SELECT *, floor(d) AS x FROM …), and write x in OVER"),
        "SELECT k, rank() OVER (ORDER BY x) AS x0 FROM (SELECT *, floor(d) AS x FROM t)",
    ),
    (
        "SELECT 1 AS k, count(*) AS x0 FROM t GROUP BY g WITH ROLLUP",
        r"write GROUP BY ROLLUP \(g\)",
        "SELECT 1 AS k, count(*) AS x0 FROM t GROUP BY ROLLUP (g)",
    ),
    (
        "SELECT 1 AS k, collect_list(a)[0] AS x0 FROM t",
        "sort it, with sort_array",
        "SELECT 1 AS k, sort_array(collect_list(a))[0] AS x0 FROM t",
    ),
    ("dt < '0044-03-15 BC'", r"write make_date\(-43, 3, 15\)", "dt < make_date(-43, 3, 15)"),
    ("date '0001-01-01 BC'", r"write make_date\(0, 1, 1\)", "make_date(0, 1, 1)"),
    ("dt < 'infinity'", "write '9999-12-31'", "dt < '9999-12-31'"),
    ("date '-infinity'", "write '0001-01-01'", "date '0001-01-01'"),
    ("tz < 'infinity'", "write '9999-12-31 23:59:59.999999'", "tz < '9999-12-31 23:59:59.999999'"),
    ("date '2024-1-31'", "write it as YYYY-MM-DD, ", "date '2024-01-31'"),
    ("ts > '2024-1-31'", "write it as YYYY-MM-DD hh:mm:ss", "ts > '2024-01-31 00:00:00'"),
]
"""What is refused, what is said to be written for it, and that."""
AT_A_VALUE = [
    ("write contains(x, y), startswith(x, y) or endswith(x, y)", "contains(s, s)"),
    ("GROUP BY with ROLLUP", TOTAL),
    ("abs(x) < 9e18", "CASE WHEN abs(d) < 9e18 THEN floor(d) END"),
    ("abs(x) < 9e18", "CASE WHEN abs(r) < 9e18 THEN cast(r AS decimal(38,2)) END"),
]
"""What a translated query says of a value that ends it."""
OF_SPARK = [
    ("NULLIF(x, 0)", "a / nullif(a, 0)"),
    ("TRY_CAST", "try_cast(s AS int)"),
    ("TRY_CAST", "try_cast(s AS decimal(10,2))"),
    ("get(array, n)", "get(l, 0)"),
    ("try_element_at(array, n)", "try_element_at(l, 1)"),
    ("get(array, 0)", "get(l, 0)"),
    ("CAST(x AS decimal(38,0))", "cast(g AS decimal(38,0)) + g"),
    ("CAST(x AS decimal(38,0))", "cast(g AS decimal(38,0)) * a"),
    ("CAST(x AS decimal(38,0))", "SELECT 1 AS k, sum(cast(g AS decimal(38,0))) AS x0 FROM t"),
    ("CAST(x AS decimal(38,0))", "abs(cast(a AS decimal(38,0)))"),
    ("to a decimal with more digits", "cast(n AS decimal(20,3)) + n"),
    ("or to double", "cast(n AS double) + n"),
    ("write contains(x, y), startswith(x, y), endswith(x, y)", "endswith(s, s)"),
    ("abs(x) < 1e9 THEN CAST(x AS int)", "CASE WHEN abs(d) < 1e9 THEN CAST(d AS int) END"),
    ("such as max()", "SELECT g AS k, max(s) AS x0 FROM t GROUP BY g"),
]
MODULES = (translation, constants, bags, ends)
SAYS = re.compile(r"(?<!engines )\b(write|cast|sort it|round\(\) has)\b")


@pytest.mark.parametrize(("line", "said", "instead"), REFUSED)
def test_what_a_refusal_says_to_write_is_taken(line, said, instead):
    with pytest.raises(UnverifiableError, match=said):
        translate(query_of(line), TYPES)
    translate(query_of(instead), TYPES)


@pytest.mark.parametrize(("said", "instead"), AT_A_VALUE)
def test_so_is_what_is_said_of_a_value(said, instead):
    texts = "\n".join(strings(ends))
    assert said in texts
    translate(query_of(instead), TYPES)


@pytest.mark.parametrize(("said", "instead"), OF_SPARK)
def test_so_is_what_is_said_of_an_error_of_sparks(said, instead):
    hints = [hint for _, hint in spark_errors._WORDS.values()]
    assert any(said in hint for hint in hints)
    translate(query_of(instead), TYPES)


def test_each_refusal_that_says_what_to_write_is_tried():
    tried = [
        *(re.sub(r"\\", "", said) for _, said, _ in REFUSED),
        *(said for said, _ in AT_A_VALUE),
    ]
    texts = [re.sub(r"\s+", " ", said) for each in MODULES
             for said in strings(each)]  # fmt: skip
    messages = {text for text in texts if SAYS.search(text)}
    assert len(messages) > 10, "the texts are found"
    # A message is in pieces where it names something: a piece that is tried stands in a refusal.
    said = "\n".join(each for line, _, _ in REFUSED if (each := refusal(line)))
    untried = [
        text for text in messages
        if not any(piece in text for piece in tried)
        and not any(part.strip() in said for part in text.split("\0") if SAYS.search(part))
    ]  # fmt: skip
    assert untried == []


def refusal(line: str) -> str:
    try:
        translate(query_of(line), TYPES)
    except UnverifiableError as error:
        return str(error)
    return ""


def strings(module: ModuleType) -> list[str]:
    """Return the texts of a module, those of docstrings and SQL apart; a NUL for what is put in."""
    tree = ast.parse(inspect.getsource(module))
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    inner = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node) if part is not node
    }  # fmt: skip
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(
                str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values
            ))  # fmt: skip
        elif isinstance(node, ast.Constant) and id(node) not in docs | inner:
            found.append(str(node.value))
    return [each for each in found if "MACRO" not in each and " " in each]


LOGGED = {TABLE: column_types()}


def sentences() -> set[str]:
    """Return the plan's sentences of all expressions, which no import of this module waits for."""
    queries = [
        query_of(line)
        for section in ("everywhere", "otherwise", "spark")
        for line in expressions(section)
    ]
    said = (other_types(annotated(sql, LOGGED), sql, LOGGED, {TABLE: {"k"}}) for sql in queries)
    return set().union(*said)


def test_what_the_plan_says_to_write_for_postgresqls_values_is_taken():
    tried = 0
    for sentence in sorted(sentences()):
        found = re.search(r": (write|cast) (.*?)(?:, or as .*| for .*)?$", sentence)
        if found is None:
            continue
        instead = found[2]
        if re.search(r"nulls (first|last)$", instead):
            instead = f"rank() OVER (ORDER BY {instead})"
        if (both := re.fullmatch(r"(\w+) to the type of (\w+)", instead)) is not None:
            kind = COLUMNS[both[2]][0]
            instead = f"lag(cast({both[1]} AS {kind}), 1, {both[2]}) OVER (ORDER BY k)"
        tried += 1
        translate(query_of(instead), TYPES)
    assert tried > 40
