"""Rows that are equal by an order: what depends on theirs is refused, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from changelog.contract.log.order import with_places
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from tests.support.builders import INTEGER, TEXT
from views.project.sql import parse_sql_view
from views.rebuild.plan.analysis import analyse


def schema(name: str, key: tuple[str, ...], *columns: str) -> LoggedSchema:
    kinds = {"name": TEXT}
    return with_places(LoggedSchema(
        TableName("public", name),
        key,
        tuple(LoggedColumn(c, c, kinds.get(c, INTEGER), nullable=c not in key) for c in columns),
    ))  # fmt: skip


SCHEMAS = {
    found.table: found
    for found in (
        schema("t", ("id",), "id", "g", "a", "b", "name"),
        schema("groups", ("g",), "g", "a", "name"),
        schema("pairs", ("p", "q"), "p", "q", "a"),
        schema("events", (), "kind", "a"),
    )
}


def why(sql: str, key: str = "id") -> str:
    """Return the reason why a view is not provable, or an empty text."""
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: {key}\n-- sinks: postgres\n{sql}\n")
    return analyse(spec, SCHEMAS).unprovable or ""


def over(window: str) -> str:
    return f"SELECT id, {window} AS x FROM t"


@pytest.mark.parametrize(
    ("sql", "missing"),
    [
        (over("row_number() OVER (ORDER BY g)"), "the primary key: id"),
        (over("row_number() OVER (PARTITION BY g ORDER BY a, b)"), "the primary key: id"),
        (over("ntile(2) OVER (ORDER BY g)"), "the primary key: id"),
        (over("lag(a) OVER (ORDER BY a)"), "the primary key: id"),
        (over("lag(a, 2) OVER (ORDER BY coalesce(id, 0))"), "the primary key: id"),
        (over("sum(a) OVER (ORDER BY g ROWS 1 PRECEDING)"), "the primary key: id"),
        (over("sum(a) OVER (ROWS 1 PRECEDING)"), "the primary key: id"),
        ("SELECT id, lag(a) OVER w AS x FROM t WINDOW w AS (ORDER BY g)", "the primary key: id"),
        ("SELECT id FROM t ORDER BY a LIMIT 3", "the primary key: id"),
        ("SELECT id FROM t ORDER BY a OFFSET 3", "the primary key: id"),
        ("SELECT p AS id, a FROM pairs ORDER BY p LIMIT 3", "the primary key: p, q"),
        ("SELECT kind AS id, a FROM events ORDER BY kind LIMIT 3", "_lsn, _sequence"),
        ("SELECT g AS id, count(*) AS n FROM t GROUP BY g ORDER BY n LIMIT 3", "of GROUP BY"),
        ("SELECT g AS id, a FROM t GROUP BY g, a ORDER BY g LIMIT 3", "of GROUP BY"),
        (
            "SELECT g AS id, lag(sum(a)) OVER (ORDER BY sum(a)) AS x FROM t GROUP BY g",
            "of GROUP BY",
        ),
        (
            "SELECT id, a FROM t UNION ALL SELECT g, a FROM groups ORDER BY id LIMIT 3",
            "all columns",
        ),
        ("SELECT DISTINCT g AS id, a FROM t ORDER BY g LIMIT 3", "the primary key: id"),
        (
            "SELECT t.id, u.a FROM t JOIN t u ON u.g = t.id ORDER BY t.id LIMIT 3",
            "the primary key: t.id, u.id",
        ),
        (
            (
                "SELECT t.id, u.a FROM t LEFT JOIN groups u ON u.g = t.g AND u.a = t.a "
                "ORDER BY t.g LIMIT 3"
            ),
            "the primary key: t.id, u.g",
        ),
        (
            "SELECT t.id, u.a FROM t FULL JOIN groups u ON u.g = t.g ORDER BY t.id LIMIT 3",
            "the primary key: t.id, u.g",
        ),
        (
            "SELECT t.id, u.a FROM t RIGHT JOIN groups u ON u.g = t.g ORDER BY u.g LIMIT 3",
            "the primary key: t.id, u.g",
        ),
        (
            (
                "SELECT id, a FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY a) AS n "
                "FROM t) q WHERE n = 1"
            ),
            "the primary key: id",
        ),
        (
            "SELECT g AS id, a FROM t QUALIFY row_number() OVER (PARTITION BY g ORDER BY b) = 1",
            "the primary key: id",
        ),
        (
            "SELECT id, (SELECT u.a FROM t u WHERE u.g = t.g ORDER BY u.b LIMIT 1) AS x FROM t",
            "the primary key: id",
        ),
        ("SELECT id, x FROM (SELECT g AS id, a AS x, b FROM t) q ORDER BY x LIMIT 3", "such as"),
        (
            "SELECT g AS id, array_agg(name ORDER BY a) AS x FROM t GROUP BY g",
            "the primary key: id",
        ),
        (
            "SELECT g AS id, listagg(name, ',') WITHIN GROUP (ORDER BY a) AS x FROM t GROUP BY g",
            "the primary key: id",
        ),
    ],
)
def test_what_the_order_leaves_open_is_refused_with_what_to_add(sql: str, missing: str) -> None:
    assert missing in why(sql)
    assert "rows may be equal" in why(sql)


@pytest.mark.parametrize(
    "sql",
    [
        over("row_number() OVER (ORDER BY g, id)"),
        over("row_number() OVER (PARTITION BY g ORDER BY id DESC)"),
        over("lag(a) OVER (PARTITION BY id ORDER BY a)"),
        over("rank() OVER (ORDER BY g)"),
        over("dense_rank() OVER (PARTITION BY a ORDER BY g)"),
        over("sum(a) OVER (ORDER BY g)"),
        over("sum(a) OVER (ORDER BY g RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)"),
        over("sum(a) OVER (PARTITION BY g)"),
        over("sum(a) OVER (ORDER BY g ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"),
        "SELECT id, a FROM t ORDER BY a, id LIMIT 3",
        "SELECT id AS x, id FROM t ORDER BY x LIMIT 3",
        "SELECT id, a FROM t ORDER BY 1 LIMIT 3",
        "SELECT id, a FROM t WHERE id = 3 ORDER BY a LIMIT 1",
        "SELECT p AS id, a FROM pairs WHERE q = 1 ORDER BY p LIMIT 3",
        "SELECT p AS id, a FROM pairs ORDER BY q, p LIMIT 3",
        "SELECT kind AS id, row_number() OVER (ORDER BY _lsn, _sequence) AS n FROM events",
        "SELECT g AS id, count(*) AS n FROM t GROUP BY g ORDER BY n DESC, g LIMIT 3",
        "SELECT g AS id, count(*) AS n FROM t GROUP BY g ORDER BY g LIMIT 3",
        "SELECT g AS id, lag(sum(a)) OVER (ORDER BY g) AS x FROM t GROUP BY g",
        "SELECT t.id, max(t.a) AS a FROM t GROUP BY t.id, t.name ORDER BY t.id LIMIT 3",
        "SELECT max(a) AS id FROM t ORDER BY 1 LIMIT 1",
        "SELECT DISTINCT g AS id, a FROM t ORDER BY g, a LIMIT 3",
        "SELECT g AS id FROM t UNION SELECT g FROM groups ORDER BY id LIMIT 3",
        # Rows that are equal by the order are equal in all that is used.
        "SELECT name AS id FROM t ORDER BY name LIMIT 3",
        (
            "SELECT g AS id, a FROM (SELECT g, a, row_number() OVER (PARTITION BY g ORDER BY a) "
            "AS n FROM t) q WHERE n = 1"
        ),
        # A join takes one row, or several.
        "SELECT t.id, u.a FROM t JOIN groups u ON u.g = t.g ORDER BY t.id LIMIT 3",
        "SELECT t.id, u.a FROM t LEFT JOIN groups u ON u.g = t.g AND u.a > 1 ORDER BY t.id LIMIT 3",
        "SELECT t.id, u.a FROM groups u JOIN t ON u.g = t.g ORDER BY t.id LIMIT 3",
        "SELECT id, a FROM t LEFT SEMI JOIN groups u ON u.a = t.a ORDER BY id LIMIT 3",
        "SELECT t.id, u.a FROM t JOIN t u USING (id) ORDER BY id LIMIT 3",
        "SELECT t.id, u.id AS o FROM t JOIN t u ON u.g = t.id ORDER BY t.id, u.id LIMIT 3",
        "SELECT t.id, u.g FROM t FULL JOIN groups u ON u.a = t.a ORDER BY t.id, u.g LIMIT 3",
        # Of a subquery it is known what is unique.
        "SELECT id, a FROM (SELECT id, a FROM t) q ORDER BY id LIMIT 3",
        (
            "WITH q AS (SELECT g, count(*) AS n FROM t GROUP BY g) "
            "SELECT g AS id, row_number() OVER (ORDER BY n, g) AS x FROM q"
        ),
        (
            "SELECT g AS id, a, name FROM (SELECT *, row_number() OVER (PARTITION BY g "
            "ORDER BY id) AS n FROM t) q WHERE n = 1 ORDER BY g LIMIT 3"
        ),
        "SELECT id, (SELECT u.a FROM t u WHERE u.g = t.g ORDER BY u.b, u.id LIMIT 1) AS x FROM t",
        "SELECT id, a FROM t QUALIFY row_number() OVER (PARTITION BY g ORDER BY id) = 1",
        # A list has the rows in an order, or values that are equal by it.
        "SELECT g AS id, array_agg(name ORDER BY a DESC, id) AS x FROM t GROUP BY g",
        "SELECT g AS id, array_agg(a + 1 ORDER BY a) AS x FROM t GROUP BY g",
        "SELECT g AS id, array_agg(DISTINCT name ORDER BY name) AS x FROM t GROUP BY g",
        "SELECT g AS id, array_agg(DISTINCT a + 1 ORDER BY a + 1) AS x FROM t GROUP BY g",
        # The view's own key tells its rows apart.
        "SELECT g AS id, a, lag(a) OVER (ORDER BY g) AS x FROM t WHERE b = 1",
    ],
)
def test_what_it_determines_is_proved(sql: str) -> None:
    assert why(sql) == ""


def test_twin_a_key_is_what_makes_the_difference() -> None:
    sql = "SELECT g AS id, a, lag(a) OVER (ORDER BY g) AS x FROM t"
    assert why(sql) == ""
    assert "rows may be equal" in why(sql, key="id, a")
    assert "rows may be equal" in why(f"{sql} ORDER BY id, a, x LIMIT 3")
