"""A shop whose rows change all the time: customers, their orders, the lines of these.

`Writer` changes some thousand rows a second in small transactions, as an application would: most
of them updates of orders, some of lines, new orders with their lines, deletes, and now and then a
customer, which each of their orders shows. Some orders are probes: only the probe touches them, and
`stamp` says which of its changes one sees.
"""

from __future__ import annotations

from benchmarks import probes
from benchmarks.orders import execute
from benchmarks.probes import Cursor

TABLES = ("customers", "orders", "lines")
DECLARED = {
    "customers": 'key = ["id"]\ncolumns = { id = "bigint", name = "string", city = "string" }',
    "orders": 'key = ["id"]\ncolumns = { id = "bigint", customer_id = "bigint", status = "string", '
    'amount = "decimal(12,2)", stamp = "bigint", placed = "timestamp" }',
    "lines": 'key = ["order_id", "no"]\ncolumns = { order_id = "bigint", no = "int", '
    'sku = "string", quantity = "int" }',
}
"""The tables as logs of another program, where they are captured as documents."""
LINES = 2
"""Of each order."""
_PROBES = 40
_MIX = {"orders": 0.70, "lines": 0.18, "new": 0.03, "gone": 0.02, "customers": 0.01}
"""Which part of the changes is of what; a new or deleted order counts with its lines."""

VIEWS = {
    "order_documents": "-- key: id\n-- sinks: search\n"
    "SELECT o.id, o.status, o.amount, o.stamp, c.name AS customer, c.city,\n"
    "  collect_list(struct(l.no, l.sku, l.quantity)) FILTER (WHERE l.no IS NOT NULL) AS lines\n"
    "FROM orders o JOIN customers c ON c.id = o.customer_id\n"
    "LEFT JOIN lines l ON l.order_id = o.id\n"
    "GROUP BY o.id, o.status, o.amount, o.stamp, c.name, c.city\n",
    "order_entries": "-- key: id\n-- sinks: cache\n"
    "SELECT id, customer_id, status, amount, stamp, placed FROM orders\n",
    "customer_totals": "-- key: customer_id\n-- sinks: postgres\n"
    "SELECT o.customer_id, c.name, count(*) AS orders, sum(o.amount) AS amount,\n"
    "  max(o.stamp) AS stamp\n"
    "FROM orders o JOIN customers c ON c.id = o.customer_id\n"
    "GROUP BY o.customer_id, c.name\n",
}


def make(dsn: str, orders: int) -> None:
    """Make the tables; a tenth as many customers as orders, two lines each."""
    customers = max(orders // 10, _PROBES * 2)
    execute(
        dsn,
        "CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, city text)",
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint NOT NULL, status text, "
        "amount numeric(12, 2), stamp bigint NOT NULL, placed timestamptz)",
        "CREATE TABLE lines (order_id bigint, no int, sku text, quantity int, "
        "PRIMARY KEY (order_id, no))",
        "INSERT INTO customers SELECT n, 'customer ' || n, 'city ' || n % 500 "
        f"FROM generate_series(1, {customers}) n",
        f"INSERT INTO orders SELECT n, 1 + n % {customers}, 'paid', (n % 99991) / 100.0, 0, "
        f"timestamptz '2026-01-01Z' + n * interval '1 second' FROM generate_series(1, {orders}) n",
        "INSERT INTO lines SELECT n, no, 'SKU-' || (n * 31 + no) % 99991, 1 + n % 9 "
        f"FROM generate_series(1, {orders}) n, generate_series(1, {LINES}) no",
        "ANALYZE",
    )


def probes_of(orders: int) -> range:
    """Return the ids of the orders that only probes touch; each has a customer of its own."""
    return range(orders - _PROBES + 1, orders + 1)


class Writer(probes.Writer):
    """Changes rows as an application of the shop would; each probe is an order."""

    probe_every_s = 0.1

    def probe(self, cursor: Cursor, stamp: int) -> int:
        """Give the next of the orders that only probes touch the stamp."""
        ids = probes_of(self.orders)
        order = ids[stamp % len(ids)]
        cursor.execute("UPDATE orders SET stamp = %s WHERE id = %s", [stamp, order])
        return order

    def change(self, cursor: Cursor, count: int) -> None:
        """Make about so many changes."""
        parts = {what: self._some(share * count) for what, share in _MIX.items()}
        last = self.orders - _PROBES
        last_customer = max(self.orders // 10, _PROBES * 2)
        cursor.execute(
            "UPDATE orders SET amount = amount + 0.01, status = %s WHERE id = ANY (%s)",
            [self._random.choice(("packed", "sent", "paid")), self._ids(parts["orders"], last)],
        )
        self.changes += cursor.rowcount
        cursor.execute(
            "UPDATE lines SET quantity = quantity %% 9 + 1 WHERE order_id = ANY (%s) AND no = 1",
            [self._ids(parts["lines"], last)],
        )
        self.changes += cursor.rowcount
        for _ in range(parts["new"]):
            new = self._next_order
            self._next_order += 1
            cursor.execute(
                "INSERT INTO orders VALUES (%s, %s, 'new', 1.00, 0, now())",
                [new, self._random.randint(1, last_customer)],
            )
            cursor.execute(
                "INSERT INTO lines SELECT %s, no, 'SKU-new', 1 FROM generate_series(1, %s) no",
                [new, LINES],
            )
            self.changes += 1 + LINES
        gone = self._ids(parts["gone"], last)
        for table, column in (("lines", "order_id"), ("orders", "id")):
            cursor.execute(f"DELETE FROM {table} WHERE {column} = ANY (%s)", [gone])
            self.changes += cursor.rowcount
        # Not of the probes: what is theirs alone changes by them alone.
        cursor.execute(
            "UPDATE customers SET city = 'city ' || %s WHERE id = ANY (%s)",
            [self._random.randint(0, 499), self._ids(parts["customers"], last_customer - _PROBES)],
        )
        self.changes += cursor.rowcount

    def _ids(self, count: int, last: int) -> list[int]:
        return [self._random.randint(1, last) for _ in range(count)]
