"""Values whose types in Spark are not those in PostgreSQL: the plan says so."""

from __future__ import annotations

import pytest

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import column_type
from views.rebuild.plan.other_types import other_types

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
    )
}


def said(query: str) -> tuple[str, ...]:
    return other_types(query, {TABLE: COLUMNS})


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
        ("w * w", "is rounded to 6 digits after the point"),
    ],
)
def test_another_type_than_postgresqls_is_said(expression: str, advice: str) -> None:
    (sentence,) = said(f"SELECT k, {expression} AS x FROM t")
    assert advice in sentence
    nested = f"WITH c AS (SELECT * FROM t) SELECT k, {expression} AS x FROM c"
    assert said(nested) == (sentence,)


@pytest.mark.parametrize(
    "expression",
    [
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
