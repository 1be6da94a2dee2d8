"""A topic whose beginning was cut off: told wherever one looks, and mended by a fresh copy."""

import signal
from contextlib import contextmanager

import pytest

from changelog.contract.base.errors import VerdictError
from replay.broker.topics import inspect
from tests.support.beginnings import delete_before, delete_records, expire
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.wait import wait_until
from views.verify.records.read import topic_facts

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 300
EXPIRED = pytest.param(expire, marks=pytest.mark.matrix)


class Capture(CrashingCapture):
    @property
    def topic(self):
        return f"{self.prefix}.notes"

    def checked(self):
        code, _, said = self.run("--check", "--json")
        return code, said

    def problems(self):
        (status,) = self.command("status", "--allow-inactive", "--json", codes={0, 1})
        return status["problems"]

    def verdict(self):
        (found,) = self.command("topics", "--json", codes={0, 1, 4})
        return next(each["verdict"] for each in found["topics"] if each["topic"] == self.topic)

    @contextmanager
    def paused(self):
        """Hold what runs: it would refuse the policy that a topic has while it loses records."""
        if self.running is None:
            yield
            return
        self.running.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.running.send_signal(signal.SIGCONT)

    def set(self, **settings):
        path = self.folder / "changelog.toml"
        more = "".join(f'{name} = "{value}"\n' for name, value in settings.items())
        path.write_text(path.read_text() + more)


capture = capture_with(
    Capture,
    "CREATE TABLE other (id integer PRIMARY KEY, text text)",
    "INSERT INTO other SELECT n, 'row ' || n FROM generate_series(1, 50) n",
    notes=ROWS,
)


def says(texts, capture):
    """Tell whether one names the topic, what is wrong and the way out."""
    joined = " ".join(texts).replace('\\"', '"')
    return (
        f'topic "{capture.topic}": partition' in joined
        and "older records were deleted" in joined
        and "`changelog resnapshot public.notes`" in joined
    )


@pytest.mark.matrix
@pytest.mark.parametrize("cut_off", [delete_records, EXPIRED])
def test_it_is_told_at_the_start_and_mended_by_a_copy_that_is_asked_for(capture, cut_off):
    capture.catch_up()
    before = capture.frontier()
    assert any(cut_off(capture.kafka, capture.topic))
    capture.sql("UPDATE notes SET text = 'changed' WHERE id % 50 = 0")

    code, out, said = capture.run("--check", "--json")
    assert code == 1
    assert says([out, said], capture)
    assert says(capture.problems(), capture)
    code, _, said = capture.run("--until", "now")
    assert code == 1
    assert says([said], capture)
    assert capture.frontier() == before
    assert capture.verdict() == "not-exact"
    with pytest.raises(VerdictError, match="older records were deleted"):
        topic_facts(capture.kafka, before, capture.topic)

    capture.command("resnapshot", "public.notes", "--json")
    capture.catch_up()
    capture.check()
    capture.check("other")
    assert capture.problems() == []
    assert capture.verdict() in {"exact", "exact-until"}
    (report,) = capture.command("verify", "--json")
    assert report["verified"]
    capture.catch_up()
    assert any(capture.frontier().alive_from[capture.topic])


