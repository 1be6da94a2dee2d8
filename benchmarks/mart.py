"""A mart of customers, orders, lines, parts and suppliers that changes all the time, and six views.

The tables are the ones that TPC-H has an application of, in the columns that such views read. The
views are of six kinds: a document with nested rows, a flat document of a join, a card with sums, a
histogram over an inner query, sums over a chain of joins, and averages with distinct counts.

`Writer` changes about so many rows a second as an application would. Each probe of it is one
transaction that gives a few rows of its own the next number, so that each of the six views shows
which probe it has come to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import psycopg2

from benchmarks import probes
from benchmarks.orders import execute
from benchmarks.probes import Cursor

TABLES = ("nations", "customers", "suppliers", "parts", "orders", "lines")
LINES = 4
"""Of each order."""
NATIONS, BRANDS, SIZES = 25, 25, 50
SUPPLIERS = 200
PROBE = 900_000_000
"""The key of the customer, order, part, supplier and nation that only probes touch."""
COUNTED = PROBE + 1
"""The customer that gets one more order with each probe: the histogram shows how many it has."""
MANY = 1_000
"""Orders that this one has at first: more than any other."""
Change = Callable[[Cursor, int], None]
"""Changes about so many rows in one way."""

VIEWS = {
    "order_documents": """-- key: id
-- sinks: search
SELECT o.id, o.status, o.total, o.day, c.name AS customer, n.name AS nation,
  sort_array(collect_list(struct(l.no, p.name, l.quantity)) FILTER (WHERE l.no IS NOT NULL))
    AS lines
FROM orders o JOIN customers c ON c.id = o.customer_id JOIN nations n ON n.id = c.nation_id
LEFT JOIN lines l ON l.order_id = o.id LEFT JOIN parts p ON p.id = l.part_id
GROUP BY o.id, o.status, o.total, o.day, c.name, n.name
""",
    "open_lines": """-- key: order_id, no
-- sinks: search
SELECT l.order_id, l.no, o.customer_id, o.status, s.name AS supplier, p.name AS part, l.price
FROM lines l JOIN orders o ON o.id = l.order_id JOIN suppliers s ON s.id = l.supplier_id
LEFT JOIN parts p ON p.id = l.part_id
WHERE o.status <> 'F' AND l.flag = 'N'
""",
    "customer_cards": """-- key: id
-- sinks: cache
SELECT c.id, c.name, c.segment, n.name AS nation, count(o.id) AS orders,
  coalesce(sum(o.total), 0) AS total, max(o.day) AS last_day
FROM customers c LEFT JOIN nations n ON n.id = c.nation_id
LEFT JOIN orders o ON o.customer_id = c.id
GROUP BY c.id, c.name, c.segment, n.name
""",
    "order_counts": """-- key: orders
-- sinks: cache
SELECT orders, count(*) AS customers FROM (
  SELECT c.id, count(o.id) AS orders FROM customers c
  LEFT JOIN orders o ON o.customer_id = c.id AND o.note NOT LIKE '%special%requests%'
  GROUP BY c.id
) AS counted GROUP BY orders
""",
    "nation_revenue": """-- key: id
-- sinks: postgres
SELECT n.id, n.name, count(*) AS lines, sum(l.price * (1 - l.discount)) AS revenue
FROM nations n JOIN customers c ON c.nation_id = n.id JOIN orders o ON o.customer_id = c.id
JOIN lines l ON l.order_id = o.id
GROUP BY n.id, n.name
""",
    "brand_averages": """-- key: brand, size
