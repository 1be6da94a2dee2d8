"""Tables that are made, moved and dropped beside capture never end it."""

import itertools
import threading
import time
from contextlib import closing

import psycopg2
import pytest

from changelog.contract.base.errors import SourceError
from changelog.contract.rows.relation import TableName
from changelog.source.connect import steady
from changelog.source.connect.connect import connect
from changelog.source.tables.catalogue import Catalogue, check_capturable
from changelog.source.tables.publication import (
    WantedPublication,
    make_publication,
    published_tables,
)
from tests.support.capture_command import CrashingCapture
from tests.support.matrix import first
from tests.support.own_server import capture_of, server_of
from tests.support.sql import execute
from tests.support.wait import wait_until

pytestmark = pytest.mark.services

DEADLINE_S = 120.0
KEPT = TableName("public", "kept")


server = server_of(first(1, [18, 15]))
capture = capture_of(CrashingCapture, "CREATE TABLE kept (id integer PRIMARY KEY, text text)")


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


def publish_beside(dsn, enough):
    """List and publish tables beside a churn, until `enough` lists had one that vanished."""
    end, late = time.monotonic() + DEADLINE_S, 0
    with closing(connect(dsn)) as connection, closing(connect(dsn)) as other, Churn(dsn):
        while late < enough:
            assert time.monotonic() < end, f"only {late} tables vanished in time"
            tables = Catalogue(connection).tables()
            check_capturable(tables)
            wanted = WantedPublication(tables={each.name: "" for each in tables})
            change = make_publication(connection, "all_of_it", wanted)
            late += bool(change.vanished)
            assert KEPT in published_tables(other, "all_of_it")


def test_a_publication_is_made_beside_tables_that_vanish(capture):
    publish_beside(capture.dsn, 10)


def test_twin_with_one_attempt_ends_with_the_first_that_vanishes(capture, monkeypatch):
    monkeypatch.setattr(steady, "ATTEMPTS", 1)
    with pytest.raises(SourceError, match=r"does not exist|vanish|concurrently|cache lookup"):
        publish_beside(capture.dsn, 10)


@pytest.mark.matrix
def test_each_start_beside_tables_that_vanish_ends_well(capture):
    with Churn(capture.dsn):
        for number in range(3):
            capture.sql(f"INSERT INTO kept VALUES ({number}, 'x')")
            capture.finish()
    assert {key for (key,) in capture.rows("kept")} == {0, 1, 2}


@pytest.mark.matrix
def test_a_capture_that_runs_beside_tables_that_vanish_goes_on(capture):
    capture.sql("INSERT INTO kept VALUES (0, 'x')")
    running = capture.start()
    capture.settle()
    with Churn(capture.dsn) as churn:
        capture.sql("CREATE TABLE late (id integer PRIMARY KEY, text text)")
        wait_until(lambda: spoken(capture) >= {"late", "kept"}, DEADLINE_S, "late is captured")
        made = churn.made
        capture.sql("INSERT INTO late VALUES (1, 'y')", "INSERT INTO kept VALUES (1, 'y')")
        wait_until(lambda: churn.made > made, DEADLINE_S, "more tables vanish")
        capture.settle()
    assert running.poll() is None
    wait_until(lambda: spoken(capture) == {"late", "kept", MOVED}, DEADLINE_S, "all are captured")
    capture.settle()
    assert len(capture.rows("kept")) == 2
    assert len(capture.rows("late")) == 1
    capture.stop()


def spoken(capture):
    """The names of the tables that the last frontier speaks of."""
    return {table.table for table in capture.frontier().tables.values()}
