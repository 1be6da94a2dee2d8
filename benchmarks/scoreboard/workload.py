"""One seeded application of seven small tables, each with a kind of change that pipelines trip on.

| table | what happens to it |
|---|---|
| `typed` | inserts, updates and deletes with hostile values of each usual type |
| `wide` | updates that leave a large value alone (TOAST), and move its row to another key |
| `moved` | a key of two columns: moves, swaps, moves to a key that was just freed |
| `cleared` | TRUNCATE, then some of the old keys again, in the same transaction or later |
| `saved` | savepoints, transactions that are taken back, two that run into one another |
| `altered` | ADD COLUMN, ADD COLUMN with a default, another type, DROP COLUMN |
| `busy` | few keys that change, go and come back all the time |

The same seed gives the same statements, so each pipeline gets the same work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice

import psycopg2
from psycopg2.extensions import connection

Statement = tuple[str, Sequence[object]]
Transaction = list[Statement]

TABLES = ("typed", "wide", "moved", "cleared", "saved", "altered", "busy")
END_TABLE = "ended"
"""Gets one row behind everything else."""
ALL_TABLES = (*TABLES, END_TABLE)
END = 1

SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    """CREATE TABLE typed (
      id int PRIMARY KEY, small smallint, large bigint, whole numeric, price numeric(12,4),
      single real, double double precision, flag boolean, words text, short varchar(20),
      fixed char(5), bytes bytea, day date, moment timestamp, instant timestamptz, clock time,
      span interval, code uuid, plain json, document jsonb, state mood, numbers int[],
      names text[])""",
    "CREATE TABLE wide (id int PRIMARY KEY, n int, body text, extra text)",
    "ALTER TABLE wide ALTER COLUMN body SET STORAGE EXTERNAL",
    "CREATE TABLE moved (a int, b text, n int, PRIMARY KEY (a, b))",
    "CREATE TABLE cleared (id int PRIMARY KEY, n int)",
    "CREATE TABLE saved (id int PRIMARY KEY, n int, note text)",
    "CREATE TABLE altered (id int PRIMARY KEY, n int, going text)",
    "CREATE TABLE busy (id int PRIMARY KEY, n bigint)",
    "CREATE TABLE ended (id int PRIMARY KEY)",
    "INSERT INTO wide SELECT i, 0, repeat(md5(i::text), 100), 'e' FROM generate_series(1, 200) i",
    "INSERT INTO moved SELECT i, 'k' || i % 7, 0 FROM generate_series(1, 300) i",
    "INSERT INTO cleared SELECT i, 0 FROM generate_series(1, 200) i",
    "INSERT INTO saved SELECT i, 0, 'first' FROM generate_series(1, 200) i",
    "INSERT INTO altered SELECT i, i, 'going' FROM generate_series(1, 200) i",
    "INSERT INTO busy SELECT i, 0 FROM generate_series(1, 50) i",
)

ALTERATIONS = (
    "ALTER TABLE altered ADD COLUMN more text",
    "ALTER TABLE altered ADD COLUMN filled int NOT NULL DEFAULT 7",
    "ALTER TABLE altered ALTER COLUMN n TYPE bigint",
    "ALTER TABLE altered DROP COLUMN going",
)
_ALTERED_EVERY = 0.2  # of the work
# Values as PostgreSQL's text; each column takes one of its list.
_HOSTILE: dict[str, tuple[str | None, ...]] = {
    "small": ("-32768", "32767", "0", None),
    "large": ("9007199254740993", "-9223372036854775808", "9223372036854775807", None),
    "whole": ("12345678901234567890.12345678901234567890", "-0.10", "1e30", "0", None),
    "price": ("99999999.9999", "-0.0001", "1.5000", None),
    "single": ("0.1", "-0", "3.4028235e38", "1e-45", None),
    "double": ("0.1", "-0", "1.7976931348623157e308", "5e-324", "0.30000000000000004", None),
    "flag": ("true", "false", None),
    "words": ("", " trailing ", "e\u0301", "\u00e9", 'quo"te', "line\nbreak", "\U0001f600", None),
    "short": ("", "twenty characters ok", " x", None),
    "fixed": ("", "ab", "abcde", None),
    "bytes": ("\\x", "\\x00ff10", None),
    "day": ("0001-01-01", "9999-12-31", "1969-12-31", "2024-02-29", None),
    "moment": ("1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999", "2024-02-29", None),
    "instant": ("1969-12-31 23:59:59.999999+00", "2024-03-31 02:30:00.000001+01", None),
    "clock": ("00:00:00", "23:59:59.999999", "12:34:56.789", None),
    "span": ("1 mon -3 days 04:05:06.000007", "-1 day", "0", None),
    "code": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None),
    "plain": ('{"b" : 1.10, "a": [1, null]}', "null", '"text"', None),
    "document": ('{"b": 1.10, "a": 12345678901234567890}', "null", "{}", None),
    "state": ("sad", "ok", "happy", None),
    "numbers": ("{}", "{1,NULL,-3}", None),
    "names": ("{}", '{"a,b",NULL,"c\\"d"}', None),
}


class Workload:
    """The transactions of a seed, in order; a pipeline is killed where one of them is reached."""

    def __init__(self, seed: int, transactions: int) -> None:
        """Take the seed, and how many transactions there are."""
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self.transactions = transactions
        self._next = 1_000
        self._wide_keys = list(range(1, 201))
        self._alterations = iter(ALTERATIONS)
        self._altering_at = _ALTERED_EVERY / 2

    def run(self, dsn: str, *, per_s: float, at: Callable[[float], None]) -> None:
        """Commit all of it, at most so many transactions a second.

        `at` is called before each transaction with the part of the work that is done, 0 to 1.
        """
        began = time.monotonic()
        with closing(psycopg2.connect(dsn)) as one, closing(psycopg2.connect(dsn)) as other:
            for number in range(self.transactions):
                part = number / self.transactions
                at(part)
                self._one(one, other, part)
                ahead = number / per_s - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
            at(1.0)

    def _one(self, one: connection, other: connection, part: float) -> None:
        if self._altering_at <= part:
            self._commit(one, [(text, []) for text in islice(self._alterations, 1)])
            self._altering_at += _ALTERED_EVERY
        kinds = (
            self._typed, self._typed, self._wide, self._moved, self._cleared, self._saved,
            self._altered, self._busy, self._busy,
        )  # fmt: skip
        kind = self._random.choice(kinds)
        if kind is self._saved and self._often(0.3):
            self._interleaved(one, other)
        else:
            self._commit(one, kind())

    @staticmethod
    def _commit(session: connection, statements: Transaction) -> None:
        with session, session.cursor() as cursor:
            for text, values in statements:
                cursor.execute(text, values or None)

    def _interleaved(self, one: connection, other: connection) -> None:
        """Begin a transaction, commit a later one, then the first: WAL has their rows mixed."""
        first, second = self._random.sample(range(1, 200), 2)
        update = "UPDATE saved SET n = n + 1, note = %s WHERE id = %s"
        with one, one.cursor() as cursor:
            cursor.execute(update, ["outer", first])
            self._commit(other, [(update, ["inner", second])])
            cursor.execute(update, ["outer again", first])

    def _often(self, share: float) -> bool:
        return self._random.random() < share

    def _id(self, most: int) -> int:
        return self._random.randint(1, most)

    def _take(self) -> int:
        self._next += 1
        return self._next

    def _typed(self) -> Transaction:
        key = self._id(150)
        if self._often(0.15):
            return [("DELETE FROM typed WHERE id = %s", [key])]
        names = list(_HOSTILE)
        values = [self._random.choice(_HOSTILE[name]) for name in names]
        sets = ", ".join(f"{name} = excluded.{name}" for name in names)
        places = ", ".join(["%s"] * (1 + len(names)))
        text = f"INSERT INTO typed (id, {', '.join(names)}) VALUES ({places})"
        return [(f"{text} ON CONFLICT (id) DO UPDATE SET {sets}", [key, *values])]

    def _wide(self) -> Transaction:
        place = self._random.randrange(len(self._wide_keys))
        key = self._wide_keys[place]
        match self._random.randrange(4):
            case 0:
                return [
                    ("UPDATE wide SET body = repeat(md5(%s), 100) WHERE id = %s", [str(key), key])
                ]
            case 1:
                # The row moves, and PostgreSQL does not stream the large value.
                self._wide_keys[place] = self._take()
                return [("UPDATE wide SET id = %s WHERE id = %s", [self._wide_keys[place], key])]
            case _:
                return [("UPDATE wide SET n = n + 1 WHERE id = %s", [key])]

    def _moved(self) -> Transaction:
        one, other = self._random.sample(range(1, 300), 2)
        free = self._take()
        to = "UPDATE moved SET a = %s, n = n + 1 WHERE a = %s"
        match self._random.randrange(4):
            case 0:  # swapped
                return [(to, [free, one]), (to, [one, other]), (to, [other, free])]
            case 1:  # to a key that is freed in the same transaction
                return [("DELETE FROM moved WHERE a = %s", [one]), (to, [one, other])]
            case 2:  # and another row where it was
                insert = "INSERT INTO moved VALUES (%s, %s, 0)"
                return [(to, [free, one]), (insert, [one, f"k{one % 7}"])]
            case _:
                return [("UPDATE moved SET n = n + 1 WHERE a %% 10 = %s", [one % 10])]

    def _cleared(self) -> Transaction:
        if self._often(0.1):
            again = "INSERT INTO cleared SELECT i, %s FROM generate_series(1, %s) i"
            refill: Statement = (again, [self._id(1_000), self._id(150)])
            return [("TRUNCATE cleared", []), refill]
        key = self._id(200)
        text = "INSERT INTO cleared VALUES (%s, 1)"
        return [(f"{text} ON CONFLICT (id) DO UPDATE SET n = cleared.n + 1", [key])]

    def _saved(self) -> Transaction:
        one, other = self._random.sample(range(1, 200), 2)
        update = "UPDATE saved SET n = n + 1, note = %s WHERE id = %s"
        if self._often(0.2):
            return [(update, ["never", one]), ("ROLLBACK", [])]
        return [
            (update, ["kept", one]),
            ("SAVEPOINT here", []),
            ("DELETE FROM saved WHERE id BETWEEN %s AND %s", [other, other + 20]),
            (update, ["never", one]),
            ("ROLLBACK TO here", []),
            (update, ["after", other]),
        ]

    def _altered(self) -> Transaction:
        key = self._id(200)
        text = "INSERT INTO altered (id, n) VALUES (%s, %s)"
        return [(f"{text} ON CONFLICT (id) DO UPDATE SET n = altered.n + 1", [key, key])]

    def _busy(self) -> Transaction:
        key = self._id(50)
        change: Statement = ("UPDATE busy SET n = n + 1 WHERE id = %s", [key])
        match self._random.randrange(4):
            case 0:
                return [("DELETE FROM busy WHERE id = %s", [key])]
            case 1:
                return [("INSERT INTO busy VALUES (%s, 0) ON CONFLICT (id) DO NOTHING", [key])]
            case 2:
                return [
                    ("DELETE FROM busy WHERE id = %s", [key]),
                    ("INSERT INTO busy VALUES (%s, %s)", [key, self._id(1_000_000)]),
                ]
            case _:
                return [change, change]
