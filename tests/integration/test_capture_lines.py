"""`changelog capture --print` and `--into FILE`: changes as lines, without Kafka."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import pytest

from changelog.capture.lines import run as lines_run
from changelog.capture.lines.command import line_run, opened
from changelog.capture.lines.file import LineFile
from changelog.capture.loop.run import until_lsn
from changelog.config import SOURCE, load_project
from changelog.contract.base.errors import ChangelogError, LogError
from tests.support.small_disk import small_disk
from tests.support.sql import execute
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

TABLE = (
    "CREATE TABLE notes (id integer PRIMARY KEY, text text, number numeric)",
    "ALTER TABLE notes ALTER text SET STORAGE EXTERNAL",
    "INSERT INTO notes SELECT n, 'row ' || n, n / 7.0 FROM generate_series(1, 500) n",
)
CHANGES = (
    "UPDATE notes SET text = repeat('x', 5000) WHERE id % 5 = 0",
    "UPDATE notes SET number = 'NaN' WHERE id % 5 = 0",
    "UPDATE notes SET id = id + 1000 WHERE id % 7 = 0",
    "DELETE FROM notes WHERE id % 3 = 0",
    "INSERT INTO notes VALUES (0, E'a\\nb', NULL)",
)


class Lines:
    """A project without brokers or registry, and a file of lines."""

    def __init__(self, dsn, prefix, folder):
        self.dsn, self.folder = dsn, folder
        self.name, self.slot = prefix, f"{prefix}_lines"
        self.path = folder / "changes.jsonl"
        (folder / "changelog.toml").write_text(
            f'postgres.dsn = "{dsn}"\n[capture]\nslot = "{prefix}"\nstatus_interval_ms = 200\n'
        )

    def words(self, *more):
        base = [sys.executable, "-m", "changelog", "capture", "--project", str(self.folder)]
        return [*base, *more]

    def run(self, *more):
        done = subprocess.run(
            self.words(*more), check=False, capture_output=True, text=True, timeout=90
        )
        return done.returncode, done.stdout, done.stderr

    def catch_up(self):
        code, _, said = self.run("--into", str(self.path), "--until", "now")
        assert code == 0, said
        return said

    def sql(self, *statements):
        execute(self.dsn, *statements)

    def query(self, statement):
        return execute(self.dsn, statement)

    def written(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def size(self):
        return self.path.stat().st_size if self.path.exists() else 0

    def grew(self, size):
        return self.size() > size

    def check(self, lines=None):
        """The fold of the lines is the table, and no change stands twice."""
        lines = self.written() if lines is None else lines
        rows: dict[int, dict[str, object]] = {}
        for line in lines:
            match line["op"]:
                case "r" | "c" | "u":
                    old = rows.pop(line.get("old_key", line["key"])["id"], {})
                    kept = {name: old[name] for name in line.get("unchanged", ())}
                    rows[line["key"]["id"]] = kept | line["after"]
                case "d":
                    del rows[line["key"]["id"]]
                case "t":
                    rows.clear()
                case _:
                    assert line["op"] in {"begin", "copied", "at"}
        there = self.query("SELECT id, text, number::text FROM notes")
        assert rows == {i: {"id": i, "text": t, "number": n} for i, t, n in there}
        places = [(each["lsn"], each["sequence"]) for each in lines if "sequence" in each]
        assert len(places) == len(set(places))


@pytest.fixture
def lines(dsn, prefix, tmp_path):
    made = Lines(dsn, prefix, tmp_path)
    made.sql(*TABLE)
    return made


def test_snapshot_and_changes_are_printed_and_a_closed_pipe_ends_it(lines):
    with (lines.folder / "said").open("w") as said:
        running = subprocess.Popen(
            lines.words("--print"), stdout=subprocess.PIPE, stderr=said, text=True
        )
    seen: list[dict] = []
    assert running.stdout is not None
    out = running.stdout

    def read(op):
        while not (seen and seen[-1]["op"] == op):
            seen.append(json.loads(out.readline()))

    read("copied")
    lines.sql(*CHANGES)
    read("at")
    while seen[-1]["op"] != "at" or seen[-2].get("key") != {"id": 0}:
        seen.append(json.loads(out.readline()))
    lines.check(seen)
    assert all("sequence" in each for each in seen if each["op"] in "cud")
    assert next(each for each in seen if each.get("unchanged")) is not None
    out.close()
    assert running.wait(timeout=30) == 0
    assert "Traceback" not in (lines.folder / "said").read_text()
    # A temporary slot and its publication are gone with it.
    assert (
        lines.query(
            f"SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '{lines.slot}%'"
        )
        == []
    )
    assert lines.query("SELECT pubname FROM pg_publication") == []


def test_a_permanent_slot_is_printed_on_from_where_the_last_one_was(lines):
    def printed(*more):
        code, out, said = lines.run("--print", "--until", "now", *more)
        assert code == 0, said
        return [json.loads(line) for line in out.splitlines()]

    first = printed("--permanent-slot")
    assert {"r", "copied"} <= {each["op"] for each in first}
    lines.sql(*CHANGES)
    later = printed("--permanent-slot")
    assert "r" not in {each["op"] for each in later}
    # Some may come twice: what was printed, and not yet told to the server.
    seen = {(each["lsn"], each["sequence"]) for each in first if "sequence" in each}
    lines.check(
        [
            *first,
            *(e for e in later if "sequence" not in e or (e["lsn"], e["sequence"]) not in seen),
        ]
    )
    slots = f"SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '{lines.slot}%'"
    assert lines.query(slots) == [(lines.slot,)]
    # Twin: a temporary slot begins with a snapshot each time.
    assert {"r", "copied"} <= {each["op"] for each in printed("--slot", f"{lines.slot}_other")}
    assert lines.query(slots) == [(lines.slot,)]


def test_a_file_is_gone_on_with_where_it_ended(lines):
    lines.catch_up()
    lines.check()
    lines.sql(*CHANGES)
    lines.catch_up()
    lines.check()
    with lines.path.open("a") as file:
        file.write('{"op":"c","schema":"pub')
    lines.sql("INSERT INTO notes VALUES (-1, 'later', 1)", "TRUNCATE notes", *TABLE[2:])
    lines.catch_up()
    lines.check()
    # What the file has already is left out, although the slot sends it again.
    *kept, last = lines.path.read_bytes().splitlines(keepends=True)
    assert json.loads(last)["op"] == "at"
    lines.path.write_bytes(b"".join(kept[:-3]))
    code, _, said = lines.run("--into", str(lines.path), "--until", "now")
    assert code == 1
    assert "past the end of the file" in said


def test_killed_at_any_moment_it_loses_and_doubles_nothing(lines):
    lines.sql("INSERT INTO notes SELECT n, 'many', n FROM generate_series(1001, 60000) n")
    for _ in range(6):
        with (lines.folder / "said").open("a") as said:
            running = subprocess.Popen(lines.words("--into", str(lines.path)), stderr=said)
        before = lines.size()
        wait_until(partial(lines.grew, before), 60, "lines come")
        lines.sql(
            "UPDATE notes SET number = number + 1 WHERE id % 20 = 0",
            "DELETE FROM notes WHERE id = (SELECT max(id) FROM notes)",
            f"INSERT INTO notes VALUES ({-time.time_ns() // 1000 % 10**9}, 'more', 0)",
        )
        running.send_signal(signal.SIGKILL)
        running.wait(timeout=60)
    lines.catch_up()
    lines.check()


def test_what_does_not_fit_together_is_refused(lines):
    lines.catch_up()
    with (
        opened(lines.path),
        pytest.raises(LogError, match="another capture writes"),
        opened(lines.path),
    ):
        pass
    other = lines.folder / "other"
    code, _, said = lines.run("--into", str(other), "--until", "now")
    assert (code, "the file is empty" in said) == (1, True)
    other.write_text("mine\n")
    code, _, said = lines.run("--into", str(other))
    assert (code, "is no file of" in said) == (1, True)
    assert other.read_text() == "mine\n"
    lines.sql(f"SELECT pg_drop_replication_slot('{lines.slot}')")
    code, _, said = lines.run("--into", str(lines.path), "--until", "now")
    assert (code, "what came since the file ended is lost" in said) == (1, True)
    for words in (
        ["--print", "--into", "x"],
        ["--print", "--json"],
        ["--print", "--check"],
        ["--into", "x", "--envelope", "flat"],
    ):
        code, _, said = lines.run(*words)
        assert (code, "contradict each other" in said) == (2, True)
    code, _, said = lines.run("--print", "--envelope", "nested")
    assert (code, "is for topics" in said) == (2, True)


GIVEN = ("--no-create-slot", "--publication", "theirs", "--until", "now")


@pytest.fixture
def given(lines):
    """A slot and a publication of the names that others gave."""
    lines.sql(
        "CREATE PUBLICATION theirs FOR ALL TABLES WITH (publish_via_partition_root)",
        f"SELECT pg_create_logical_replication_slot('{lines.name}', 'pgoutput')",
    )
    return lines


def changes(out):
    return [each for each in map(json.loads, out.splitlines()) if each["op"] in "cud"]


def test_changes_of_a_slot_that_others_made_are_printed_from_a_place_in_the_wal(given):
    given.sql("INSERT INTO notes VALUES (1001, 'before', 1)")
    ((number,),) = given.query("SELECT pg_current_wal_insert_lsn() - '0/0'")
    given.sql("INSERT INTO notes VALUES (1002, 'after', 1)")
    code, out, said = given.run("--print", *GIVEN, "--start-lsn", str(number))
    assert code == 0, said
    assert [each["key"] for each in changes(out)] == [{"id": 1002}]
    assert '"op":"r"' not in out
    code, _, said = given.run("--print", *GIVEN, "--start-lsn", "1")
    assert (code, "is before" in said) == (2, True)
    given.sql("DELETE FROM notes WHERE id = 1002")
    code, out, said = given.run("--print", *GIVEN, "--start-lsn", "0")
    assert changes(out)[-1]["op"] == "d", said
    code, _, said = given.run("--print", *GIVEN, "--slot", "nobody")
    assert (code, 'there is no slot "nobody"' in said) == (1, True)
    # The slot and the publication are the others' still.
    assert given.query("SELECT pubname FROM pg_publication") == [("theirs",)]


def test_a_publication_beside_a_slot_of_others_is_altered_by_hand(given):
    """--create-publication would have no effect there, and so it is not what is told."""
    given.sql("ALTER PUBLICATION theirs SET (publish_via_partition_root = false)")
    for words in (["--create-publication"], ["--publication", "nobody_s"]):
        code, _, said = given.run("--print", *GIVEN, *words)
        assert code == 1
        assert "alter it by hand, WITH (publish_via_partition_root = true)" in said
        assert "--create-publication" not in said


def test_a_file_goes_on_with_a_slot_that_others_made(given):
    into = ("--into", str(given.path), *GIVEN)
    given.sql("INSERT INTO notes VALUES (1001, 'first', 1)")
    assert given.run(*into)[0] == 0
    given.sql("INSERT INTO notes VALUES (1002, 'second', 1)")
    code, _, said = given.run(*into)
    assert code == 0, said
    found = [each["key"]["id"] for each in given.written() if each["op"] == "c"]
    assert found == [1001, 1002]
    begin = given.written()[0]["lsn"]
    assert given.run(*into, "--start-lsn", begin)[0] == 0
    code, _, said = given.run(*into, "--start-lsn", "FF/1")
    assert (code, f"the file began at {begin}" in said) == (2, True)


def test_flat_lines_are_events_with_table_place_and_time_of_ingestion(lines):
    with (lines.folder / "said").open("w") as said:
        running = subprocess.Popen(
            lines.words("--print", "--envelope", "flat"),
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    assert running.stdout is not None
    out = running.stdout
    rows = [json.loads(out.readline()) for _ in range(500)]
    before_ns = time.time_ns()
    lines.sql("UPDATE notes SET id = 2000, text = 'moved' WHERE id = 7", "DELETE FROM notes")
    moved, *_ = [json.loads(out.readline()) for _ in range(501)]
    lines.sql("TRUNCATE notes")
    emptied = json.loads(out.readline())
    running.terminate()
    running.communicate(timeout=60)
    assert {each["type"] for each in rows} == {"read"}
    assert {"after_id", "after_text", "after_number"} <= rows[0].keys()
    assert moved.pop("ingestion") >= before_ns
    assert isinstance(moved.pop("lsn"), int)
    assert abs(moved.pop("ts") - time.time() * 1000) < 600_000
    number = moved.pop("after_number")
    assert number
    assert moved == {
        "type": "update",
        "schema": "public",
        "table": "notes",
        "before_id": 7,
        "after_id": 2000,
        "after_text": "moved",
    }
    assert emptied["type"] == "truncate"


@pytest.mark.parametrize("is_defect", [False, True])
def test_what_a_file_has_is_left_out_when_it_is_sent_again(lines, monkeypatch, is_defect):
    """With its twin, in which a start forgets the place of the last line."""
    lines.catch_up()
    lines.sql("INSERT INTO notes VALUES (9998, 'once', 0), (9999, 'once', 0)")
    settings = load_project(lines.folder, needs=[SOURCE])

    def attempt(lsn):
        with opened(lines.path) as target:
            line_run(settings, target, temporary=False, stop=lambda: False).run(lsn)

    def killed(*_, **__):
        if b'"id":9999' in lines.path.read_bytes():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lines_run._AttemptLines, "_settle", killed)
        with pytest.raises(KeyboardInterrupt):
            attempt(None)
    if is_defect:
        monkeypatch.setattr(lines_run.LineRun, "_go_on_behind", lambda *_: None)
    attempt(until_lsn(settings, "now"))
    if is_defect:
        with pytest.raises(AssertionError):
            lines.check()
    else:
        lines.check()


@pytest.fixture
def disk(lines):
    """A file of lines on a file system with room for a part of the snapshot."""
    with small_disk(lines.folder / "disk", 24) as made:
        lines.path = made.place / "changes.jsonl"
        yield made


def is_full(lines):
    code, _, said = lines.run("--into", str(lines.path), "--until", "now")
    assert (code, "Traceback" in said) == (1, False), said
    assert f'the file "{lines.path}" cannot be written: No space left on device' in said
    assert "hint: make room, and go on where the lines end" in said


def test_a_full_disk_is_told_and_once_there_is_room_nothing_is_lost_or_doubled(lines, disk):
    is_full(lines)  # in the snapshot
    disk.resize(4096)
    lines.catch_up()
    lines.check()
    disk.leave(100)
    lines.sql(*CHANGES)
    is_full(lines)  # in a transaction
    is_full(lines)  # as long as it is full
    disk.resize(4096)
    lines.catch_up()
    lines.check()


@pytest.mark.matrix
def test_twin_that_goes_on_where_a_disk_is_full_loses_what_it_did_not_take(
    lines, disk, monkeypatch
):
    disk.resize(4096)
    lines.catch_up()
    disk.leave(100)
    lines.sql(*CHANGES)
    whole = LineFile.write

    def regardless(self, raw):
        with suppress(ChangelogError):
            whole(self, raw)

    settings = load_project(lines.folder, needs=[SOURCE])
    with monkeypatch.context() as patched, opened(lines.path) as target:
        patched.setattr(LineFile, "write", regardless)
        run = line_run(settings, target, temporary=False, stop=lambda: False)
        run.run(until_lsn(settings, "now"))
    disk.resize(4096)
    lines.run("--into", str(lines.path), "--until", "now")
    with pytest.raises((AssertionError, ValueError, KeyError)):
        lines.check()
