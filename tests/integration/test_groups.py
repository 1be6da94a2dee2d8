"""Groups of tables with a slot of their own: one order of commits, and frontiers exact over all."""

from pathlib import Path

import pytest

from tests.integration.test_exactly_once import CHANGES, ONCE, changes_seen
from tests.support.capture_command import CrashingCapture
from tests.support.frontiers import frontiers_of, inexact
from tests.support.matrix import first
from tests.support.page_lines import block_of

pytestmark = [pytest.mark.services, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
ROWS = 300

BOTH = (
    """UPDATE notes SET text = text || '!' WHERE id % 3 = 0;
    UPDATE tales SET text = text || '!' WHERE id % 3 = 0;
    DELETE FROM notes WHERE id % 50 = 0; DELETE FROM tales WHERE id % 50 = 0""",
    "UPDATE tales SET id = id + 100000 WHERE id % 7 = 0; INSERT INTO notes VALUES (50001, 'new')",
    "INSERT INTO tales SELECT n, 'new' FROM generate_series(50000, 50100) n",
    "INSERT INTO notes SELECT n, 'newer' FROM generate_series(60000, 60100) n",
    "UPDATE notes SET text = 'last' WHERE id < 9; UPDATE tales SET text = 'last' WHERE id < 9",
)
"""In transactions over both groups, and over one."""

LATER = (
    """UPDATE tales SET text = 'later' WHERE id % 11 = 0; DELETE FROM notes WHERE id < 5;
    UPDATE notes SET text = 'later' WHERE id % 11 = 0""",
)


class Capture(CrashingCapture):
    """A capture of two tables, one of them in a group."""

    def name_groups(self, text):
        path = self.folder / "changelog.toml"
        lines = [each for each in path.read_text().splitlines() if not each.startswith("groups")]
        path.write_text("\n".join([*lines, text, ""]))

    def slots(self):
        found = self.query(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        )
        return {name for (name,) in found}

    def publications(self):
        found = self.query("SELECT pubname, tablename FROM pg_publication_tables")
        return {(name, table) for name, table in found}

    def check_both(self):
        """Each table is what the log says, and each frontier holds what was committed before it."""
        for table in ("notes", "tales"):
            self.check(table)
            assert inexact(self, table) == []


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    made = Capture(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    made.make_notes(ROWS)
    made.sql(
        "CREATE TABLE tales (id integer PRIMARY KEY, text text)",
        f"INSERT INTO tales SELECT n, 'row ' || n FROM generate_series(1, {ROWS}) n",
    )
    made.name_groups('groups.side = ["public.ta*"]')
    yield made
    made.kill()


@pytest.mark.matrix
def test_groups_have_slots_of_their_own_and_one_log(capture):
    capture.finish()
    main, side = capture.prefix, f"{capture.prefix}_side"
    assert capture.slots() == {main, side}
    assert capture.publications() == {(main, "notes"), (side, "tales")}
    capture.sql(*BOTH)
    capture.finish()
    capture.check_both()
    assert frontiers_of(capture)[-1].tables.keys() == {f"{main}.notes", f"{main}.tales"}
    # A slot that is gone has lost changes: all begins anew, and it is said why.
    capture.sql(f"SELECT pg_drop_replication_slot('{side}')", *LATER)
    (status,) = capture.command("status", "--json", "--allow-inactive", codes={1})
    assert any("the slot is lost: it is gone, and others" in each for each in status["problems"])
    said = capture.finish()
    assert f'slot "{main}" is lost: "{side}": it is gone' in said
    assert "a fresh log under epoch 2" in said
    capture.check_both()
    # Other groups are another log.
    capture.name_groups('groups.other = ["public.tales"]')
    code, said = capture.attempt()
    assert code != 0
    assert "was begun with other groups of tables: side; the settings name other" in said
    capture.name_groups('groups.side = ["public.tales"]')
    code, _, said = capture.run_other("slot drop", "--yes")
    assert (code, capture.slots()) == (0, set()), said


KILLS = ("record produced:500", "record produced:250", "frontier written", "transaction produced:3")


@pytest.mark.parametrize("point", first(1, [*KILLS, "acknowledged"]))
def test_a_kill_tears_no_transaction_over_both_groups(capture, point):
    capture.finish()
    capture.sql(*BOTH)
    capture.crash(point, defect="deliver_each")
    capture.sql(*LATER)
    capture.finish(defect="one_by_one")
    capture.check_both()


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["transaction produced:40", "frontier written:1"])
def test_a_kill_leaves_each_change_of_both_groups_once(capture, point):
    path = capture.folder / "changelog.toml"
    path.write_text(path.read_text() + "exactly_once = true\n")
    capture.finish()
    capture.sql(*(f"{each}; {each.replace('notes', 'tales')}" for each in CHANGES))
    capture.crash(point, defect="deliver_each")
    capture.finish()
    capture.check_both()
    for table in ("notes", "tales"):
        assert changes_seen(capture, table) == ONCE


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["slot intended", "slot made", "table whole", "acknowledged"])
def test_a_kill_in_the_first_start_is_healed(capture, point):
    capture.crash(point)
    capture.sql(*BOTH)
    capture.finish()
    capture.check_both()


def test_twin_a_merge_that_does_not_wait_tears_transactions(capture):
    capture.finish()
    capture.sql(*BOTH)
    capture.finish(defect="forget_the_other_slots")
    capture.check("notes")
    capture.sees_defect("tales")
    assert inexact(capture, "tales") or capture.differences("tales")


