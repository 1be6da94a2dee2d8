"""Every change of a table while writes go on: equal in the end, or stopped by name.

One capture, many tables, each altered in its own way while a writer works on all of them; in the
end the fold of each topic, read by fastavro, equals the table. Where `silent` names a mark, the
change has no word in the stream: a twin that does not look for marks reads wrong rows.
"""

import threading
from contextlib import closing
from dataclasses import dataclass

import httpx
import psycopg2
import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.test_incompatible import Capture
from tests.support.capture_command import capture_with
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]

ROWS = 120


@dataclass(frozen=True)
class Case:
    """A table and what happens to it; `{t}` is its name."""

    change: str
    made: str = "CREATE TABLE {t} (id integer PRIMARY KEY, a integer, b text)"
    silent: bool = False


PARTED = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, a integer, b text) PARTITION BY RANGE (id);"
    "CREATE TABLE {t}_low PARTITION OF {t} FOR VALUES FROM (0) TO (60);"
    "CREATE TABLE {t}_high PARTITION OF {t} FOR VALUES FROM (60) TO (100000)"
)
SPARE = "CREATE TABLE aside.{t} (id integer PRIMARY KEY, a integer, b text);"
NUMERIC = "CREATE TABLE {t} (id integer PRIMARY KEY, a numeric(12,2), b text)"
NUMBERED = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, a integer, b text);"
    "ALTER TABLE {t} ADD c integer DEFAULT 7"
)
CIDR = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, a integer, b text, c cidr DEFAULT '10.1.2.3/32',"
    " d cidr[] DEFAULT '{{10.1.2.3/32}}', e integer DEFAULT -1, f regproc DEFAULT 'now')"
)
VARCHAR = "CREATE TABLE {t} (id integer PRIMARY KEY, a integer, b varchar(10))"

