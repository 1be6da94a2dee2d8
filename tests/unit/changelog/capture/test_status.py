"""What status calls a problem, and how it is told."""

import json
import re
import shlex
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from changelog import cli
from changelog.capture.inspect import status as status_module
from changelog.capture.inspect.status import Limits
from changelog.capture.state.lag import WalRate
from changelog.contract.log.backfill import BackfillRecord, TableBackfill
from changelog.contract.rows.relation import KeyIndex, TableName
from changelog.source.tables.catalogue import NO_KEY
from changelog.source.tables.filter import TablePattern
from tests.unit.changelog.capture.states import ORDERS, frontier, slot, source, status

GIB = 1 << 30


def test_a_capture_that_keeps_up_has_no_problem():
    found = status()
    assert found.problems == ()
    assert (found.lag_bytes, found.frontier_age_s) == (500, 1.0)
    assert found.records == {"public.orders": 15}
    assert found.to_json()["ok"] is True


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source": source(slot=None)}, "there is no slot"),
        ({"source": source(slot=slot(active=False))}, "no process reads the slot"),
        ({"source": source(slot=slot(wal_status="unreserved"))}, "about to be lost"),
        ({"source": source(slot=slot(wal_status="lost"))}, "its WAL was removed"),
        (
            {"source": source(slot=slot(wal_status="lost", invalidation="idle_timeout"))},
            "the slot is lost: nobody read it for idle_replication_slot_timeout",
        ),
        ({"frontier": None, "lag_s": None}, "no snapshot is whole"),
        ({"frontier": frontier(age_s=301)}, "the last frontier is 301 s old, over 300 s"),
        ({"limits": Limits(max_lag_bytes=499)}, "the log is 500 bytes of WAL behind, over 499"),
    ],
    ids=str,
)
def test_each_problem_is_named_and_is_the_only_one(changes, says):
    (problem,) = status(**changes).problems
    assert says in problem
    assert status(**changes).to_json()["ok"] is False


def test_a_table_without_a_primary_key_that_an_index_keys_is_no_problem():
    """The option that names the index may be on the command line of capture alone."""
    wanted = {ORDERS: NO_KEY}
    (problem,) = status(matches=wanted).problems
    assert "has no primary key: no frontier speaks of it from" in problem
    index = {str(ORDERS): KeyIndex(1, "orders_id", ("id",))}
    assert status(matches=wanted, key_indexes=index).problems == ()
    (problem,) = status(matches={ORDERS: "is gone"}, key_indexes=index).problems
    assert "is gone" in problem


def excluded(table, topic_id="t1"):
    copy = TableBackfill(
        table=table, reason="", is_excluded=True, fault="is broken", topic_id=topic_id
    )
    return BackfillRecord(slot="s", epoch=1, system_id="7", timeline=1, tables={"t": copy})


@pytest.mark.parametrize(
    "table", [ORDERS, TableName("public", "it's a.b\""), TableName("a b", "*")], ids=str
)
def test_the_way_back_of_an_excluded_table_can_be_pasted(table):
    (problem,) = status(backfill=excluded(table), matches={table: ""}).problems
    _, command, said = problem.split("`")
    *words, pattern = shlex.split(command)
    assert words == ["changelog", "resnapshot"]
    assert TablePattern.parse(pattern).name == table
    assert said == " takes it back"


NEW = TableName("public", "new")


def test_what_a_start_found_is_taken_as_soon_as_it_is_mended():
    found = status(backfill=excluded(NEW, topic_id=""), matches={ORDERS: "", NEW: ""})
    said = 'the table "public.new" is excluded: is broken; capture takes it once that is mended'
    assert found.problems == (said,)
    assert found.missing == {"public.new": "it is excluded: is broken"}


def test_an_excluded_table_that_was_dropped_since_is_no_problem():
    found = status(backfill=excluded(NEW), matches={ORDERS: ""})
    assert (found.problems, found.excluded, found.missing) == ((), {}, {})


def test_a_table_without_a_topic_of_its_own_is_excluded_and_not_about_to_be_taken():
    why = "cannot be captured: a.b and a_b would share a topic"
    found = status(frontier=frontier(excluded={NEW: why}), matches={ORDERS: "", NEW: ""})
    (problem,) = found.problems
    assert problem.startswith(f'the table "public.new" is excluded: {why}')
    assert problem.endswith("`changelog resnapshot public.new` takes it back")
    assert found.missing == {"public.new": f"it is excluded: {why}"}