-- sinks: postgres
SELECT p.brand, p.size, avg(l.quantity) AS quantity, count(DISTINCT l.supplier_id) AS suppliers
FROM parts p JOIN lines l ON l.part_id = p.id WHERE l.discount >= 0.05
GROUP BY p.brand, p.size
""",
}
SHOWN = {
    "order_documents": ("search", "id status total day customer nation lines"),
    "open_lines": ("search", "order_id no customer_id status supplier part price"),
    "customer_cards": ("cache", "id name segment nation orders total last_day"),
    "order_counts": ("cache", "orders customers"),
    "nation_revenue": ("postgres", "id name lines revenue"),
    "brand_averages": ("postgres", "brand size quantity suppliers"),
}
"""Of each view the kind of its sink, and its columns."""
ANSWERS = {
    "order_documents": """
SELECT o.id, o.status, o.total, o.day, c.name, n.name,
  (SELECT coalesce(json_agg(json_build_array(l.no, p.name, l.quantity) ORDER BY l.no), '[]')
   FROM lines l LEFT JOIN parts p ON p.id = l.part_id WHERE l.order_id = o.id)
FROM orders o JOIN customers c ON c.id = o.customer_id JOIN nations n ON n.id = c.nation_id
""",
    "open_lines": VIEWS["open_lines"],
    "customer_cards": VIEWS["customer_cards"],
    "order_counts": VIEWS["order_counts"],
    "nation_revenue": VIEWS["nation_revenue"],
    "brand_averages": VIEWS["brand_averages"].replace(
        "avg(l.quantity)", "round(avg(l.quantity), 6)"
    ),
}
"""The same of PostgreSQL; Spark's avg has six decimal places of these numbers."""


