"""The writers of the storm: one a lane, each transaction drawn from the seed."""

from collections import Counter
from contextlib import closing

import psycopg2

from tests.soak.frontiers import lsn_number
from tests.soak.part import Part
from tests.soak.source import (
    ACCOUNTS,
    DOCUMENT,
    LANES,
    NOTES,
    TRIGGERS,
    connect,
    notes_of,
    transaction,
)

MOST_TABLES = 4
MOST_ROWS = 6000
LARGE = 2000
MANY = 1 << 64
_NAP_S = 0.3
WEIGHTS = {
    "insert": 30,
    "update": 30,
    "rewrite": 5,
    "remove": 10,
    "move": 8,
    "several": 8,
    "transfer": 15,
    "across": 8,
    "abandon": 3,
    "half": 2,
    "large": 0.6,
    "prune": 0.5,
    "truncate": 0.15,
    "add_column": 0.25,
    "drop_column": 0.15,
    "make_table": 0.05,
    "fill_made": 2,
}
"""How often a lane's writer makes transactions of each kind."""


class AbandonedError(Exception):
    """A transaction that its writer takes back."""


class Changes(Part):
    """Writes transactions of many kinds until `stop`, waits while the server is away.

    `done` counts what was committed and changed something, by its kind.
    """

    def __init__(self, name, dsn, lane, table, seed, stop, *, rate, frontiers):
        """Take the frontiers: what PostgreSQL itself forgets is not asked of who did not see it.

        `table`: the one that gets columns and loses them.
        """
        super().__init__(name, seed, stop)
        self._frontiers = frontiers
        self._altered = 0
        self._dsn, self._lane, self._rate = dsn, lane, rate
        self._altering = table
        self._columns = []
        self.done: Counter[str] = Counter()

    def work(self):
        while not self._stopped.is_set():
            try:
                with closing(connect(self._dsn)) as connection:
                    self._ask(connection)
                    self._write(connection)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                self._stopped.wait(_NAP_S)

    def kinds(self):
        """Return the weight of each kind of transaction, by its name."""
        raise NotImplementedError

    def changes(self, kind, cursor):
        """Make a transaction of a kind; tells whether it changes something."""
        raise NotImplementedError

    def _ask(self, connection):
        """Ask for columns: whether the last commit came to be is not known."""
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name FROM information_schema.columns"
                " WHERE column_name LIKE 'more%%' AND table_name = %s ORDER BY 1",
                (self._altering,),
            )
            self._columns = [name for (name,) in cursor.fetchall()]
            self._note_altered(cursor)

    def _write(self, connection):
        while not self._stopped.wait(self._random.expovariate(self._rate)):
            kind = self.draw(self.kinds())
            try:
                with transaction(connection, self._lanes(kind)) as cursor:
                    happened = self.changes(kind, cursor)
                if happened:
                    self.done[kind] += 1
                else:
                    self.owe(kind)
                if self._altered == MANY:
                    with connection, connection.cursor() as cursor:
                        self._note_altered(cursor)
            except AbandonedError:
                self.done[kind] += 1
            except (
                psycopg2.errors.LockNotAvailable,
                psycopg2.errors.DeadlockDetected,
                psycopg2.errors.UniqueViolation,
            ):
                self.done["refused"] += 1
                self.owe(kind)
                self._ask(connection)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                self.owe(kind)  # whether it came to be is not known
                raise

    def _lanes(self, _kind):
        return (self._lane,)

    def _tick(self):
        return f"current_setting('soak.tick_{self._lane}')::bigint"

    def _note_altered(self, cursor):
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        ((lsn,),) = cursor.fetchall()
        self._altered = lsn_number(lsn)

    def _is_seen(self):
        """Tell whether a frontier has passed the last ALTER TABLE.

        TRUNCATE and DROP COLUMN take from the catalogue with which constant a column was added:
        whoever has not seen it by then has to refuse the table.
        """
        return self._frontiers.has_passed(self._altered)

    def _add_column(self, cursor):
        number = self._random.randrange(10**9)
        name, value = f"more{number}", self._random.choice([None, self._random.randrange(1000)])
        default = "" if value is None else f" DEFAULT {value}"
        cursor.execute(f"ALTER TABLE {self._altering} ADD COLUMN {name} integer{default}")
        self._note_column(cursor, "add", name, value)
        self._columns.append(name)
        self._altered = MANY  # until its transaction has its end
        return True

    def _drop_column(self, cursor):
        if not (self._columns and self._is_seen()):
            return False
        name = self._columns.pop(self._random.randrange(len(self._columns)))
        cursor.execute(f"ALTER TABLE {self._altering} DROP COLUMN {name}")
        self._note_column(cursor, "drop", name, None)
        return True

    def _note_column(self, cursor, action, name, value):
        cursor.execute(
            f"INSERT INTO audit.columns VALUES (%s, {self._tick()}, %s, %s, %s, to_jsonb(%s::int))",
            (self._lane, self._altering, action, name, value),
        )


