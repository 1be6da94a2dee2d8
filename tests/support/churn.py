"""Sessions that make, move and drop tables without a pause, as migrations and jobs do."""

import itertools
import threading
from contextlib import closing

import psycopg2

from tests.support.sql import execute

MOVED = "mover"
"""A table that goes to and fro between `public` and `aside`."""


class Churn:
    """Makes and drops tables of `public`, and moves one out of it and back, until it is left."""

    def __init__(self, dsn):
        self._dsn = dsn
        self._done = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._make, self._move)]
        self.made = self.moved = 0

    def __enter__(self):
        table = f"CREATE TABLE {MOVED} (id integer PRIMARY KEY)"
        execute(self._dsn, "CREATE SCHEMA IF NOT EXISTS aside", table)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self._done.set()
        for thread in self._threads:
            thread.join()
        assert kind is not None or (self.made > 0 and self.moved > 0)

    def _make(self):
        with closing(psycopg2.connect(self._dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            for number in itertools.count():
                if self._done.is_set():
                    return
                name = f"churned_{number % 3}"
                cursor.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, text text)")
                cursor.execute(f"INSERT INTO {name} VALUES (1, 'x')")
                self._done.wait(0.005)
                cursor.execute(f"DROP TABLE {name}")
                self.made += 1

    def _move(self):
        with closing(psycopg2.connect(self._dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            places = itertools.cycle([("public", "aside"), ("aside", "public")])
            for here, there in places:
                if self._done.is_set() and here == "public":
                    return
                cursor.execute(f"ALTER TABLE {here}.{MOVED} SET SCHEMA {there}")
                self.moved += 1
                self._done.wait(0.005)
