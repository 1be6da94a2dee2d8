"""Places of a query that an infinite date can end."""

from __future__ import annotations

import pytest

from tests.unit.views.rebuild.test_other_types import COLUMNS, TABLE
from views.rebuild.plan.moments import computed_moments

RANGE = "count(*) over (order by ts range between interval '1' day preceding and current row)"


def places(query: str) -> tuple[str, ...]:
    return computed_moments(query, {TABLE: COLUMNS})


@pytest.mark.parametrize(
    "expression",
    [
        "dt = ts",
        "dt in (ts, ts)",
        "nullif(dt, ts)",
        "coalesce(dt, ts)",
        "case when k = 1 then dt else ts end",
        "cast(dt as timestamp_ntz)",
        "cast(ts as date)",
        "year(dt)",
        "datediff(dt, dt)",
        "dt + interval '1' day",
        "ts - ts",
        RANGE,
    ],
)
def test_a_place_that_computes_with_a_date_is_told(expression: str) -> None:
    assert places(f"SELECT k, {expression} AS x FROM t") == (expression,)


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT dt AS k FROM t UNION SELECT ts FROM t", "dt union ts"),
        ("SELECT a.k FROM t a JOIN t b ON a.dt = b.ts", "dt = ts"),
        ("SELECT k FROM t WHERE dt IN (SELECT ts FROM t)", "dt in (select ts as ts from t)"),
        ("SELECT k FROM (SELECT k, dt AS v FROM t) q WHERE month(v) = 3", "month(v)"),
    ],
)
def test_so_is_one_of_another_clause(query: str, place: str) -> None:
    assert places(query) == (place,)


@pytest.mark.parametrize(
    "expression",
    [
        *("dt > '2024-01-01'", "ts < tz", "dt = date '2024-01-01'", "coalesce(dt, dt)"),
        *("max(ts) OVER ()", "rank() OVER (ORDER BY dt)", "lag(dt) OVER (ORDER BY k)"),
        *("array(dt)", "cast(dt AS string)", "k + 1"),
    ],
)
def test_a_comparison_of_one_type_computes_nothing(expression: str) -> None:
    assert places(f"SELECT k, {expression} AS x FROM t") == ()


def test_of_a_query_that_is_not_understood_nothing_is_told() -> None:
    assert places("SELECT FROM WHERE") == ()
