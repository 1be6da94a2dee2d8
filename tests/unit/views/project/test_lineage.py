"""Which keys of a view follow from changed rows; pure."""

from pathlib import Path

import pytest

from changelog.contract.rows.relation import TableName
from views.project.lineage import KeyLineage, Untraceable, trace
from views.project.spec import SqlSource
from views.project.sql import parse_sql_view

COLUMNS = {
    TableName("public", "customers"): ["customer_id", "name"],
    TableName("public", "orders"): ["order_id", "customer_id", "Amount"],
    TableName("sales", "lines"): ["order_id", "line", "text"],
}
KEYS = {
    TableName("public", "customers"): ["customer_id"],
    TableName("public", "orders"): ["order_id"],
    TableName("sales", "lines"): ["order_id", "line"],
}


def traced(sql: str, *key: str) -> KeyLineage | Untraceable:
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: {', '.join(key)}\n{sql}")
    assert isinstance(spec.source, SqlSource)
    return trace(spec.source, key, COLUMNS, KEYS)


@pytest.mark.parametrize(
    ("sql", "key", "by_key"),
    [
        ("SELECT order_id, amount * 2 AS a FROM orders WHERE amount > 1", "order_id", True),
        ("SELECT * FROM orders AS o", "order_id", True),
        ("SELECT o.order_id AS id FROM public.orders AS o -- x\n", "id", True),
        ("SELECT amount AS a, order_id FROM orders ORDER BY 1", "a", False),
        ("SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id", "customer_id", None),
        ("SELECT DISTINCT order_id FROM orders", "order_id", None),
    ],
)
def test_a_view_of_one_table_is_traced(sql, key, by_key) -> None:
    found = traced(sql, key)
    assert isinstance(found, KeyLineage)
    assert (found.by_key is not None) is bool(by_key)


def test_the_whole_primary_key_makes_a_view_by_key() -> None:
    by = traced("SELECT line AS l, order_id AS o, text FROM sales.lines", "o", "l")
    assert isinstance(by, KeyLineage)
    assert by.by_key == {"order_id": "o", "line": "l"}
    half = traced("SELECT order_id AS o, text FROM sales.lines", "o")
    assert isinstance(half, KeyLineage)
    assert half.by_key is None


def test_the_keys_of_changed_rows_at_any_place_are_asked_for_at_once() -> None:
    found = traced(
        "SELECT c.customer_id, count(o.order_id) AS n, extract(year FROM now_) AS y FROM customers"
        " AS c\n LEFT JOIN public.orders AS o ON o.customer_id = c.customer_id\n"
        "WHERE o.order_id IS NULL GROUP BY c.customer_id",
        "customer_id",
    )
    assert isinstance(found, KeyLineage)
    views = {place: f"view_{place.table.table}" for place in found.source.references}
    assert " ".join(found.keys_sql(found.source.references, views).split()) == (
        "SELECT DISTINCT `c`.`customer_id` AS `customer_id` FROM `view_customers` AS c"
        " LEFT JOIN `view_orders` AS o ON o.customer_id = c.customer_id"
        " WHERE (`c`.`__changed` OR `o`.`__changed`)"
    )
    assert found.anchor == found.source.references[0]


def test_without_outer_joins_the_condition_narrows_the_keys() -> None:
    found = traced(
        "SELECT customers.customer_id AS c, order_id AS o FROM customers, orders WHERE"
        " customers.customer_id = orders.customer_id AND (Amount > 1 OR Amount < 0)",
        "c",
        "o",
    )
    assert isinstance(found, KeyLineage)
    views = dict.fromkeys(found.source.references, "x")
    assert " ".join(found.keys_sql(found.source.references[1:], views).split()) == (
        "SELECT DISTINCT `customers`.`customer_id` AS `c`, `orders`.`order_id` AS `o` FROM `x` AS"
        " `customers`, `x` AS `orders` WHERE (`orders`.`__changed`) AND ( customers.customer_id ="
        " orders.customer_id AND (Amount > 1 OR Amount < 0) )"
    )
    assert found.anchor is None


@pytest.mark.parametrize(
    ("joins", "is_linked"),
    [
        ("orders AS o", True),
        ("orders AS o JOIN customers AS c ON c.customer_id = o.customer_id", True),
        ("orders AS o, customers AS c WHERE c.customer_id = o.customer_id", True),
        ("orders AS o, customers AS c WHERE c.customer_id < o.customer_id", False),
        ("orders AS o CROSS JOIN customers AS c", False),
        ("orders AS o LEFT JOIN customers AS c ON c.customer_id = o.customer_id + 1", False),
    ],
)
def test_only_equalities_link_places(joins: str, is_linked: bool) -> None:
    found = traced(f"SELECT o.order_id FROM {joins}", "order_id")
    assert isinstance(found, KeyLineage)
    assert found.is_linked is is_linked


@pytest.mark.parametrize(
    ("sql", "key", "why"),
    [
        ("WITH a AS (SELECT * FROM orders) SELECT order_id FROM a", "order_id", "WITH"),
        ("SELECT order_id FROM orders UNION SELECT order_id FROM orders", "order_id", "plain"),
        ("SELECT order_id FROM (SELECT * FROM orders)", "order_id", "inside"),
        (
            "SELECT order_id FROM orders WHERE order_id IN (SELECT order_id FROM sales.lines)",
            "order_id",
            "inside",
        ),
        (
            "SELECT order_id, sum(amount) OVER (ORDER BY order_id) AS s FROM orders",
            "order_id",
            "win",
        ),
        ("SELECT order_id FROM orders ORDER BY order_id LIMIT 3", "order_id", "LIMIT"),
        ("SELECT max(order_id) AS o FROM orders", "o", "without GROUP BY"),
        (
            "SELECT customer_id FROM orders GROUP BY ROLLUP (customer_id)",
            "customer_id",
            "more than",
        ),
        ("SELECT order_id + 1 AS o FROM orders", "o", "plain column"),
        ("SELECT customer_id FROM orders JOIN customers ON true", "customer_id", "plain column"),
        (
            "SELECT o.order_id FROM customers c LEFT JOIN orders o ON c.customer_id = 1",
            "order_id",
            "LEFT JOIN",
        ),
        (
            "SELECT c.customer_id FROM customers c FULL JOIN orders o ON c.customer_id = 1",
            "customer_id",
            "FULL",
        ),
        (
            "SELECT c.name FROM customers c LEFT JOIN orders o JOIN sales.lines l ON o.amount",
            "name",
            "INNER JOIN looks",
        ),
        (
            "SELECT c.customer_id FROM customers c LEFT SEMI JOIN orders o ON c.customer_id = 1",
            "customer_id",
            "SEMI",
        ),
    ],
)
def test_what_cannot_be_told_for_certain_is_not_traced(sql, key, why) -> None:
    found = traced(sql, key)
    assert isinstance(found, Untraceable)
    assert why in found.why