class Writer(Changes):
    """One lane's writer."""

    def __init__(self, dsn, lane, seed, stop, *, rate, frontiers):
        named = {"rate": rate, "frontiers": frontiers}
        super().__init__(f"writer {lane}", dsn, lane, notes_of(lane), seed, stop, **named)
        self._notes = notes_of(lane)
        self._next_id = 1
        self._made = []

    def kinds(self):
        return WEIGHTS

    def changes(self, kind, cursor):
        return getattr(self, f"_{kind}")(cursor) is not False

    def _ask(self, connection):
        super()._ask(connection)
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_name FROM information_schema.tables"
                " WHERE table_name LIKE %s ORDER BY 1",
                (f"made_{self._lane}_%",),
            )
            self._made = [name for (name,) in cursor.fetchall()]

    def _lanes(self, kind):
        if kind != "across":
            return (self._lane,)
        other = self._random.choice([lane for lane in LANES if lane != self._lane])
        self._other = other
        return (self._lane, other)

    def _some_id(self):
        place = self._random.randrange(1, self._next_id + 1)
        return f"(SELECT id FROM {self._notes} WHERE id >= {place} ORDER BY id LIMIT 1)"

    def _insert(self, cursor, rows=1):
        for _ in range(rows):
            text = DOCUMENT.format(self._random.choice([1, 4, 120, 300]))
            cursor.execute(
                f"INSERT INTO {self._notes} (id, tick, amount, at, flag, note, doc) VALUES"
                f" (%s, {self._tick()}, %s, clock_timestamp(), %s, %s, {text})",
                (
                    self._next_id,
                    self._random.randrange(-(10**6), 10**6) / 100,
                    self._random.choice([True, False, None]),
                    self._random.choice([None, "", "ä ß €", "plain", "back\\slash\tand tab"]),
                ),
            )
            self._next_id += 1

    def _update(self, cursor):
        """Leave the large column alone: the stream then does not carry it."""
        more = ""
        if self._columns:
            more = f", {self._random.choice(self._columns)} = {self._random.randrange(99)}"
        cursor.execute(
            f"UPDATE {self._notes} SET tick = {self._tick()}, amount = %s, note = %s{more}"
            f" WHERE id = {self._some_id()}",
            (self._random.randrange(10**6) / 100, self._random.choice([None, "changed", "x" * 50])),
        )
        return cursor.rowcount > 0

    def _rewrite(self, cursor):
        text = self._random.choice(["NULL", DOCUMENT.format(200), DOCUMENT.format(2)])
        cursor.execute(
            f"UPDATE {self._notes} SET tick = {self._tick()}, doc = {text}"
            f" WHERE id = {self._some_id()}"
        )
        return cursor.rowcount > 0

    def _remove(self, cursor):
        cursor.execute(f"DELETE FROM {self._notes} WHERE id = {self._some_id()}")
        return cursor.rowcount > 0

    def _move(self, cursor):
        """Change a key: to one never used, or to one that was deleted before."""
        free = f"(SELECT {self._random.randrange(1, self._next_id + 1)})"
        cursor.execute(
            f"UPDATE {self._notes} SET id = {free}, tick = {self._tick()}"
            f" WHERE id = {self._some_id()}"
            f" AND NOT EXISTS (SELECT FROM {self._notes} WHERE id = {free})"
        )
        return cursor.rowcount > 0

    def _several(self, cursor):
        for _ in range(self._random.randrange(2, 30)):
            self._random.choice([self._insert, self._update, self._remove, self._move])(cursor)

    def _pay(self, cursor, lane, account, amount):
        cursor.execute(
            "UPDATE bank SET balance = balance + %s,"
            " tick = (SELECT tick FROM clock WHERE clock.lane = bank.lane)"
            " WHERE lane = %s AND account = %s",
            (amount, lane, account),
        )

    def _transfer(self, cursor):
        amount = self._random.randrange(1, 5000) / 100
        one, other = self._random.sample(range(1, ACCOUNTS + 1), 2)
        self._pay(cursor, self._lane, one, -amount)
        self._pay(cursor, self._lane, other, amount)

    def _across(self, cursor):
        amount = self._random.randrange(1, 5000) / 100
        self._pay(cursor, self._lane, self._random.randrange(1, ACCOUNTS + 1), -amount)
        self._pay(cursor, self._other, self._random.randrange(1, ACCOUNTS + 1), amount)

    def _abandon(self, cursor):
        self._several(cursor)
        raise AbandonedError

    def _half(self, cursor):
        self._insert(cursor)
        cursor.execute("SAVEPOINT half")
        self._several(cursor)
        cursor.execute("ROLLBACK TO SAVEPOINT half")
        self._update(cursor)

    def _large(self, cursor):
        cursor.execute(
            f"INSERT INTO {self._notes} (id, tick, amount, at, note)"
            f" SELECT n, {self._tick()}, n %% 1000, clock_timestamp(), 'large ' || n"
            f" FROM generate_series(%s, %s) AS n ON CONFLICT DO NOTHING",
            (self._next_id, self._next_id + LARGE - 1),
        )
        self._next_id += LARGE
        cursor.execute(
            f"UPDATE {self._notes} SET amount = amount + 1, tick = {self._tick()}"
            f" WHERE id %% 5 = %s",
            (self._random.randrange(5),),
        )

    def _prune(self, cursor):
        cursor.execute(
            f"DELETE FROM {self._notes} WHERE id IN"
            f" (SELECT id FROM {self._notes} ORDER BY id DESC OFFSET {MOST_ROWS // 2})"
        )
        return cursor.rowcount > 0

    def _truncate(self, cursor):
        if not self._is_seen():
            return False
        cursor.execute(f"TRUNCATE {self._notes}")
        if self._random.random() < 0.5:
            self._insert(cursor, 3)
        return True

    def _make_table(self, cursor):
        if len(self._made) == MOST_TABLES:
            return False
        name = f"made_{self._lane}_{len(self._made) + 1}"
        cursor.execute(NOTES.format(name=name))
        cursor.execute(TRIGGERS.format(name=name, lane=self._lane))
        self._fill(cursor, name)
        self._made.append(name)
        return True

    def _fill_made(self, cursor):
        if not self._made:
            return False
        self._fill(cursor, self._random.choice(self._made))
        return True

    def _fill(self, cursor, name):
        cursor.execute(
            f"INSERT INTO {name} (id, tick, amount, note)"
            f" SELECT n, {self._tick()}, n, 'made' FROM generate_series(%s, %s) AS n"
            f" ON CONFLICT (id) DO UPDATE SET tick = excluded.tick, amount = {name}.amount + 1",
            (first := self._random.randrange(200), first + self._random.randrange(20)),
        )


def transactions(writers):
    """Return how many transactions of each kind were committed, as far as their writers know."""
    return sum((writer.done for writer in writers), Counter[str]())