@pytest.mark.matrix
@pytest.mark.parametrize("cut_off", [delete_records, EXPIRED])
@pytest.mark.parametrize("running", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_it_is_mended_by_itself_where_that_is_asked_for(capture, cut_off, running):
    capture.set(on_incompatible="resnapshot")
    capture.catch_up()
    if running:
        capture.begin()
        capture.wait_for_frontier()
    with capture.paused():
        starts = cut_off(capture.kafka, capture.topic)
    assert any(starts)
    capture.sql("UPDATE notes SET text = 'changed' WHERE id % 50 = 0")
    if running:
        wait_until(
            lambda: capture.topic in capture.settle().alive_from, 60, "a frontier with a copy"
        )
        capture.kill()
    else:
        capture.catch_up()
    frontier = capture.frontier()
    assert frontier.missing_of(capture.topic, starts) == []
    capture.check()
    (report,) = capture.command("verify", "--json")
    assert report["verified"]


@pytest.mark.matrix
def test_a_capture_that_runs_ends_with_it_or_goes_on_without_the_table(capture):
    capture.start()
    capture.wait_for_frontier()
    delete_records(capture.kafka, capture.topic)
    capture.sql("UPDATE other SET text = 'changed'")
    capture.running.communicate(timeout=60)
    assert capture.running.returncode == 1
    assert says([capture.said()], capture)
    capture.running = None

    capture.set(on_error="log")
    capture.catch_up()
    assert [str(table) for table in capture.frontier().excluded] == ["public.notes"]
    assert set(capture.frontier().tables) == {f"{capture.prefix}.other"}
    assert "excluded" in " ".join(capture.problems())
    capture.command("resnapshot", "notes", "--json")
    capture.catch_up()
    capture.check()
    assert not capture.frontier().excluded


@pytest.mark.matrix
def test_twin_without_the_look_rows_are_missing_and_nobody_says_so(capture):
    capture.catch_up()
    delete_records(capture.kafka, capture.topic)
    capture.finish(defect="forget_losses")
    capture.sees_defect()


@pytest.mark.matrix
@pytest.mark.parametrize("first", [False, True])
def test_what_was_copied_and_removed_while_capture_was_down_is_copied_once_more(capture, first):
    """`first`: of the first copy of all, before any frontier; else of one that was asked for."""
    if not first:
        capture.catch_up()
        capture.command("resnapshot", "notes", "--json")
    # No frontier speaks of the copy yet: then its loss would have to be told.
    capture.crash("table whole:2" if first else "table whole", small=True)
    ends = inspect(capture.kafka, [capture.topic])[capture.topic].ends
    delete_records(capture.kafka, capture.topic, share=1)
    assert any(ends)
    capture.finish(small=True)
    capture.check()
    capture.check("other")
    assert capture.problems() == []


@pytest.mark.matrix
def test_removing_what_is_dead_harms_nothing(capture):
    capture.catch_up()
    capture.command("resnapshot", "notes", "--json")
    capture.catch_up()
    alive = capture.frontier().alive_from[capture.topic]
    ends = inspect(capture.kafka, [capture.topic])[capture.topic].ends
    assert 0 < sum(alive) < sum(ends)
    delete_before(capture.kafka, capture.topic, alive)
    capture.catch_up()
    capture.check()
    assert capture.problems() == []
    assert capture.verdict() in {"exact", "exact-until"}
    delete_before(capture.kafka, capture.topic, [offset + 1 for offset in alive])
    assert says(capture.problems(), capture)


@pytest.mark.matrix
def test_frontiers_that_were_removed_are_missed(capture):
    capture.catch_up()
    topic = f"{capture.prefix}._frontier"
    delete_records(capture.kafka, topic, share=1)
    code, out, said = capture.run("--check", "--json")
    assert code == 1
    assert "the last frontier" in out + said
    assert "the last frontier" in " ".join(capture.problems())
    code, _, said = capture.run("--until", "now")
    assert code == 1
    assert f'topic "{topic}" starts at offset' in said
    capture.command("slot drop", "--yes", codes={0})
    capture.catch_up()
    capture.check()
    assert capture.problems() == []


@pytest.mark.matrix
def test_topics_that_expire_by_their_settings_are_left_to_do_so(capture):
    path = capture.folder / "changelog.toml"
    path.write_text(path.read_text() + 'messages = ["*"]\n')
    capture.sql(
        "CREATE TABLE lines (text text)",
        "ALTER TABLE lines REPLICA IDENTITY FULL",
        "INSERT INTO lines SELECT 'line'",
    )
    more = ("--allow-unkeyed",)
    capture.catch_up(*more)
    capture.sql(
        "SELECT pg_logical_emit_message(true, 'app', 'message')", "INSERT INTO lines VALUES ('x')"
    )
    capture.catch_up(*more)
    for name in ("lines", "_messages"):
        expire(capture.kafka, f"{capture.prefix}.{name}", "delete")
    capture.catch_up(*more)
    assert capture.problems() == []