def make(dsn: str, orders: int) -> None:
    """Make the tables; a tenth as many customers as orders, four lines each."""
    customers, parts = max(orders // 10, 100), max(orders // 8, 100)
    execute(
        dsn,
        "CREATE TABLE nations (id int PRIMARY KEY, name text NOT NULL)",
        "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, "
        "nation_id int NOT NULL, segment text)",
        "CREATE TABLE suppliers (id int PRIMARY KEY, name text NOT NULL)",
        "CREATE TABLE parts (id int PRIMARY KEY, name text, brand text, size int)",
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int NOT NULL, "
        "status char(1) NOT NULL, total numeric(15, 2) NOT NULL, day date, note text NOT NULL)",
        "CREATE TABLE lines (order_id bigint, no int, part_id int, supplier_id int NOT NULL, "
        "quantity numeric(15, 2), price numeric(15, 2), discount numeric(15, 2), flag char(1), "
        "comment text, PRIMARY KEY (order_id, no))",
        f"INSERT INTO nations SELECT n, 'NATION ' || n FROM generate_series(0, {NATIONS - 1}) n",
        "INSERT INTO customers SELECT n, 'Customer#' || lpad(n::text, 9, '0'), "
        f"n % {NATIONS}, 'SEGMENT ' || n % 5 FROM generate_series(1, {customers}) n",
        "INSERT INTO suppliers SELECT n, 'Supplier#' || lpad(n::text, 9, '0') "
        f"FROM generate_series(1, {SUPPLIERS}) n",
        "INSERT INTO parts SELECT n, 'part ' || md5(n::text), 'Brand#' || n % "
        f"{BRANDS}, 1 + n / {BRANDS} % {SIZES} FROM generate_series(1, {parts}) n",
        f"INSERT INTO orders SELECT n, 1 + n * 7 % {customers}, substr('OPF', 1 + n % 3, 1), "
        "(n % 99991) / 100.0, date '2026-01-01' + n % 365, "
        "CASE n % 20 WHEN 0 THEN 'special late requests' ELSE 'plain' END "
        f"FROM generate_series(1, {orders}) n",
        f"INSERT INTO lines SELECT n, no, 1 + (n * 31 + no * 7) % {parts}, "
        f"1 + (n * 13 + no) % {SUPPLIERS}, 1 + n % 50, (n * no % 99991) / 100.0, "
        "(n + no) % 11 / 100.0, substr('NRA', 1 + (n + no) % 3, 1), md5(n::text) "
        f"FROM generate_series(1, {orders}) n, generate_series(1, {LINES}) no",
        f"INSERT INTO nations VALUES ({PROBE}, 'PROBES'), ({COUNTED}, 'COUNTED')",
        f"INSERT INTO customers VALUES ({PROBE}, 'probe', {PROBE}, 'probe'), "
        f"({COUNTED}, 'counted', {COUNTED}, 'probe')",
        f"INSERT INTO suppliers VALUES ({PROBE}, 'probe')",
        f"INSERT INTO parts VALUES ({PROBE}, 'probe', 'probe', 0)",
        f"INSERT INTO orders VALUES ({PROBE}, {PROBE}, 'O', 0, '2026-01-01', 'plain')",
        f"INSERT INTO lines VALUES ({PROBE}, 1, {PROBE}, {PROBE}, 0, 0, 0.05, 'N', 'probe')",
        f"INSERT INTO orders SELECT {COUNTED} + n, {COUNTED}, 'F', 1, '2026-01-01', 'plain' "
        f"FROM generate_series(1, {MANY}) n",
        "ANALYZE",
    )


def probe(cursor: Cursor, stamp: int) -> None:
    """Give the rows that only probes touch the next number."""
    cursor.execute("UPDATE orders SET total = %s WHERE id = %s", [stamp, PROBE])
    cursor.execute(
        "UPDATE lines SET quantity = %s, price = %s WHERE order_id = %s", [stamp, stamp, PROBE]
    )
    cursor.execute(
        "INSERT INTO orders VALUES (%s, %s, 'F', 1, '2026-01-01', 'plain')",
        [COUNTED + MANY + stamp, COUNTED],
    )


class Writer(probes.Writer):
    """Changes rows as an application of the mart would; it has one probe, 1."""

    probe_every_s = 0.25

    def burst(self, rows: int) -> float:
        """Change so many rows in one transaction, with a probe; returns when it had committed."""
        with closing(psycopg2.connect(self.dsn)) as connection:
            with connection, connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE lines SET quantity = quantity + 1 WHERE (order_id, no) IN ("
                    "SELECT order_id, no FROM lines WHERE order_id < %s "
                    "ORDER BY order_id, no LIMIT %s)",
                    [PROBE, rows],
                )
                if cursor.rowcount != rows:
                    raise ValueError(f"there are {cursor.rowcount} lines, and not {rows}")
                stamp = len(self.commits) + 1
                probe = self.probe(cursor, stamp)
            now = time.monotonic()
            self.commits[stamp] = probe, now
            return now

    def probe(self, cursor: Cursor, stamp: int) -> int:
        """Give the rows that only probes touch the next number."""
        probe(cursor, stamp)
        self.changes += 3
        return 1

    @property
    def kinds(self) -> dict[str, tuple[Change, float]]:
        """Return the kinds of changes, and which part of all changed rows each has."""
        return {
            "lines": (self._lines, 0.40),
            "orders": (self._orders, 0.30),
            "new": (self._new, 0.14),
            "gone": (self._gone, 0.10),
            "moved": (self._moved, 0.02),
            "customers": (self._customers, 0.025),
            "parts": (self._parts, 0.01),
            "taken_back": (self._taken_back, 0.003),
            "suppliers": (self._suppliers, 0.001),
            "nations": (self._nations, 0.00005),
        }

    def change(self, cursor: Cursor, count: int) -> None:
        """Make about so many changes."""
        for change, share in self.kinds.values():
            if (some := self._some(share * count)) > 0:
                change(cursor, some)

    def _orders(self, cursor: Cursor, count: int) -> None:
        """Give orders another state, and some of them another customer."""
        cursor.execute(
            "UPDATE orders SET status = %s, total = total + 0.01, customer_id = "
            "CASE WHEN id %% 4 = 0 THEN %s ELSE customer_id END WHERE id = ANY (%s)",
            [self._random.choice("OPF"), self._customer(), self._ids(count)],
        )
        self.changes += cursor.rowcount

    def _lines(self, cursor: Cursor, count: int) -> None:
        cursor.execute(
            "UPDATE lines SET quantity = quantity + 1, flag = %s, part_id = %s "
            "WHERE order_id = ANY (%s)",
            [self._random.choice("NRA"), self._part(), self._ids(-(-count // LINES))],
        )
        self.changes += cursor.rowcount

    def _new(self, cursor: Cursor, count: int) -> None:
        for _ in range(self._some(count / (1 + LINES))):
            new = self._take()
            cursor.execute(
                "INSERT INTO orders VALUES (%s, %s, 'O', 100, '2026-06-01', 'plain')",
                [new, self._customer()],
            )
            cursor.execute(
                "INSERT INTO lines SELECT %s, no, %s, %s, no, 25, 0.05, 'N', 'new' "
                "FROM generate_series(1, %s) no",
                [new, self._part(), self._random.randint(1, SUPPLIERS), LINES],
            )
            self.changes += 1 + LINES

    def _gone(self, cursor: Cursor, count: int) -> None:
        gone = self._ids(self._some(count / (1 + LINES)))
        for table, column in (("lines", "order_id"), ("orders", "id")):
            cursor.execute(f"DELETE FROM {table} WHERE {column} = ANY (%s)", [gone])
            self.changes += cursor.rowcount

    def _moved(self, cursor: Cursor, count: int) -> None:
        """Give orders and their lines another key."""
        for order in self._ids(self._some(count / (1 + LINES))):
            new = self._take()
            for table, column in (("lines", "order_id"), ("orders", "id")):
                text = f"UPDATE {table} SET {column} = %s WHERE {column} = %s"
                cursor.execute(text, [new, order])
                self.changes += cursor.rowcount

    def _customers(self, cursor: Cursor, count: int) -> None:
        cursor.execute(
            "UPDATE customers SET name = reverse(name), nation_id = %s WHERE id = ANY (%s)",
            [self._random.randrange(NATIONS), [self._customer() for _ in range(count)]],
        )
        self.changes += cursor.rowcount

    def _parts(self, cursor: Cursor, count: int) -> None:
        cursor.execute(
            "UPDATE parts SET name = reverse(name), size = %s WHERE id = ANY (%s)",
            [self._random.randint(1, SIZES), [self._part() for _ in range(count)]],
        )
        self.changes += cursor.rowcount

    def _suppliers(self, cursor: Cursor, count: int) -> None:
        cursor.execute(
            "UPDATE suppliers SET name = reverse(name) WHERE id = ANY (%s)",
            [[self._random.randint(1, SUPPLIERS) for _ in range(count)]],
        )
        self.changes += cursor.rowcount

    def _nations(self, cursor: Cursor, _count: int) -> None:
        cursor.execute(
            "UPDATE nations SET name = reverse(name) WHERE id = %s",
            [self._random.randrange(NATIONS)],
        )
        self.changes += cursor.rowcount

    def _taken_back(self, cursor: Cursor, _count: int) -> None:
        """Delete orders up to a savepoint that is gone back to, and change one behind it."""
        (order,) = self._ids(1)
        cursor.execute("SAVEPOINT before")
        cursor.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", [order, order + 50])
        cursor.execute("ROLLBACK TO before")
        cursor.execute("UPDATE orders SET note = 'special requests' WHERE id = %s", [order])
        self.changes += cursor.rowcount

    def _take(self) -> int:
        self._next_order += 1
        return self._next_order - 1

    def _customer(self) -> int:
        return self._random.randint(1, max(self.orders // 10, 100))

    def _part(self) -> int:
        return self._random.randint(1, max(self.orders // 8, 100))

    def _ids(self, count: int) -> list[int]:
        """Return orders that may be there, old and new ones."""
        return [self._random.randrange(1, self._next_order) for _ in range(count)]