CASES = {
    "add_null": Case("ALTER TABLE {t} ADD c text"),
    "add_constant": Case("ALTER TABLE {t} ADD c integer DEFAULT 7"),
    "add_volatile": Case("ALTER TABLE {t} ADD c float DEFAULT random()"),
    "drop_column": Case("ALTER TABLE {t} DROP a"),
    "rename_column": Case("ALTER TABLE {t} RENAME a TO c"),
    "swap_names": Case(
        "ALTER TABLE {t} ADD c integer; UPDATE {t} SET c = -id; ALTER TABLE {t} RENAME a TO x;"
        "ALTER TABLE {t} RENAME c TO a; ALTER TABLE {t} RENAME x TO c"
    ),
    "widen": Case("ALTER TABLE {t} ALTER a TYPE bigint"),
    "revalued": Case("ALTER TABLE {t} ALTER a TYPE integer USING a * 2 + 1", silent=True),
    "revalued_constant": Case(
        "ALTER TABLE {t} ALTER c TYPE integer USING c * 2 + 1", made=NUMBERED, silent=True
    ),
    "revalued_at_once": Case(
        "BEGIN; ALTER TABLE {t} ALTER c DROP DEFAULT;"
        "ALTER TABLE {t} ALTER c TYPE integer USING c * 2 + 1;"
        "ALTER TABLE {t} ALTER c SET DEFAULT 5; COMMIT",
        made=NUMBERED,
        silent=True,
    ),
    "compacted_and_more": Case(
        "VACUUM FULL {t}; ALTER TABLE {t} ADD d integer; GRANT SELECT ON {t} TO PUBLIC",
        made=NUMBERED,
    ),
    "revalued_and_granted": Case(
        "ALTER TABLE {t} ALTER c TYPE integer USING c * 2 + 1; GRANT SELECT ON {t} TO PUBLIC",
        made=NUMBERED,
        silent=True,
    ),
    "revalued_and_compacted": Case(
        "ALTER TABLE {t} ALTER c TYPE integer USING c * 2 + 1; VACUUM FULL {t}",
        made=NUMBERED,
        silent=True,
    ),
    "computed_without_default": Case(
        "ALTER TABLE {t} ADD c float DEFAULT random(); ALTER TABLE {t} ALTER c DROP DEFAULT",
        silent=True,
    ),
    "computed_by_a_domain": Case(
        "CREATE DOMAIN {t}_d AS integer DEFAULT 5 CHECK (VALUE > 0); ALTER TABLE {t} ADD c {t}_d;"
        "ALTER DOMAIN {t}_d DROP DEFAULT",
        silent=True,
    ),
    "constant_of_a_domain": Case(
        "CREATE DOMAIN {t}_d AS integer DEFAULT 5; ALTER TABLE {t} ADD c {t}_d"
    ),
    "constant_and_compacted": Case(
        "ALTER TABLE {t} ADD c integer DEFAULT 5; ALTER TABLE {t} ALTER c DROP DEFAULT;"
        "VACUUM FULL {t}",
        silent=True,
    ),
    "added_and_truncated": Case("ALTER TABLE {t} ADD c integer DEFAULT 5; TRUNCATE {t}"),
    "to_inet": Case("ALTER TABLE {t} ALTER c TYPE inet", made=CIDR),
    "to_inets": Case("ALTER TABLE {t} ALTER d TYPE inet[]", made=CIDR, silent=True),
    "to_oid": Case("ALTER TABLE {t} ALTER e TYPE oid", made=CIDR),
    "to_procedure": Case("ALTER TABLE {t} ALTER f TYPE regprocedure", made=CIDR),
    "to_varchar": Case("ALTER TABLE {t} ALTER b TYPE varchar"),
    "to_integer": Case("ALTER TABLE {t} ALTER b TYPE integer USING length(b)"),
    "longer": Case("ALTER TABLE {t} ALTER b TYPE varchar(20)", made=VARCHAR),
    "scaled": Case("ALTER TABLE {t} ALTER a TYPE numeric(14,3)", made=NUMERIC),
    "digits": Case("ALTER TABLE {t} ALTER a TYPE numeric(14,2)", made=NUMERIC),
    "made_again": Case("ALTER TABLE {t} DROP a; ALTER TABLE {t} ADD a integer", silent=True),
    "made_again_first": Case(
        "ALTER TABLE {t} DROP a; ALTER TABLE {t} DROP b;"
        "ALTER TABLE {t} ADD a integer; ALTER TABLE {t} ADD b text",
        silent=True,
    ),
    "there_and_back": Case(
        "ALTER TABLE {t} ADD c integer; UPDATE {t} SET c = 5 WHERE id < 50;"
        "ALTER TABLE {t} DROP c; UPDATE {t} SET a = 1 WHERE id % 3 = 0;"
        "ALTER TABLE {t} ADD c integer"
    ),
    "identities": Case(
        "ALTER TABLE {t} REPLICA IDENTITY FULL; UPDATE {t} SET a = 2 WHERE id = 5;"
        "ALTER TABLE {t} REPLICA IDENTITY USING INDEX {t}_pkey; DELETE FROM {t} WHERE id = 6;"
        "ALTER TABLE {t} REPLICA IDENTITY DEFAULT"
    ),
    "truncated": Case("TRUNCATE {t} RESTART IDENTITY; INSERT INTO {t} VALUES (9000, 1, 'x')"),
    "rewritten": Case("ALTER TABLE {t} SET (fillfactor = 50); CLUSTER {t} USING {t}_pkey"),
    "dropped_and_made": Case(
        "DROP TABLE {t}; CREATE TABLE {t} (id integer PRIMARY KEY, a integer, b text);"
        "INSERT INTO {t} SELECT n, n, 'new' FROM generate_series(500, 600) n"
    ),
    "name_taken": Case(
        "ALTER TABLE {t} SET SCHEMA aside; ALTER TABLE aside.{t} RENAME TO {t}_old;"
        "CREATE TABLE {t} (id integer PRIMARY KEY, a integer, b text);"
        "INSERT INTO {t} VALUES (1, 1, 'another')"
    ),
    "attached": Case(
        "DROP TABLE {t}_high;" + SPARE + "INSERT INTO aside.{t} VALUES (200, 2, 'before');"
        "ALTER TABLE {t} ATTACH PARTITION aside.{t} FOR VALUES FROM (60) TO (100000)",
        made=PARTED,
        silent=True,
    ),
    "attached_later": Case(
        "ALTER TABLE {t} ATTACH PARTITION aside.{t} FOR VALUES FROM (100000) TO (100100)",
        made=PARTED + ";" + SPARE + "INSERT INTO aside.{t} VALUES (100001, 2, 'before')",
        silent=True,
    ),
    "detached": Case(
        "ALTER TABLE {t} DETACH PARTITION {t}_low; ALTER TABLE {t}_low SET SCHEMA aside",
        made=PARTED,
        silent=True,
    ),
    "part_truncated": Case("TRUNCATE {t}_low", made=PARTED, silent=True),
    "root_truncated": Case("TRUNCATE {t}; INSERT INTO {t} VALUES (9, 9, 'x')", made=PARTED),
    "part_added": Case(
        "CREATE TABLE {t}_more PARTITION OF {t} FOR VALUES FROM (100000) TO (100100);"
        "INSERT INTO {t} VALUES (100050, 1, 'in it')",
        made=PARTED,
    ),
    "parted_using": Case(
        "ALTER TABLE {t} ALTER a TYPE integer USING a * 2 + 1", made=PARTED, silent=True
    ),
    "inherited": Case(
        "CREATE TABLE {t}_child () INHERITS ({t}); ALTER TABLE {t}_child SET SCHEMA aside;"
        "INSERT INTO aside.{t}_child VALUES (7000, 1, 'not a row of the parent itself')"
    ),
}
QUIET = {"revalued", "made_again", "part_truncated", "detached"}
"""Cases to which nobody writes afterwards: only a look at the catalogue tells of them."""