@pytest.mark.matrix
def test_an_idle_group_holds_nothing_up(capture):
    capture.start()
    capture.wait_for_frontier()
    for number in range(20):
        capture.sql(f"UPDATE notes SET text = 'now {number}' WHERE id = 1")
        capture.settle()
    assert capture.rows("notes")[(1,)]["text"] == "now 19"
    capture.stop()


@pytest.mark.matrix
def test_messages_come_once(capture):
    path = capture.folder / "changelog.toml"
    path.write_text(path.read_text() + 'messages = ["*"]\n')
    capture.finish()
    capture.sql(
        "INSERT INTO tales VALUES (-1, 'a'); SELECT pg_logical_emit_message(true, 'in', '1'); "
        "SELECT pg_logical_emit_message(false, 'out', '2'); INSERT INTO notes VALUES (-1, 'b')",
        "SELECT pg_logical_emit_message(true, 'alone', '3')",
    )
    capture.finish()
    topic = f"{capture.prefix}._messages"
    found = capture.reader.messages(topic, capture.frontier().ends[topic])
    assert [each.value() for each in found] == [b"2", b"1", b"3"]
    capture.check_both()


@pytest.mark.matrix
def test_a_large_transaction_of_one_group_holds_no_other_one_for_ever(capture):
    capture.finish()
    capture.sql(
        "INSERT INTO tales SELECT n, repeat('x', 500) FROM generate_series(1000, 60000) n; "
        "UPDATE notes SET text = 'with it'",
        *LATER,
        "INSERT INTO notes SELECT n, repeat('y', 500) FROM generate_series(1000, 60000) n; "
        "UPDATE tales SET text = 'with them' WHERE id < 100",
    )
    capture.finish()
    capture.check_both()


@pytest.mark.matrix
def test_a_table_that_changes_its_group_is_refused_or_copied_anew(capture):
    capture.finish()
    capture.sql(*BOTH)
    capture.name_groups('groups.side = ["public.notes"]')
    code, said = capture.attempt()
    assert code != 0
    assert "are sent by the publication of another group than before" in said
    path = capture.folder / "changelog.toml"
    path.write_text(path.read_text() + 'on_incompatible = "resnapshot"\n')
    said = capture.finish()
    assert "copied again" in said
    main = capture.prefix
    assert capture.publications() == {(main, "tales"), (f"{main}_side", "notes")}
    capture.sql(*LATER)
    capture.finish()
    for table in ("notes", "tales"):
        capture.check(table)


@pytest.mark.matrix
def test_tables_that_come_and_go_leave_a_group_empty(capture):
    capture.finish()
    capture.sql("DROP TABLE tales")
    capture.finish()
    capture.sql(
        "CREATE TABLE tables_later (id integer PRIMARY KEY, text text)",
        "INSERT INTO tables_later VALUES (1, 'a')",
        "INSERT INTO notes VALUES (-7, 'b')",
    )
    capture.finish()
    capture.sql("UPDATE tables_later SET text = 'c'; UPDATE notes SET text = 'c' WHERE id = -7")
    capture.finish()
    capture.check("notes")
    capture.check("tables_later")
    assert (f"{capture.prefix}_side", "tables_later") in capture.publications()


@pytest.mark.matrix
def test_a_slot_of_a_group_that_somebody_moved_is_refused(capture):
    capture.finish()
    capture.sql(*BOTH)
    capture.sql(
        f"SELECT pg_replication_slot_advance('{capture.prefix}_side', pg_current_wal_lsn())"
    )
    code, said = capture.attempt()
    assert code != 0
    assert f'slot "{capture.prefix}_side" is at' in said
    assert "past the last frontier of the log" in said


@pytest.mark.matrix
def test_a_slot_of_a_group_that_others_made_is_named_and_left(capture):
    side = f"{capture.prefix}_side"
    capture.sql(f"SELECT pg_create_logical_replication_slot('{side}', 'pgoutput')")
    code, said = capture.attempt()
    assert code != 0
    assert f'there is already the slot "{side}"' in said
    assert capture.slots() == {side}
    code, _, said = capture.run_other("slot drop", "--yes")
    assert (code, capture.slots()) == (0, set()), said
    code, _, said = capture.run_other("slot drop", "--yes")
    assert (code, f'no slot "{side}"' in said) == (1, True), said
    capture.finish()
    capture.check_both()


@pytest.mark.matrix
def test_a_teardown_removes_the_slots_and_publications_of_groups(capture):
    capture.finish()
    code, _, said = capture.run_other("teardown", "--yes")
    assert code == 0, said
    assert capture.slots() == set()
    assert capture.publications() == set()


@pytest.mark.matrix
def test_the_groups_of_the_page_have_slots_as_it_says(capture):
    capture.sql(
        "CREATE TABLE order_lines (id integer PRIMARY KEY)",
        "CREATE TABLE events (id integer PRIMARY KEY)",
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.orders (id integer PRIMARY KEY)",
    )
    _, _, text = block_of(PAGE, "toml", "[capture]\nslot").text.partition("[capture.groups]")
    capture.name_groups(f'tables = ["public.*", "sales.*"]\n[capture.groups]{text}')
    capture.finish()
    main = capture.prefix
    assert capture.slots() == {main, f"{main}_large", f"{main}_sales"}
    assert capture.publications() == {
        (main, "notes"),
        (main, "tales"),
        (f"{main}_large", "order_lines"),
        (f"{main}_large", "events"),
        (f"{main}_sales", "orders"),
    }
