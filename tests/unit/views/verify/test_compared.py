"""Nothing is proved that no test has compared: an operation, its types, a form of literal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import column_type
from tests.support.compared_signatures import FILE, TYPES, compared, text
from tests.support.hostile_rows import (
    COLUMNS,
    PROVED,
    column_types,
    expressions,
    queries_of,
    query_of,
)
from views.meaning.view import as_meant
from views.project.sql import parse_sql_view
from views.verify.sql import signatures
from views.verify.sql.functions import EXAMPLE_COLUMNS, GROUPS
from views.verify.sql.signatures import COMPARED
from views.verify.sql.translate import UnverifiableError, translate
from views.verify.values.types import parse_type

TABLE = TableName("public", "t")
EXAMPLES = {
    TABLE: {name: parse_type(kind) for name, kind in {"n": "int", **EXAMPLE_COLUMNS}.items()}
}
ALL = [each for group in GROUPS.values() for each in group]


@pytest.fixture
def without(monkeypatch):
    def forget(signature: str) -> None:
        assert signature in COMPARED
        monkeypatch.setattr(signatures, "COMPARED", COMPARED - {signature})
        signatures.is_compared.cache_clear()

    yield forget
    monkeypatch.undo()
    signatures.is_compared.cache_clear()


def test_what_is_compared_is_what_the_lines_of_the_tests_compare():
    assert compared() == COMPARED
    assert FILE.read_text("utf-8") == text(), "write it anew: make pages"


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.names)
def test_each_function_that_is_listed_is_compared(each):
    """Its example by `test_provable`, and each of its operations on hostile values."""
    translate(f"SELECT {each.example} AS x FROM t", EXAMPLES)


OF_WHOLE_LISTS = [
    *("min(l) OVER (ORDER BY k)", "max(l) OVER (ORDER BY k)", "greatest(l,l)", "least(l,l)"),
    *("l BETWEEN l AND l", "row_number() OVER (ORDER BY l DESC, k)"),
    "SELECT 1 AS k, sort_array(collect_list(l)) AS x0 FROM t",
]
"""The page says of captured lists that they have no order here."""


CAPTURED = column_types()
BY_SPARK = {kind: CAPTURED[name] for name, (kind, _) in COLUMNS.items()}
BY_SPARK["decimal(10,2)"] = column_type("numeric", "numeric(10,2)")


def plan(sql, columns):
    """Look at a view of captured columns as a plan does."""
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: k\n{sql}")
    as_meant(spec, {TABLE: columns}, {TABLE: ("k", "n")})


def test_what_is_compared_is_accepted_of_captured_columns():
    lines = [line for section in PROVED for line in expressions(section)]
    assert {*OF_WHOLE_LISTS} <= {*lines}
    for sql, _ in queries_of([line for line in lines if line not in OF_WHOLE_LISTS]):
        plan(sql, CAPTURED)


@pytest.mark.parametrize("line", OF_WHOLE_LISTS)
def test_but_not_the_order_of_whole_lists(line):
    with pytest.raises(ViewError, match="does not sort as its values do"):
        plan(query_of(line), CAPTURED)


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.names)
def test_so_is_the_example_of_each_function_that_is_listed(each):
    columns = {name: BY_SPARK[kind] for name, kind in {"n": "int", **EXAMPLE_COLUMNS}.items()}
    key = "1" if each in GROUPS["Aggregates"] else "n"
    plan(f"SELECT {key} AS k, {each.example} AS x FROM t", columns)


OF_OTHER_ARGUMENTS = {"or", "locate", "position", "to_timestamp", "trunc"}
NAMED = [
    (name, re.sub(rf"\b{re.escape(first)}\(", f"{name}(", each.example))
    for each in ALL
    for first, *others in [each.names.split(", ")]
    for name in others
    if name.isidentifier() and name not in OF_OTHER_ARGUMENTS and f"{first}(" in each.example
]


@pytest.mark.parametrize(("name", "example"), NAMED, ids=[name for name, _ in NAMED])
def test_so_is_each_further_name_of_it(name, example):
    translate(f"SELECT {example} AS x FROM t", EXAMPLES)


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        ("md5(s)", "MD5(string)"),
        ("n = d", "equal(decimal, double)"),
        ("d < 1", "order(double, integer)"),
        ("CASE WHEN f THEN n ELSE d END", "branches(decimal, double)"),
        ("cast(s AS date)", "cast(string) date"),
        ("b = X'6162'", "literal hexstring"),
        ("SELECT min(k) AS k, s AS x0 FROM t GROUP BY s", "group(string)"),
        ("rank() OVER (ORDER BY n)", "sort(decimal)"),
        ("ts - interval 1 month", "interval month"),
    ],
)
def test_what_no_line_compares_is_refused(line, signature, without):
    translate(query_of(line), TYPES)
    without(signature)
    with pytest.raises(UnverifiableError, match="no test has compared"):
        translate(query_of(line), TYPES)


@pytest.mark.parametrize("line", ["isnan(s)", "year(a)", "abs(f)", "f + f"])
def test_types_that_an_operation_is_never_given_are_refused(line):
    with pytest.raises(UnverifiableError, match="no test has compared"):
        translate(query_of(line), TYPES)


def test_a_decimal_of_more_digits_than_there_are_is_refused_with_what_would_do():
    with pytest.raises(UnverifiableError, match="50 digits: 38 are the most; cast to double"):
        translate(query_of("cast(s AS decimal(50,10))"), TYPES)