class Writers:
    """Insert, update and delete in every table until told to stop."""

    def __init__(self, dsn, tables):
        self._dsn, self._tables = dsn, tables
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rounds = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _run(self):
        with closing(psycopg2.connect(self._dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            while not self._done.is_set():
                self.rounds += 1
                for table in self._tables:
                    self._write(cursor, table, self.rounds)
                self._done.wait(0.05)

    @staticmethod
    def _write(cursor, table, number):
        for statement in (
            f"UPDATE {table} SET id = id WHERE id % 17 = {number % 17}",
            f"DELETE FROM {table} WHERE id = {number % 40 + 20}",
            f"INSERT INTO {table} (id) VALUES ({1000 + number})",
            f"UPDATE {table} SET id = id + 50000 WHERE id = {1000 + number - 3}",
        ):
            try:
                cursor.execute(statement)
            except psycopg2.Error:
                return  # in the middle of its change


def differing(capture, table):
    return capture.differing(table, only="inherited" in table)


capture = capture_with(
    Capture,
    "CREATE SCHEMA aside",
    *(case.made.format(t=table) for table, case in CASES.items()),
    *(
        f"INSERT INTO {table} SELECT n, n, 'row ' || n FROM generate_series(1, {ROWS}) n"
        for table in CASES
    ),
)


def alter(capture, tables):
    """Change the tables, each statement by itself, but for whole transactions."""
    with closing(psycopg2.connect(capture.dsn)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("SET lock_timeout = '20s'")
        for table in tables:
            change = CASES[table].change.format(t=table)
            for statement in [change] if change.startswith("BEGIN") else change.split(";"):
                cursor.execute(statement)


def test_every_change_under_writes_ends_with_equal_rows(capture):
    capture.set(on_incompatible="resnapshot")
    capture.finish()
    capture.begin(small=True)
    with Writers(capture.dsn, [table for table in CASES if table not in QUIET]) as writers:
        capture.settle()
        alter(capture, CASES)
        before = writers.rounds
        capture.settle()
    assert writers.rounds >= before
    capture.settle()
    capture.end()
    capture.finish(small=True)
    assert capture.excluded() == {}
    found = {table: differing(capture, table)[:5] for table in CASES}
    assert {table: keys for table, keys in found.items() if keys} == {}


def test_every_change_while_capture_is_down_ends_with_equal_rows(capture):
    capture.set(on_incompatible="resnapshot")
    capture.finish()
    alter(capture, CASES)
    capture.finish(small=True)
    capture.finish(small=True)
    found = {table: differing(capture, table)[:5] for table in CASES}
    assert {table: keys for table, keys in found.items() if keys} == {}


def test_twin_without_a_look_at_the_catalogue_silent_changes_stay(capture):
    capture.set(on_incompatible="resnapshot")
    capture.finish()
    silent = [table for table, case in CASES.items() if case.silent]
    alter(capture, silent)
    capture.finish(small=True, defect="forget_to_look")
    assert [table for table in silent if not differing(capture, table)] == []


KEYS = {
    "key_moved": "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ADD PRIMARY KEY (a)",
    "key_widened": "ALTER TABLE {t} ALTER id TYPE bigint",
    "key_renamed": "ALTER TABLE {t} RENAME id TO number",
    "key_gone": "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
    "nothing": "ALTER TABLE {t} REPLICA IDENTITY NOTHING",
}


def test_what_no_copy_can_mend_is_excluded_with_its_reason(dsn, kafka, registry, prefix, tmp_path):
    capture = Capture(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    capture.sql("CREATE SCHEMA aside", "CREATE TABLE well (id integer PRIMARY KEY, a integer)")
    for table in KEYS:
        capture.sql(
            f"CREATE TABLE {table} (id integer PRIMARY KEY, a integer)",
            f"INSERT INTO {table} SELECT n, n FROM generate_series(1, {ROWS}) n",
        )
    capture.set(on_incompatible="resnapshot", on_error="log")
    capture.begin(small=True)
    try:
        capture.wait_for_frontier()
        for table, change in KEYS.items():
            capture.sql(
                f"INSERT INTO {table} VALUES (9000, 9000)", *change.format(t=table).split("; ")
            )
        for table in KEYS:
            capture.sql(f"INSERT INTO {table} VALUES (9001, 9001)", "INSERT INTO well VALUES (1)")
            capture.sql("DELETE FROM well")
        wait_until(
            lambda: {f"public.{table}" for table in KEYS} == {*capture.excluded()},
            60,
            "each is excluded",
        )
        capture.settle()
        assert all("is copied anew" not in why for why in capture.excluded().values())
        assert differing(capture, "well") == []
        capture.end()
        # The way out of another key: another topic.
        topic = f"{prefix}.key_widened"
        admin = AdminClient(capture.kafka.client_config())
        admin.delete_topics([topic])[topic].result()
        for side in ("key", "value"):
            url = f"{registry.url}/subjects/{prefix}.key_widened-{side}"
            httpx.delete(url).raise_for_status()
        capture.finish()
        capture.command("resnapshot", "key_widened", "--json")
        capture.finish()
        assert "public.key_widened" not in capture.excluded()
        assert differing(capture, "key_widened") == []
    finally:
        capture.kill()
