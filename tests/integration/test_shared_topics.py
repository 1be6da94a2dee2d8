"""Two slots whose captures write the same topics: the second is refused, and the way out works."""

import json
import shlex
import subprocess

import pytest
from rich.console import Console

from changelog.capture.loop.run import CaptureRun, until_lsn
from changelog.capture.state.report import CaptureReport
from changelog.config import load_project
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.matrix import first
from tests.support.own_server import server_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

SHARED = "has the topic"


class BothCaptures(CrashingCapture):
    """A project that is captured by its own slot, and by another one."""

    @property
    def other(self):
        return f"{self.prefix}_other"

    def begin_beside(self, log):
        """Start the other one, errors to a file."""
        words = self._command("--slot", self.other)
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)


server = server_of([18])


capture = capture_with(BothCaptures, notes=20)


def test_a_second_slot_for_the_same_tables_is_refused_until_the_first_is_gone(capture):
    capture.catch_up()
    code, _, said = capture.run("--until", "now", "--slot", capture.other)
    assert (code, SHARED in said, f'slot "{capture.prefix}"' in said) == (2, True, True), said
    code, out, _ = capture.run("--check", "--json", "--slot", capture.other)
    problems = [each for each in json.loads(out)["checks"] if each["state"] == "problem"]
    assert [each["check"] for each in problems] == ["other captures"]
    assert (code, SHARED in problems[0]["found"]) == (2, True)
    ((there,),) = capture.query(
        "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    )
    assert there == 1, "nothing is made"
    # The hint's own words.
    words = shlex.split(said.rpartition("`changelog ")[2].partition("`")[0])
    code, _, said = capture.run_other(" ".join(words[:2]), *words[2:], "--yes")
    assert code == 0, said
    code, _, said = capture.run("--until", "now", "--slot", capture.other)
    assert code == 0, said


@pytest.mark.matrix
def test_the_slot_of_another_server_is_refused_until_there_is_another_prefix(capture, server):
    capture.catch_up()
    server.create_database(capture.prefix)
    capture.dsn = server.database_dsn(capture.prefix)
    capture.read_from(capture.dsn)
    capture.make_notes(10)
    code, _, said = capture.run("--until", "now", "--slot", capture.other)
    assert (code, SHARED in said, "of another server" in said) == (2, True, True), said
    prefix = f"{capture.prefix}.elsewhere"
    code, _, said = capture.run("--until", "now", "--slot", capture.other, "--topic-prefix", prefix)
    assert code == 0, said


@pytest.mark.matrix
def test_twin_that_does_not_look_writes_the_other_one_s_topics(capture, monkeypatch):
    for module in ("start.outlook", "copy.table_tasks"):
        monkeypatch.setattr(f"changelog.capture.{module}.refuse_shared", lambda *_: None)
    capture.catch_up()
    foreign = []
    for slot in (capture.other, capture.prefix) * 2:
        settings = load_project(capture.folder, overrides={"capture.slot": slot})
        report, quiet = CaptureReport(), Console(quiet=True)
        run = CaptureRun(settings, report=report, stop=lambda: False, console=quiet)
        run.run(until_lsn(settings, "now"))
        foreign.append(report.errors["ForeignRecords"])
    assert all(foreign[1:]), "each copies anew what the other has written"


@pytest.mark.matrix
def test_a_second_slot_with_tables_of_its_own_or_another_prefix_is_not_refused(capture):
    capture.sql("CREATE TABLE others (id integer PRIMARY KEY)")
    capture.catch_up("--exclude", "public.others")
    capture.catch_up("--slot", capture.other, "--tables", "public.others")
    capture.catch_up("--slot", f"{capture.other}_2", "--topic-prefix", f"{capture.prefix}.2")
    capture.catch_up("--exclude", "public.others")
    code, out, said = capture.run("--check", "--json", "--slot", capture.other)
    assert code == 2, said
    assert [each["check"] for each in json.loads(out)["checks"] if each["exit_code"]] == [
        "other captures"
    ]


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("option", "topic"), first(1, [("--messages=*", "_messages"), ("--ddl", "ddl")])
)
def test_two_slots_do_not_share_messages_or_schema_changes(capture, option, topic):
    if option == "--ddl":
        code, _, said = capture.run_other("ddl install")
        assert code == 0, said
    capture.sql("CREATE TABLE others (id integer PRIMARY KEY)")
    capture.catch_up("--exclude", "public.others", option)
    beside = ("--slot", capture.other, "--tables", "public.others")
    code, _, said = capture.run("--until", "now", *beside, option)
    assert (code, SHARED in said, f'{topic}"' in said) == (2, True, True), said
    assert "skip everything before the other's last record" in said
    capture.catch_up(*beside)
    capture.catch_up("--exclude", "public.others", option)


@pytest.mark.matrix
def test_of_two_that_begin_at_once_neither_copies_for_ever(capture):
    """Nothing is on the log when they look; they end once one meets the other's records."""
    first = capture.start()
    with (capture.folder / "second.log").open("wb") as log:
        second = capture.begin_beside(log)
        try:

            def one_ended():
                capture.sql("UPDATE notes SET text = text || '.' WHERE id = 1")
                return first.poll() is not None or second.poll() is not None

            wait_until(one_ended, 60, "one of them ends")
        finally:
            second.kill()
            second.wait()
    said = capture.said() + (capture.folder / "second.log").read_text()
    # They may also meet at the registry, before either has a record on the log.
    assert SHARED in said or 'error: subject "' in said, said
