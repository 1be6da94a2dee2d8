"""`--key-index`: tables without a primary key that are keyed by a unique index."""

import re

import pytest

from tests.integration.test_incompatible import Capture as Comparing
from tests.support.capture_command import capture_with
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

TABLE = (
    "CREATE TABLE notes (text text, place integer NOT NULL, id integer NOT NULL)",
    "CREATE UNIQUE INDEX notes_id ON notes (id)",
    "INSERT INTO notes SELECT 'row ' || n, n / 7, n FROM generate_series(1, 300) n",
)
USING = "ALTER TABLE notes REPLICA IDENTITY USING INDEX notes_id"
FULL = "ALTER TABLE notes REPLICA IDENTITY FULL"
CHANGES = (
    "UPDATE notes SET text = text || '!' WHERE id % 3 = 0",
    "UPDATE notes SET id = id + 1000 WHERE id % 5 = 0",
    "DELETE FROM notes WHERE id % 7 = 0",
    "INSERT INTO notes SELECT repeat('x', 5000), n, n FROM generate_series(2000, 2100) n",
    "UPDATE notes SET place = 0 WHERE id >= 2000",
)
TWICE = (
    "DROP INDEX notes_id",
    "INSERT INTO notes VALUES ('second', 1, 1)",
    "DELETE FROM notes WHERE id = 1 AND text = 'row 1'",
)
NAMED = "public.notes=notes_id"


capture = capture_with(Comparing, *TABLE)


def refused(capture, *words):
    """Run a capture that must be refused, before and by `--check`; returns what it says."""
    code, _, said = capture.run("--until", "now", *words)
    checked, out, _ = capture.run("--check", "--json", *words)
    assert (code, checked) == (2, 2), said
    assert said.splitlines()[-1].split(" | ")[0].split("error: ")[-1] in out.replace('\\"', '"')
    return said


@pytest.mark.parametrize("identity", first(1, [FULL, USING]))
def test_a_unique_index_keys_a_table_and_its_changes(capture, identity):
    capture.sql(identity)
    code, _, said = capture.run("--until", "now", "--key-index", "auto")
    assert code == 0, said
    assert 'the unique index "notes_id" (id) gives its key' in said
    capture.sql(*CHANGES)
    capture.catch_up("--key-index", "auto")
    assert capture.differing("notes") == []
    (status,) = capture.command("status", "--json", "--allow-inactive")
    assert status["key_indexes"] == {"public.notes": "notes_id"}
    code, out, _ = capture.run("--check", "--json", "--key-index", "auto")
    assert code == 0
    assert '"notes_id" (id)' in out.replace('\\"', '"')


@pytest.mark.matrix
def test_what_gives_no_key_is_refused_by_name_with_what_mends_it(capture):
    said = refused(capture, "--key-index", NAMED)
    assert "--key-index public.notes=notes_id" in refused(capture, "--allow-unkeyed")
    assert 'ALTER TABLE "public"."notes" REPLICA IDENTITY USING INDEX "notes_id"' in said
    assert "has no primary key" in (plain := refused(capture))
    assert "--key-index public.notes=notes_id" in plain
    assert 'has no index "none"' in refused(capture, "--key-index", "public.notes=none")
    capture.sql(FULL)
    other = ("--key-index", "auto", "--key-index", "public.other=none")
    assert 'no captured table is called "public.other"' in refused(capture, *other)
    capture.sql(
        "CREATE UNIQUE INDEX few ON notes (id) WHERE id > 0",
        "CREATE UNIQUE INDEX computed ON notes ((id + 1))",
        "CREATE UNIQUE INDEX nullable ON notes (id, text)",
        "CREATE INDEX plain ON notes (id)",
        "ALTER TABLE notes ADD CONSTRAINT late UNIQUE (id) DEFERRABLE",
    )
    for name, why in {
        "few": "is partial",
        "computed": "is on expressions",
        "nullable": "has columns that may be null",
        "plain": "is not unique",
        "late": "is deferrable",
    }.items():
        assert f'"{name}", which is to give its key and {why}' in refused(
            capture, "--key-index", f"public.notes={name}"
        )
    capture.sql("CREATE UNIQUE INDEX wide ON notes (place, id) INCLUDE (text)")
    said = refused(capture, "--key-index", "auto")
    assert 'several unique indexes that can give its key: "notes_id", "wide"' in said
    capture.sql("CREATE TABLE keyed (id integer PRIMARY KEY)")
    said = refused(capture, "--key-index", NAMED, "--key-index", "public.keyed=keyed_pkey")
    assert "has a primary key, and an index is named" in said
    # The replica identity goes before others.
    capture.sql("ALTER TABLE notes REPLICA IDENTITY USING INDEX wide")
    code, _, said = capture.run("--until", "now", "--key-index", "auto")
    assert code == 0, said
    assert '"wide" (place, id) gives its key' in said


