"""The law of views that are compared whole: what is sent makes of the old rows the new ones.

DuckDB, which no code under test is part of, says what the rows are before and after.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from tests.property.test_related import (
    COLUMNS,
    NAMES,
    SCHEMAS,
    computed,
    gone,
    record,
    states,
)
from tests.support.examples import examples
from views.project.spec import SqlSource
from views.project.sql import parse_sql_view
from views.rebuild.local.engine import LocalQuery
from views.rebuild.local.rows import WholeRows
from views.rebuild.local.table import LocalTable, opened
from views.rebuild.local.whole import WholeView
from views.rebuild.one_view.delta import logged_keys, select_affected

INT, LONG, TEXT = IntegerType(), LongType(), StringType()
QUERIES: list[tuple[str, dict]] = [
    (
        """SELECT n, count(*) AS customers FROM (
            SELECT c.id, count(o.id) AS n FROM customers c
            LEFT JOIN orders o ON o.customer = c.id AND o.amount > 0 GROUP BY c.id
        ) t GROUP BY n""",
        {"n": LONG, "customers": LONG},
    ),
    (
        """WITH t AS (
            SELECT customer, avg(amount) AS a, count(DISTINCT parent) AS n FROM orders
            GROUP BY customer
        ) SELECT c.id, c.name, t.a, t.n FROM customers c LEFT JOIN t ON t.customer = c.id""",
        {"id": INT, "name": TEXT, "a": DoubleType(), "n": LONG},
    ),
    (
        """SELECT c.id, c.name FROM customers c
        WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND o.amount > 1)""",
        {"id": INT, "name": TEXT},
    ),
    (
        """SELECT o.id FROM orders o WHERE o.parent NOT IN (SELECT region FROM customers)
        AND (o.amount > 1 OR NOT EXISTS (SELECT 1 FROM lines l WHERE l.orders_id = o.id))""",
        {"id": INT},
    ),
    ("SELECT DISTINCT amount FROM orders WHERE amount IS NOT NULL", {"amount": INT}),
    (
        "SELECT 1 AS one, count(*) AS n, sum(amount) AS s, min(parent) AS p FROM orders",
        {"one": INT, "n": LONG, "s": LONG, "p": INT},
    ),
    (
        """SELECT id FROM customers WHERE region > 1 UNION SELECT orders_id FROM lines
        EXCEPT SELECT parent FROM orders""",
        {"id": INT},
    ),
    (
        """SELECT coalesce(c.id, -1) AS c, coalesce(o.id, -1) AS o, o.amount FROM customers c
        FULL JOIN orders o ON o.customer = c.id""",
        {"c": INT, "o": INT, "amount": INT},
    ),
    (
        """SELECT id, customer FROM (
            SELECT id, customer, row_number() OVER (
                PARTITION BY customer ORDER BY amount DESC NULLS LAST, id
            ) AS n FROM orders
        ) t WHERE n = 1""",
        {"id": INT, "customer": INT},
    ),
]


def is_right(query: tuple[str, dict], old: dict, more: dict, without: dict) -> bool:
    """Tell whether the old rows and what is sent are the new rows, in each of two steps."""
    sql, columns = query
    key = [name for name in columns if name in {"c", "o"}] or list(columns)[:1]
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: {', '.join(key)}\n{sql}")
    source = spec.source
    assert isinstance(source, SqlSource)
    names = {place: f"p{number}" for number, place in enumerate(source.references)}

    def rows_of(state: dict) -> list[tuple]:
        frames = {p: (p.table.table, list(state[p.table.table].values())) for p in names}
        return computed(source, frames, names)

    def key_of(row: tuple) -> tuple:
        return tuple(row[list(columns).index(name)] for name in key)

    # What comes in the one step may go in the other.
    with_more = {name: {**old[name], **more[name]} for name in COLUMNS}
    at_end = {
        name: {k: r for k, r in rows.items() if k[0] not in without[name]}
        for name, rows in with_more.items()
    }
    with TemporaryDirectory() as folder, ExitStack() as closed:
        tables = {NAMES[name]: filled(folder, name, old[name]) for name in COLUMNS}
        for table in tables.values():
            closed.callback(table.close)
        schema = StructType([StructField(name, kind) for name, kind in columns.items()])
        local = LocalQuery(source, {NAMES[name]: SCHEMAS[name] for name in COLUMNS}, schema)
        for place, used in local.used.items():
            tables[place.table].want(used)
        view, was = WholeView(local, key, tables), old
        for number, now in enumerate((with_more, at_end), 2):
            for name in COLUMNS:
                changed = [
                    k for k in {**was[name], **now[name]} if was[name].get(k) != now[name].get(k)
                ]
                records = (
                    record(name, k, now[name].get(k), 100 * number + n)
                    for n, k in enumerate(changed)
                )
                tables[NAMES[name]].advance(records, Position(1, Lsn(number), 0))
            rows, keys = view.changed(tables)
            few = select_affected(rows, key, logged_keys(keys))
            named = {tuple(row.values()) for row in few.keys.to_pylist()}
            sent = [tuple(row.values()) for row in few.rows.to_pylist()]
            kept = [row for row in rows_of(was) if key_of(row) not in named]
            if sorted(map(repr, kept + sent)) != sorted(map(repr, rows_of(now))):
                return False
            was = now
    return True


def filled(folder: str, name: str, rows: dict) -> LocalTable:
    table = LocalTable(opened(f"{folder}/{name}.sqlite"), name, SCHEMAS[name], ())
    live = (record(name, k, r, n) for n, (k, r) in enumerate(rows.items()))
    table.fill(live, Position(1, Lsn(1), 0))
    return table


@pytest.mark.parametrize("query", QUERIES, ids=[str(n) for n in range(len(QUERIES))])
@given(old=states, more=states, without=gone)
@examples(8)
def test_what_differs_makes_of_the_old_rows_the_new_ones(query, old, more, without):
    assert is_right(query, old, more, without)


def test_twin_rows_that_are_gone_have_to_be_taken_out(monkeypatch):
    nothing: dict[str, dict] = {name: {} for name in COLUMNS}
    old = {**nothing, "orders": {(1,): (1, 1, None, 2), (2,): (2, 1, None, 3)}}
    none: dict[str, set] = {name: set() for name in COLUMNS}
    without = {**none, "orders": {2}}
    assert is_right(QUERIES[5], old, nothing, without)
    sound = WholeRows.advance
    monkeypatch.setattr(WholeRows, "advance", lambda self, _older, newer: sound(self, (), newer))
    assert not is_right(QUERIES[5], old, nothing, without)