def test_what_stands_against_a_captured_table_is_a_problem_before_its_next_row():
    (problem,) = status(matches={ORDERS: "has no primary key"}).problems
    assert problem.startswith('the table "public.orders" has no primary key: no frontier')


def test_a_log_that_does_not_answer_leaves_the_slot_known():
    away = {"log": "no broker answers"}
    found = status(frontier=None, lag_s=None, unanswered=away, matches={ORDERS: ""})
    assert found.problems == ("no broker answers",)
    said = found.to_json()
    assert (said["active"], said["retained_bytes"], said["unanswered"]) == (True, 4000, away)
    unknown = ("frontier", "lag_s", "lag_bytes", "not_captured", "aside", "children", "key_indexes")
    assert [said[name] for name in unknown] == [None] * len(unknown)
    text = shown(found)
    assert "active, process 4711" in text
    assert re.search("frontier .*unknown", text)


def test_a_source_that_does_not_answer_leaves_the_frontier_known():
    away = {"source": "no server answers"}
    found = status(
        source=None, rate=None, frontier=frontier(age_s=301), lag_s=None, unanswered=away
    )
    assert found.problems == ("no server answers", "the last frontier is 301 s old, over 300 s")
    said = found.to_json()
    assert said["frontier"]["age_s"] == 301
    unknown = ("exists", "active", "wal_status", "wal_lsn", "retained_bytes", "reserves", "lag_s")
    assert [said[name] for name in unknown] == [None] * len(unknown)
    assert set(said["wal_bytes_per_s"].values()) == {None}
    text = shown(found)
    assert re.search("slot .*unknown", text)
    assert re.search("behind .*unknown", text)
    assert "301 s" in text


def test_limits_are_the_user_s():
    idle = source(slot=slot(active=False))
    old = frontier(age_s=1000)
    limits = Limits(max_lag_bytes=500, max_frontier_age_s=1000, allow_inactive=True)
    assert status(source=idle, frontier=old, limits=limits).problems == ()


def test_a_frontier_past_the_end_that_was_seen_is_no_negative_lag():
    assert status(frontier=frontier(lsn=6000)).lag_bytes == 0


def test_without_a_limit_the_reader_is_told_that_only_the_disk_ends_it():
    assert "max_slot_wal_keep_size is not set" in shown(status())


def test_the_time_left_is_told_at_the_higher_rate_for_each_limit():
    near = source(slot=slot(safe_bytes=2 * GIB), keep_limit_bytes=4 * GIB, disk_free_bytes=20 * GIB)
    found = status(source=near, rate=WalRate(now=float(1 << 20), average=1.0))
    text = shown(found)
    assert "2,147,483,648 bytes left, 34 min if nothing is acknowledged" in text
    assert "21,474,836,480 bytes left, 6 h if nothing is acknowledged" in text
    first, second = json.loads(json.dumps(found.to_json()))["reserves"]
    assert first == {
        "limit": "max_slot_wal_keep_size",
        "bytes_left": 2 * GIB,
        "seconds_left": 2048.0,
    }
    assert second["limit"] == "disk"


@pytest.mark.parametrize(
    ("words", "found", "code"),
    [
        ([], status(), 0),
        ([], status(source=source(slot=None)), 1),
        (["--json"], status(), 0),
        (["--json"], status(frontier=None, lag_s=None), 1),
    ],
    ids=str,
)
def test_the_exit_code_is_for_monitoring(monkeypatch, tmp_path, words, found, code):
    asked = []

    def ask(settings, limits, *, steps):
        asked.append(limits)
        steps.more(7)
        steps.done(3)
        return found

    file = StringIO()
    terminal = Console(file=file, force_terminal=True, width=60)
    monkeypatch.setattr("changelog.runtime.terminal.console", terminal)

    monkeypatch.setattr(status_module, "capture_status", ask)
    (tmp_path / "changelog.toml").write_text('postgres.dsn = "x"\nkafka.brokers = "x"')
    limits = ["--max-lag-bytes", "7", "--max-frontier-age", "8", "--allow-inactive"]
    ran = CliRunner().invoke(cli.app, ["status", "--project", str(tmp_path), *limits, *words])
    assert ran.exit_code == code, ran.output
    assert asked == [Limits(max_lag_bytes=7, max_frontier_age_s=8, allow_inactive=True)]
    said = file.getvalue()
    assert ("asking" in said, "3 of 7, " in said) == ((False, False) if words else (True, True))
    if words:
        assert json.loads(ran.stdout) == found.to_json()


def shown(found):
    text = StringIO()
    Console(width=200, file=text).print(found.table())
    return text.getvalue()
