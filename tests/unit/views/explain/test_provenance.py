"""Where columns and rows of a query come from, read off its text."""

from __future__ import annotations

import pytest

from changelog.contract.rows.relation import TableName
from views.explain.provenance import (
    Computed,
    FieldOrigin,
    UntraceableError,
    column_sources,
    columns_of,
    trace,
)

CUSTOMERS, ORDERS = TableName("public", "customers"), TableName("shop", "orders")
TABLES = {CUSTOMERS: ["customer_id", "name"], ORDERS: ["order_id", "customer_id", "amount"]}


def test_a_join_with_a_group_is_traced_to_the_rows_under_the_group():
    found = trace(
        "SELECT c.customer_id, upper(c.name) AS name, sum(o.amount) AS total, count(*) AS n, 1 AS x"
        " FROM customers c LEFT JOIN shop.orders o ON o.customer_id = c.customer_id"
        " WHERE c.name <> '' GROUP BY c.customer_id, c.name HAVING count(*) > 1",
        TABLES,
        ["customer_id"],
    )
    assert [(each.alias, each.table) for each in found.sources] == [("c", CUSTOMERS), ("o", ORDERS)]
    assert found.fields["customer_id"] == FieldOrigin((("c", "customer_id"),))
    assert found.fields["name"] == FieldOrigin((("c", "name"),), "UPPER(`c`.`name`)")
    assert found.fields["total"].columns == (("o", "amount"),)
    assert found.fields["n"].note == "it depends on all rows and reads no column"
    assert found.fields["x"].note == "a constant"
    assert "GROUP BY" not in found.places
    assert "HAVING" not in found.places
    assert "`c`.`name` <> ''" in found.places
    assert "`o`.`__offset` AS o1" in found.places


def test_a_subquery_that_only_selects_dissolves():
    found = trace(
        "WITH big AS (SELECT * FROM shop.orders WHERE amount > 10)"
        " SELECT big.*, (SELECT max(amount) FROM shop.orders) AS most, row_number() OVER"
        " (ORDER BY order_id) AS r FROM big WHERE EXISTS (SELECT 1 FROM customers)",
        TABLES,
        ["order_id"],
    )
    assert [each.table for each in found.sources] == [ORDERS]
    assert "from a subquery" in found.fields["most"].note
    assert "a window" in found.fields["r"].note
    assert "customers, orders" in found.notes[0]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT order_id FROM shop.orders INTERSECT SELECT 1", "INTERSECT"),
        (
            (
                "WITH t AS (SELECT order_id FROM shop.orders LIMIT 1)"
                " SELECT t.order_id, count(*) FROM t GROUP BY t.order_id"
            ),
            "LIMIT or OFFSET",
        ),
        ("SELECT x AS order_id FROM shop.orders LATERAL VIEW explode(array(1)) AS x", "LATERAL"),
        ("SELECT order_id, count(*) FROM shop.orders GROUP BY ROLLUP (order_id)", "ROLLUP"),
        ("SELECT id AS order_id FROM range(10) r", "not a captured table"),
    ],
)
def test_what_cannot_be_traced_says_why(sql, why):
    with pytest.raises(UntraceableError, match=why):
        trace(sql, TABLES, ["order_id"])


def test_columns_are_found_where_rows_are_not():
    found = columns_of(
        "WITH t AS (SELECT customer_id, sum(amount) s FROM shop.orders GROUP BY 1)"
        " SELECT c.customer_id, t.s FROM t JOIN customers c USING (customer_id)",
        TABLES,
    )
    assert found["s"].columns == (("orders", "amount"),)


def test_columns_of_tables_of_one_name_are_told_apart_with_how_they_are_computed():
    archived = TableName("archive", "orders")
    sources = column_sources(
        "SELECT a.order_id AS id, upper(b.note) AS Note, sum(a.amount) AS total, 1 AS one"
        " FROM shop.orders a JOIN archive.orders b ON a.order_id = b.order_id GROUP BY 1, 2",
        {ORDERS: ["order_id", "amount"], archived: ["order_id", "note"]},
    )
    assert sources == {
        "id": ([(ORDERS, "order_id")], Computed.IDENTITY),
        "note": ([(archived, "note")], Computed.TRANSFORMATION),
        "total": ([(ORDERS, "amount")], Computed.AGGREGATION),
        "one": ([], Computed.TRANSFORMATION),
    }


def test_columns_keep_the_spelling_of_their_table():
    sources = column_sources("SELECT `Amount` AS a FROM shop.orders", {ORDERS: ["Amount"]})
    assert sources == {"a": ([(ORDERS, "Amount")], Computed.IDENTITY)}
