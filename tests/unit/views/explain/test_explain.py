"""Where a row comes from, over states that are made by hand: no log, no Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from changelog.contract.base.errors import ViewError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn
from replay.base.config import ReplaySettings
from replay.cut.cut import Cut
from replay.verdict.verdict import Verdict, VerdictKind
from tests.support.builders import INTEGER, TEXT, decimal_type
from views.explain.explain import NoSuchRowError, _is_key, _Tracing, key_of, parse_key
from views.project.sql import parse_sql_view
from views.rebuild.plan.plan import Plan
from views.verify.log.states import Folded
from views.verify.log.tables import TableState
from views.verify.processes.scratch import MEMORY_LIMIT, scratch
from views.verify.records.survivors import FoldedTable
from views.verify.values.names import reading_name

CUSTOMERS, ORDERS = TableName("public", "customers"), TableName("public", "orders")
FRAME = "'\\x00\\x00\\x00\\x00\\x07'::BLOB"
SETUP = f"""
CREATE TABLE c (customer_id INTEGER, name VARCHAR, __partition INTEGER, __offset BIGINT);
CREATE TABLE o (order_id INTEGER, customer_id INTEGER, amount DECIMAL(9, 2),
    __partition INTEGER, __offset BIGINT);
INSERT INTO c VALUES (1, 'Ann', 0, 3), (2, 'Bob', 1, 0);
INSERT INTO o SELECT n, 1, n, 0, n FROM range(30) AS r(n);
CREATE VIEW {reading_name(CUSTOMERS)} AS SELECT * FROM c;
CREATE VIEW {reading_name(ORDERS)} AS SELECT * FROM o;
CREATE TABLE rc AS SELECT * FROM (VALUES
    (0, 1, 1, 10, 0, 'k1'::BLOB, {FRAME}), (0, 2, 1, 20, 0, 'k1'::BLOB, NULL),
    (0, 3, 1, 30, 0, 'k1'::BLOB, {FRAME}), (1, 0, 1, 5, 0, 'k2'::BLOB, {FRAME})
) AS t(part, off, epoch, commit_lsn, sequence, key, value);
CREATE TABLE ro AS SELECT 0 AS part, n AS off, 1 AS epoch, n AS commit_lsn, 0 AS sequence,
    n::VARCHAR::BLOB AS key, {FRAME} AS value FROM range(30) AS r(n);
