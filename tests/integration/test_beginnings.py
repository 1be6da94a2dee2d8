"""Where a log begins: without its rows of before, at a place of an existing slot, or anew."""

import signal

import pytest

from changelog.kafka.cluster import describe
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 20


capture = capture_with(CrashingCapture, notes=ROWS)


def keys(capture, table="notes"):
    """Return the keys of the records; those of two partitions come in any order."""
    return sorted(key["id"] for _, _, key, _, _ in capture.log(table).records)


def refused(capture, *options):
    """Run a start that must not happen; returns what it said."""
    code, _, said = capture.run(*options, "--until", "now")
    assert code == 2, said
    return said


@pytest.mark.matrix
def test_without_a_snapshot_topics_hold_changes_alone_until_they_are_copied(capture):
    capture.catch_up("--skip-snapshot")
    capture.sql("UPDATE notes SET text = 'changed' WHERE id = 3", "DELETE FROM notes WHERE id = 4")
    capture.sql("CREATE TABLE more (id integer PRIMARY KEY, text text)")
    capture.sql("INSERT INTO more VALUES (1, 'before')")
    capture.catch_up("--skip-snapshot")
    capture.sql("INSERT INTO more VALUES (2, 'after')")
    capture.catch_up("--skip-snapshot")
    assert keys(capture) == [3, 4]
    assert keys(capture, "more") == [2]
    (status,) = capture.command("status", "--allow-inactive", "--json")
    assert status["frontier"]["uncopied"] == ["public.more", "public.notes"]
    assert "--skip-snapshot" in str(capture.command("verify", "notes", "--json", codes={4}))

    asked = ["resnapshot", "public.notes", "--json"]
    capture.command(*asked)
    capture.catch_up("--skip-snapshot")
    capture.check()
    assert [scope.copied for scope in capture.frontier().scopes.values()] == [False]
    capture.catch_up()
    assert capture.frontier().scopes == {}
    capture.check("more")
    capture.command("verify", "--json")


@pytest.mark.matrix
def test_a_kill_before_the_first_frontier_skips_the_snapshot_again(capture):
    settings = capture.folder / "changelog.toml"
    settings.write_text(settings.read_text() + "skip_snapshot = true\n")
    capture.crash("slot made")
    capture.sql("UPDATE notes SET text = 'changed' WHERE id = 3")
    capture.crash("frontier written")
    capture.finish()
    assert keys(capture) == [3]


@pytest.fixture
def places(capture):
    """A publication and a slot made by others, three changes, and where each lies in the WAL."""
    capture.sql(
        f"CREATE PUBLICATION {capture.prefix} FOR TABLE notes "
        "WITH (publish_via_partition_root = true)",
        f"SELECT pg_create_logical_replication_slot('{capture.prefix}', 'pgoutput')",
    )
    found = []
    for number in (1, 2, 3):
        found += capture.query("SELECT pg_current_wal_insert_lsn()::text")
        capture.sql(f"UPDATE notes SET text = 'changed' WHERE id = {number}")
    return [lsn for (lsn,) in found]


def confirmed(capture):
    ((lsn,),) = capture.query(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots "
        f"WHERE slot_name = '{capture.prefix}'"
    )
    return lsn


@pytest.mark.matrix
def test_the_stream_of_a_slot_of_others_begins_where_it_is_asked_to(capture, places):
    stands = confirmed(capture)
    _, _, said = capture.run("--until", "now")
    assert f"--start-lsn {stands}" in said
    assert "is before" in refused(capture, "--start-lsn", "0/1")
    assert "after the end" in refused(capture, "--start-lsn", "FFFF/0")
    assert describe(capture.kafka, [f"{capture.prefix}.notes"]) == {}
    begin = ["--start-lsn", places[1], "--skip-snapshot"]
    capture.catch_up(*begin)
    assert keys(capture) == [2, 3]
    capture.sql("UPDATE notes SET text = 'changed' WHERE id = 4")
    capture.catch_up(*begin)
    assert keys(capture) == [2, 3, 4]
    assert f"not at --start-lsn {places[2]}" in refused(capture, "--start-lsn", places[2])
    capture.catch_up()
    capture.check()