@pytest.mark.matrix
@pytest.mark.parametrize("words", first(1, ["-u --key-index auto", "", "-u", "--key-index auto"]))
def test_every_way_out_that_a_refusal_names_is_one(capture, words):
    capture.sql(
        "CREATE TABLE bare (n integer)",
        "CREATE TABLE several (a integer NOT NULL UNIQUE, b integer NOT NULL UNIQUE)",
    )
    for table in ("notes", "several") if words else ("bare",):
        only = ("--tables", f"public.{table}")
        given = words.split()
        code, _, said = capture.run("--until", "now", *only, *given)
        assert code == 2, said
        ways = said.strip().split(" | hint: ")[1].split(", or ")
        options = [each.split(", which")[0] for each in ways if each.startswith("--")]
        assert options, said
        for option in options:
            if option.startswith("--exclude"):
                continue
            code, out, said = capture.run("--check", *only, *given, *option.split())
            assert code == 0, (table, given, option, out)


@pytest.mark.matrix
@pytest.mark.parametrize("words", first(1, ["", "-u"]))
def test_a_replica_identity_keys_a_table_without_an_option(capture, words):
    capture.sql(USING)
    code, _, said = capture.run("--until", "now", *words.split())
    assert code == 0, said
    assert 'the unique index "notes_id" (id) gives its key' in said
    capture.sql(*CHANGES)
    capture.catch_up(*words.split())
    assert capture.differing("notes") == []


@pytest.mark.matrix
def test_a_replica_identity_beside_a_primary_key_is_the_key_where_it_is_named(capture):
    capture.sql("ALTER TABLE notes ADD PRIMARY KEY (id)", "DROP INDEX notes_id")
    capture.sql("CREATE UNIQUE INDEX wide ON notes (id, place)")
    capture.sql("ALTER TABLE notes REPLICA IDENTITY USING INDEX wide")
    said = refused(capture)
    assert "--key-index public.notes=wide" in said
    named = ("--key-index", "public.notes=wide")
    capture.catch_up(*named)
    capture.sql(*CHANGES[:3])
    capture.catch_up(*named)
    assert {len(key) for key in capture.rows("notes")} == {2}
    (line,) = capture.command("verify", "--json")
    assert line["verified"] is True


GOES = (
    "REINDEX INDEX CONCURRENTLY notes_id",
    "DROP INDEX notes_id",
    "ALTER TABLE notes ALTER id DROP NOT NULL",
)


@pytest.mark.matrix
@pytest.mark.parametrize("drop", first(1, GOES))
def test_a_key_that_goes_while_capture_runs_stops_it_before_a_frontier(capture, drop):
    capture.sql(FULL)
    running = capture.start("--key-index", NAMED)
    capture.wait_for_frontier()
    capture.sql(drop)
    capture.sql("INSERT INTO notes VALUES ('another', 1, 5000)")
    running.communicate(timeout=60)
    capture.running = None
    assert running.returncode in {1, 2}  # by the look before a frontier, or by the row
    assert re.search('index "notes_id", which (gives|is to give) its key', capture.said())
    assert (5000,) not in capture.rows("notes")


@pytest.mark.matrix
def test_an_index_that_was_made_anew_while_nobody_looked_asks_for_a_copy(capture):
    capture.sql(FULL)
    capture.catch_up("--key-index", NAMED)
    capture.sql(*TWICE, "CREATE UNIQUE INDEX notes_id ON notes (id)")
    code, _, said = capture.run("--until", "now", "--key-index", NAMED)
    assert code == 1
    assert "another index gives its key now, or the same one made anew" in said
    capture.catch_up("--key-index", NAMED, "--on-incompatible", "resnapshot")
    assert capture.differing("notes") == []


def test_a_capture_that_does_not_look_at_the_index_loses_a_row(capture):
    """The twin: the delete of one of two rows of a key is a tombstone for both."""
    capture.sql(FULL)
    capture.set(**{"key_index.'public.notes'": "notes_id"})
    capture.catch_up()
    capture.sql(*TWICE, "CREATE UNIQUE INDEX notes_id ON notes (id)")
    capture.finish(defect="forget_key_index")
    assert capture.differing("notes") == [(1,)]
