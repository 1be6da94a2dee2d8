"""Capture from a physical standby, and over a failover: nothing lost, nothing doubled, or told."""

import pytest

from tests.support.capture_command import CrashingCapture
from tests.support.matrix import first
from tests.support.standby import ask, pair
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 500


class Capture(CrashingCapture):
    """A capture whose source changes its role."""

    def set(self, line):
        path = self.folder / "changelog.toml"
        path.write_text(path.read_text() + line + "\n")

    def alive(self):
        assert self.running is None or self.running.poll() is None, self.said()

    def holds(self, key):
        """Wait until a frontier holds a row."""

        def there():
            self.alive()
            return self.frontier() is not None and (key,) in self.rows("notes")

        wait_until(there, 90, f"the row {key}\n{self.said()}")


@pytest.fixture
def capture_of(kafka, registry, prefix, tmp_path):
    """Make a project over a pair of servers."""
    made = []

    def make(servers):
        servers.primary.create_database(prefix)
        dsn = servers.primary.database_dsn(prefix)
        one = Capture(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
        one.make_notes(ROWS)
        servers.replayed()
        made.append(one)
        return one

    yield make
    for each in made:
        each.kill()


@pytest.mark.matrix
@pytest.mark.parametrize("version", first(1, [18, 16]))
def test_a_standby_is_captured_and_goes_on_when_it_is_promoted(capture_of, prefix, version):
    with pair(version) as servers:
        capture = capture_of(servers)
        there = servers.standby.database_dsn(prefix)
        capture.read_from(there)
        code, _, said = capture.run("--until", "now")
        assert (code, "on a standby none can be made" in said) == (1, True), said
        capture.read_from(there, f'primary = "{capture.dsn}"')
        capture.start("--heartbeat-table", "0.5")
        capture.holds(ROWS)
        capture.sql(
            "UPDATE notes SET text = text || '!' WHERE id % 3 = 0",
            "DELETE FROM notes WHERE id % 5 = 0",
            "INSERT INTO notes VALUES (1001, 'streamed')",
        )
        capture.holds(1001)
        capture.check()
        # A copy beside the stream: its mark goes to the primary.
        capture.command("resnapshot", "notes", "--wait")
        capture.sql("INSERT INTO notes VALUES (1002, 'before the promotion')")
        capture.holds(1002)
        before = capture.frontier()
        # The row of a standby's capture is written at its primary, whoever that is.
        assert capture.query("SELECT beats > 2 FROM changelog.heartbeat") == [(True,)]
        servers.primary.stop()
        servers.standby.promote()
        capture.dsn = there
        capture.sql("INSERT INTO notes VALUES (1003, 'behind the promotion')")
        capture.holds(1003)
        after = capture.frontier()
        assert (before.timeline, after.timeline) == (1, 2)
        assert "the standby was promoted: timeline 2 follows 1" in capture.said()
        capture.stop()
        capture.sql("INSERT INTO notes VALUES (1004, 'in the next life')")
        capture.catch_up()
        assert (capture.frontier().epoch, capture.frontier().timeline) == (before.epoch, 2)
        capture.check()
        (line,) = capture.command("verify", "--json")
        assert line["verified"] is True


@pytest.fixture
def synced():
    """A pair whose standby follows the logical slots that say so; senders wait for it."""
    with pair(18) as servers:
        yield servers


@pytest.mark.matrix
def test_a_failover_to_a_standby_that_follows_the_slot_loses_nothing(capture_of, prefix, synced):
    capture = capture_of(synced)
    capture.read_from(synced.either(prefix))
    ask(synced.primary.dsn, "SELECT pg_reload_conf()::text")
    # A slot that was made without is followed from the next start on.
    capture.catch_up()
    capture.set("failover_slot = true")
    capture.start()
    capture.holds(ROWS)
    synced.followed(prefix)
    epoch = capture.frontier().epoch
    capture.sql("INSERT INTO notes VALUES (2001, 'before')")
    capture.holds(2001)
    capture.sql(*(f"INSERT INTO notes VALUES ({n}, 'during')" for n in range(2100, 2200)))
    synced.replayed()
    capture.dsn = synced.fail_over(prefix)
    capture.sql(
        "UPDATE notes SET text = 'after' WHERE id % 2 = 0", "DELETE FROM notes WHERE id = 1"
    )
    capture.sql("INSERT INTO notes VALUES (2300, 'after')")
    capture.holds(2300)
    found = capture.frontier()
    assert (found.epoch, found.timeline) == (epoch, 2), capture.said()
    assert "has every change on the log: continuing" in capture.said()
    capture.stop()
    capture.check()
    (line,) = capture.command("verify", "--json")
    assert line["verified"] is True


def apart(capture_of, prefix, servers):
    """Fail over to a standby that lacks what the log holds; returns the capture, stopped."""
    capture = capture_of(servers)
    capture.read_from(servers.either(prefix))
    capture.set("failover_slot = true")
    capture.start()
    capture.holds(ROWS)
    servers.followed(prefix)
    capture.stop()
    servers.replayed()
    servers.standby.kill()  # nothing reaches it any more
    capture.sql("INSERT INTO notes VALUES (3001, 'lost with the primary')")
    capture.finish()
    assert (3001,) in capture.rows("notes")
    servers.primary.kill()
    servers.standby.start()
    servers.standby.promote()
    capture.dsn = servers.standby.database_dsn(prefix)
    capture.sql("INSERT INTO notes VALUES (3002, 'the new history')")
    assert capture.query("SELECT count(*) FROM notes WHERE id = 3001") == [(0,)]
    return capture


@pytest.mark.matrix
def test_a_log_that_holds_what_the_new_primary_lost_begins_anew(capture_of, prefix, synced):
    capture = apart(capture_of, prefix, synced)
    said = capture.finish()
    assert "timeline 2 follows 1 (failover), which parted at" in said
    assert capture.frontier().epoch == 2
    capture.check()


@pytest.mark.matrix
def test_twin_a_fork_that_nobody_looks_at_keeps_rows_that_never_were(capture_of, prefix, synced):
    capture = apart(capture_of, prefix, synced)
    code, said = capture.attempt(defect="ignore_fork")
    if code == 0:  # else the slot has told: it stands where the log does not
        capture.sees_defect()
    assert code == 0 or "stands at" in said, said


@pytest.mark.matrix
def test_a_slot_of_the_name_that_followed_nothing_is_refused(capture_of, prefix, synced):
    capture = capture_of(synced)
    capture.read_from(synced.either(prefix))
    capture.finish()  # without failover_slot
    capture.sql("INSERT INTO notes VALUES (4001, 'before')")
    synced.replayed()
    capture.dsn = synced.fail_over(prefix)
    capture.sql("INSERT INTO notes VALUES (4002, 'between')")
    make = f"SELECT pg_create_logical_replication_slot('{prefix}', 'pgoutput')"
    capture.query(make)
    code, _, said = capture.run("--until", "now")
    assert (code, "changes between the two are lost" in said) == (1, True), said
    capture.sql(f"SELECT pg_drop_replication_slot('{prefix}')")
    said = capture.finish()
    assert "is gone: a fresh log under epoch 2" in said
    capture.check()
