"""Capture of servers before PostgreSQL 15: the whole line, and what a version lacks by its name."""

import pytest

from changelog.source.connect.versions import (
    COPIES_SLOTS,
    PUBLISHES_PARTITIONED,
    SENDS_MESSAGES,
    SENDS_TRUNCATE,
)
from tests.integration.test_groups import Capture
from tests.support.matrix import first
from tests.support.own_server import capture_of, server_of

pytestmark = [pytest.mark.services, pytest.mark.slow]

TABLES = (
    "CREATE TABLE notes (id integer PRIMARY KEY, text text, price numeric(10, 2) DEFAULT 1.5)",
    "INSERT INTO notes SELECT n, 'row ' || n FROM generate_series(1, 3000) n",
    "CREATE TABLE big (id integer PRIMARY KEY, n integer, wide text, at timestamptz, f float8)",
    "ALTER TABLE big ADD r int4range",
    "ALTER TABLE big ALTER wide SET STORAGE EXTERNAL",
    "INSERT INTO big SELECT n, 0, repeat(n::text, 9000) FROM generate_series(1, 5) n",
    "UPDATE big SET at = '2024-02-29 12:00+01', f = id / 3.0, r = int4range(id, 9)",
)
CHANGES = (
    "UPDATE big SET n = n + 1",
    "UPDATE notes SET id = id + 10000 WHERE id % 7 = 0",
    "DELETE FROM notes WHERE id % 5 = 0",
    "INSERT INTO notes SELECT n, 'new' FROM generate_series(5000, 5200) n",
)
LATER = (
    "ALTER TABLE big ADD more integer DEFAULT 7",
    "UPDATE big SET more = id WHERE id > 3",
    "CREATE TABLE late (id integer PRIMARY KEY)",
    "INSERT INTO late VALUES (1), (2)",
)

server = server_of(first(1, [10, 12, 13, 14, 11]))
capture = capture_of(Capture)


def version_of(capture):
    ((text,),) = capture.query("SHOW server_version_num")
    return int(text)


@pytest.mark.matrix
def test_snapshot_stream_restart_new_columns_and_truncate(capture):
    capture.sql(*TABLES)
    capture.start()
    capture.wait_for_frontier()
    capture.sql(*CHANGES)
    capture.settle()
    capture.stop()
    before = capture.verified()
    assert before["public.big"] == 5
    assert capture.rows("big")[(5,)]["wide"] == "5" * 9000
    capture.sql(*LATER)  # while nobody captures
    capture.catch_up("--on-incompatible", "resnapshot")
    assert capture.verified() == {**before, "public.late": 2}
    capture.start("--on-incompatible", "resnapshot")
    capture.sql("TRUNCATE late", "INSERT INTO late VALUES (3)", "DELETE FROM notes WHERE id < 50")
    capture.settle()
    capture.stop()
    capture.catch_up("--on-incompatible", "resnapshot")
    assert list(capture.rows("late")) == [(3,)]
    assert capture.verified()["public.late"] == 1
    (status,) = capture.command("status", "--json", "--allow-inactive")
    assert status["ok"] is True, status


@pytest.mark.matrix
def test_a_crash_in_the_snapshot_and_in_the_stream_loses_nothing(capture):
    capture.sql(*TABLES)
    capture.crash("fence taken:1")
    capture.sql(*CHANGES)
    capture.crash("frontier written:1")
    capture.finish()
    assert capture.verified()["public.big"] == 5


@pytest.mark.matrix
def test_what_a_version_lacks_is_asked_for_by_its_name(capture):
    version = version_of(capture)
    capture.sql("CREATE TABLE notes (id integer PRIMARY KEY)")
    lacking = {"--messages": SENDS_MESSAGES, "--ddl": SENDS_MESSAGES, "--where": 150_000}
    words = {"--messages": ["*"], "--where": ["notes=id > 1"]}
    for option, since in lacking.items():
        if version < since:
            code, _, said = capture.run("--until", "now", option, *words.get(option, []))
            assert code == 1, said
            assert (
                f"PostgreSQL {version // 10_000}" in said or f"this is {version // 10_000}" in said
            )
            assert f"{since // 10_000}" in said.splitlines()[-1]
    if version < COPIES_SLOTS:
        code, _, said = capture.run("--until", "now", "--into", str(capture.folder / "lines"))
        assert (code, "PostgreSQL 12 or newer" in said) == (1, True)
    if version < PUBLISHES_PARTITIONED:
        capture.sql("CREATE TABLE parts (id integer) PARTITION BY RANGE (id)")
        code, _, said = capture.run("--until", "now")
        assert (code, "publishes no such table" in said) == (2, True)


@pytest.mark.matrix
def test_a_truncate_that_is_not_sent_is_noticed(capture):
    if version_of(capture) >= SENDS_TRUNCATE:
        pytest.skip("this version sends it")
    capture.sql(*TABLES)
    capture.catch_up()
    capture.sql("TRUNCATE notes", "INSERT INTO notes VALUES (1, 'alone')")
    code, _, said = capture.run("--until", "now")
    assert code == 1, said
    assert '"public.notes"' in said.splitlines()[-1]
    capture.catch_up("--on-incompatible", "resnapshot")
    assert capture.verified()["public.notes"] == 1


def test_lines_of_a_snapshot_and_of_changes(capture):
    capture.sql(*TABLES)
    code, out, said = capture.run("--print", "--until", "now")
    assert code == 0, said
    assert out.count('{"op":"r"') == 3005
    assert ("not among the lines: truncations" in said) == (version_of(capture) < SENDS_TRUNCATE)


@pytest.mark.matrix
def test_tables_without_keys_and_groups_of_tables(capture):
    capture.sql(
        *TABLES,
        "CREATE TABLE loose (text text)",
        "INSERT INTO loose SELECT n::text FROM generate_series(1, 50) n",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "CREATE TABLE indexed (id integer NOT NULL UNIQUE, text text)",
        "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_id_key",
        "INSERT INTO indexed VALUES (1, 'a'), (2, 'b')",
    )
    code, out, said = capture.run("--check", "--json", "-u")
    assert code == 0, out + said
    capture.name_groups('groups.side = ["public.big", "public.loose"]')
    capture.start("-u")
    capture.wait_for_frontier()
    capture.sql(*CHANGES, "DELETE FROM loose WHERE text < '20'", "UPDATE indexed SET id = id + 5")
    capture.settle()
    capture.stop()
    (line,) = capture.command("verify", "--json")
    found = {each["view"]: (each["verified"], each["rows"]) for each in line["tables"]}
    assert found.pop("public.loose")[0] is None  # nothing tells its rows apart
    assert {verdict for verdict, _ in found.values()} == {True}
    assert found["public.indexed"] == (True, 2)