@pytest.mark.matrix
def test_twin_without_the_check_what_the_slot_has_given_up_is_missing(capture, places):
    capture.sql(f"SELECT pg_replication_slot_advance('{capture.prefix}', '{places[2]}')")
    refused(capture, "--start-lsn", places[0], "--skip-snapshot")
    with (capture.folder / "changelog.toml").open("a") as file:
        file.write(f'start_lsn = "{places[0]}"\nskip_snapshot = true\n')
    capture.finish(defect="believe_start_lsn")
    assert keys(capture) == [3]


@pytest.mark.matrix
def test_a_start_lsn_needs_a_slot_and_a_publication_of_before(capture):
    ((now,),) = capture.query("SELECT pg_current_wal_insert_lsn()::text")
    assert "a new slot begins" in refused(capture, "--start-lsn", now)
    assert "contradict" in refused(capture, "--start-lsn", now, "--temporary-slot")
    slot = f"SELECT pg_create_logical_replication_slot('{capture.prefix}', 'pgoutput')"
    capture.sql(slot)
    code, _, said = capture.run("--until", "now", "--start-lsn", confirmed(capture))
    assert code == 1
    assert f'the publication "{capture.prefix}" does not exist' in said
    assert capture.query("SELECT count(*) FROM pg_publication") == [(0,)]


def slots(capture):
    return capture.query(
        f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{capture.prefix}'"
    )


@pytest.mark.matrix
def test_a_temporary_slot_goes_with_its_connection_and_each_log_is_a_fresh_one(capture):
    capture.start("--temporary-slot")
    first = capture.wait_for_frontier()
    capture.sql("UPDATE notes SET text = 'changed' WHERE id = 3")
    capture.settle()
    capture.check()
    (status,) = capture.command("status", "--json")
    assert status["temporary"] is True

    code, _, said = capture.run("--temporary-slot", "--until", "now")
    assert (code, "is read by the server process" in said) == (1, True)

    ((pid,),) = slots(capture)
    capture.sql(f"SELECT pg_terminate_backend({pid})", "DELETE FROM notes WHERE id = 5")
    wait_until(lambda: capture.frontier().epoch > first.epoch, 60, "a fresh log")
    capture.sql("DELETE FROM notes WHERE id = 6")
    capture.settle()
    capture.check()
    assert f'temporary slot "{capture.prefix}" is gone: a fresh log under epoch' in capture.said()
    capture.stop(signal.SIGTERM)
    assert slots(capture) == []
    (status,) = capture.command("status", "--json", codes={1})
    assert "there is no slot" in status["problems"]

    capture.sql(f"SELECT pg_create_physical_replication_slot('{capture.prefix}')")
    assert "is not temporary" in refused(capture, "--temporary-slot")
    capture.sql(f"SELECT pg_drop_replication_slot('{capture.prefix}')")
    capture.catch_up()
    assert capture.frontier().epoch > first.epoch + 1
    assert len(slots(capture)) == 1
    capture.check()


@pytest.mark.matrix
def test_no_slot_is_made_where_none_may_be_and_one_of_others_is_begun_where_it_stands(
    capture, request
):
    said = refused(capture, "--no-create-slot")
    assert f"pg_create_logical_replication_slot('{capture.prefix}', 'pgoutput')" in said
    assert capture.query("SELECT count(*) FROM pg_replication_slots WHERE slot_name = "
                         f"'{capture.prefix}'") == [(0,)]  # fmt: skip
    assert describe(capture.kafka, [f"{capture.prefix}.notes"]) == {}
    assert "contradict" in refused(capture, "--no-create-slot", "--temporary-slot")
    request.getfixturevalue("places")
    capture.catch_up("--no-create-slot", "--skip-snapshot")
    assert keys(capture) == [1, 2, 3]
    capture.sql("UPDATE notes SET text = 'changed' WHERE id = 4")
    capture.catch_up("--no-create-slot", "--skip-snapshot")
    assert keys(capture) == [1, 2, 3, 4]
    # Where the slot is gone nothing is made anew behind anybody's back.
    capture.sql(f"SELECT pg_drop_replication_slot('{capture.prefix}')")
    assert "is gone" in refused(capture, "--no-create-slot", "--skip-snapshot")
    assert keys(capture) == [1, 2, 3, 4]