"""
TOTALS = """-- key: customer_id
SELECT c.customer_id, c.name, sum(o.amount) AS total
FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id
GROUP BY c.customer_id, c.name
"""
NESTED = """-- key: customer_id
WITH own AS (
    SELECT customer_id, collect_list(struct(order_id, amount)) AS orders
    FROM orders GROUP BY customer_id
)
SELECT c.customer_id, c.name, own.orders
FROM customers c LEFT JOIN own ON own.customer_id = c.customer_id
"""


def columns(kinds):
    return tuple(LoggedColumn(name, name, kind, nullable=True) for name, kind in kinds.items())


def explanation(sql: str, key: str):
    spec = parse_sql_view("totals", Path("totals.sql"), sql)
    frontier = Frontier(slot="s", epoch=1, lsn=Lsn(99), ts_us=0)
    verdict = Verdict(VerdictKind.EXACT, None, ())
    cut = Cut(
        record=FrontierRecord(frontier, 0, 0),
        topics={},
        states={},
        verdict=verdict,
        started_ms=0,
        settings=ReplaySettings(),
    )
    with duckdb.connect() as database:
        database.execute(SETUP)
        work = _Tracing(database, spec, parse_key(spec, key), Plan(cut.record, cut))
        for table, base, raw, own, kinds in (
            (CUSTOMERS, "c", "rc", ("customer_id",), {"customer_id": INTEGER, "name": TEXT}),
            (
                ORDERS,
                "o",
                "ro",
                ("order_id",),
                {"order_id": INTEGER, "customer_id": INTEGER, "amount": decimal_type(9, 2)},
            ),
        ):
            if table in spec.tables:
                work._states[table] = TableState(table, table.table, base, columns(kinds), own)
                none = FoldedTable(database, "")
                work._folded[table] = Folded(table, table.table, 4, none, None, None, None, raw)
        return work.explanation()


def test_a_row_is_told_with_its_records_and_those_that_they_superseded():
    found = explanation(TOTALS, "1")
    assert found.row == {"customer_id": "1", "name": "Ann", "total": "435.00"}
    customers, orders = found.sources
    (record,) = customers.records
    assert (record.place.partition, record.place.offset, record.place.schema_id) == (0, 3, 7)
    assert str(record.place.position.commit_lsn) == str(Lsn(30))
    assert [(each.offset, each.deleted) for each in record.superseded] == [(2, True), (1, False)]
    assert (orders.count, len(orders.records)) == (30, 30)
    told = "\n".join(found.lines())
    assert "total = 435.00: o.amount; by SUM(`o`.`amount`)" in told
    assert "more" not in told
    assert "superseded: partition 0, offset 2" in told
    assert found.to_json()["sources"][1]["count"] == 30


def test_an_outer_join_without_a_match_has_no_record():
    found = explanation(TOTALS, "2")
    assert found.row == {"customer_id": "2", "name": "Bob", "total": None}
    assert [each.count for each in found.sources] == [1, 0]


UNTRACED = (
    "-- key: customer_id\nSELECT customer_id, count(*) AS n FROM orders "
    "GROUP BY ROLLUP (customer_id)"
)
FUNCTION_OF_ROWS = "-- key: customer_id\nSELECT max(customer_id) AS customer_id FROM orders"


@pytest.mark.parametrize("sql", [TOTALS, NESTED, UNTRACED, FUNCTION_OF_ROWS])
def test_a_key_that_the_view_lacks_is_an_error(sql):
    with pytest.raises(NoSuchRowError, match="has no row with the key customer_id = 404"):
        explanation(sql, "404")


def test_nested_documents_are_traced_to_the_records_in_them():
    found = explanation(NESTED, "1")
    customers, orders = found.sources
    assert [each.key for each in customers.records] == [{"customer_id": "1"}]
    assert (orders.alias, orders.count) == ("orders", 30)
    assert [each.key["order_id"] for each in orders.records] == [str(n) for n in range(30)]
    assert ("orders", "amount") in found.fields["orders"].columns
    without = explanation(NESTED, "2")
    assert [each.count for each in without.sources] == [1, 0]


def test_groups_of_groups_and_unions_are_traced():
    found = explanation(
        "-- key: customer_id\nWITH t AS (SELECT customer_id, count(*) AS n FROM orders "
        "GROUP BY customer_id HAVING count(*) > 1), u AS (SELECT customer_id FROM customers "
        "UNION ALL SELECT customer_id FROM t WHERE n > 7) "
        "SELECT customer_id, count(*) AS times FROM u GROUP BY customer_id",
        "1",
    )
    assert found.row == {"customer_id": "1", "times": "2"}
    assert [(each.table, each.count) for each in found.sources] == [(CUSTOMERS, 1), (ORDERS, 30)]


def test_what_is_not_traced_names_its_tables_and_columns():
    found = explanation(UNTRACED, "1")
    assert found.row == {"customer_id": "1", "n": "30"}
    assert [each.count for each in found.sources] == [None]
    assert found.fields["customer_id"].columns == (("orders", "customer_id"),)
    assert "ROLLUP" in found.notes[0]


@pytest.mark.parametrize(
    ("key", "text", "wanted"),
    [
        ("a", "x", {"a": "x"}),
        ("a", "[1]", {"a": "[1]"}),
        ("a", '{"a": 1}', {"a": "1"}),
        ("a, b", '["x", 1.50]', {"a": "x", "b": "1.50"}),
        ("a, b", '{"b": true, "a": 2}', {"a": "2", "b": "true"}),
        ("a, b", "x", None),
        ("a, b", "[1]", None),
        ("a, b", '{"a": 1}', None),
    ],
)
def test_a_key_is_read_as_text_or_json(key, text, wanted):
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: {key}\nSELECT a, b FROM orders")
    if wanted is None:
        with pytest.raises(ViewError, match="is not a key"):
            parse_key(spec, text)
    else:
        assert parse_key(spec, text) == wanted


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("a", "AA", {"a": "AA"}),
        ("a", "{AA", {"a": "{AA"}),
        ("a", 17, {"a": "17"}),
        ("a", ("AA",), {"a": "AA"}),
        ("a", ["AA"], {"a": "AA"}),
        ("a", {"a": "AA"}, {"a": "AA"}),
        ("a, b", ("AA", True), {"a": "AA", "b": "true"}),
        ("a, b", {"b": 2, "a": 1}, {"a": "1", "b": "2"}),
        ("a, b", "AA", None),
        ("a", ("AA", "BB"), None),
        ("a", {"b": 1}, None),
        ("a", None, None),
    ],
)
def test_a_key_in_python_is_a_value_a_tuple_or_a_mapping(key, value, wanted):
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: {key}\nSELECT a, b FROM orders")
    if wanted is None:
        with pytest.raises(ViewError, match=r'is not a key of view "v" .* its key is a'):
            key_of(spec, value)
    else:
        assert key_of(spec, value) == wanted


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (
            "timestamptz '2020-01-01 00:00:00.5+00'",
            datetime(2020, 1, 1, 0, 0, 0, 500_000, UTC),
            True,
        ),
        ("timestamptz '2020-01-01 00:00:00+00'", datetime(2020, 1, 1, 1, tzinfo=UTC), False),
        ("timestamp '2020-01-01 00:00:00'", "2020-01-01 00:00:00", True),
        ("timestamp 'infinity'", "infinity", True),
        ("'\\xAB\\x01a'::BLOB", b"\xab\x01a", True),
        ("date '2020-01-01'", date(2020, 1, 1), True),
        ("1.5::DECIMAL(9, 2)", Decimal("1.50"), True),
    ],
)
def test_values_of_python_are_found_in_a_column(value, kind, wanted):
    spec = parse_sql_view("v", Path("v.sql"), "-- key: a\nSELECT a, b FROM orders")
    with scratch(None, MEMORY_LIMIT) as database:
        database.execute(f"CREATE TABLE t AS SELECT {value} AS a")
        ((_, type_, *_),) = database.execute("DESCRIBE t").fetchall()
        query = f"SELECT {_is_key(['a'], {'a': type_})} FROM t"
        assert database.execute(query, list(key_of(spec, kind).values())).fetchall() == [(wanted,)]
