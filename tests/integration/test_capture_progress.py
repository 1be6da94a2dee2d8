"""A capture that is killed again and again, beside a backlog: each life brings the log forward."""

import time

import pytest

from tests.support.capture_command import CrashingCapture
from tests.support.frontiers import behind_frontier, frontiers_of, inexact
from tests.support.matrix import first
from tests.support.own_server import server_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

TRANSACTIONS = """
DO $$ BEGIN FOR n IN {first}..{last} LOOP
    UPDATE notes SET text = n WHERE id = 1 + n % 50;
    COMMIT;
END LOOP; END $$
"""


@pytest.fixture
def make(kafka, registry, prefix, tmp_path):
    made = []

    def make(dsn):
        capture = CrashingCapture(
            dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path
        )
        made.append(capture)
        return capture

    yield make
    for capture in made:
        capture.kill()


@pytest.fixture
def capture(make, dsn):
    made = make(dsn)
    made.make_notes(50)
    made.finish()
    return made


def transactions(capture, first, last):
    capture.sql(TRANSACTIONS.format(first=first, last=last))


@pytest.mark.matrix
def test_each_life_writes_a_frontier_although_the_backlog_is_longer_than_a_life(capture):
    """Each is killed inside of a batch, with something behind the frontier.

    How many frontiers a life writes is a matter of the machine; one is certain once it has got past
    what the life before had written: its count and the rest of a batch, 1,333 transactions at most.
    """
    transactions(capture, 1, 15_000)
    stood = capture.frontier().lsn
    for produced in (3_000, 6_000):
        capture.crash(f"transaction produced:{produced}", defect="deliver_each")
        assert behind_frontier(capture) > 0
        assert capture.frontier().lsn > stood
        stood = capture.frontier().lsn
    capture.finish()
    capture.check()
    assert inexact(capture) == []


@pytest.mark.matrix
def test_twin_a_start_that_holds_no_frontier_writes_some_that_are_not_exact(capture):
    transactions(capture, 1, 9_000)
    capture.crash("transaction produced:3000", defect="deliver_each")
    capture.finish(defect="forget_to_hold")
    assert inexact(capture)


LIFE_S = 5.0


def live(capture):
    """Let capture stream for a while, and kill it; returns how long its start took."""
    began = time.monotonic()
    capture.begin(until="now")
    wait_until(lambda: "streaming from" in capture.said(), 60, "the stream begins")
    streams = time.monotonic()

    def is_over():
        return time.monotonic() - streams > LIFE_S or capture.running.poll() is not None

    wait_until(is_over, 60, "the life is over")
    capture.kill()
    return streams - began


@pytest.mark.matrix
def test_lives_of_five_seconds_bring_a_large_backlog_to_its_end(capture, record_property):
    settings = capture.folder / "changelog.toml"
    settings.write_text(settings.read_text().replace("interval_ms = 50\n", "interval_ms = 1000\n"))
    transactions(capture, 1, 400_000)
    end, lives = capture.end_of_wal(), []
    while (stood := capture.frontier().lsn) < end:
        start_s = live(capture)
        moved, behind = capture.frontier().lsn - stood, behind_frontier(capture)
        lives.append({"start_s": round(start_s, 1), "bytes": moved, "behind": behind})
        assert moved > 0, lives
    print(*lives, sep="\n")
    record_property("lives", lives)
    capture.finish()
    capture.check()
    assert inexact(capture) == []


# --- columns that come in the middle of a backlog ----------------------------------------------


FURTHER = "transaction produced:5500"


def alter_in_a_backlog(capture):
    """Let a first life see columns of which the stream has no word for long; returns its end."""
    transactions(capture, 1, 6_000)
    capture.sql("ALTER TABLE notes ADD COLUMN more integer")
    transactions(capture, 6_001, 7_000)
    stood = capture.frontier().lsn
    capture.crash("transaction produced:3000")
    assert capture.frontier().lsn == stood, "it waits for the columns a while"
    return stood


@pytest.mark.matrix
def test_columns_that_came_hold_no_frontier_in_each_life_anew(capture):
    stood = alter_in_a_backlog(capture)
    capture.crash(FURTHER)
    assert capture.frontier().lsn > stood
    assert "more" not in capture.rows("notes")[(1,)]
    capture.finish()
    assert "more" in capture.rows("notes")[(1,)]
    capture.check()
    assert inexact(capture) == []


@pytest.mark.matrix
def test_twin_a_life_that_forgets_what_was_seen_waits_as_the_one_before(capture):
    stood = alter_in_a_backlog(capture)
    capture.crash(FURTHER, defect="forget_what_was_seen")
    assert capture.frontier().lsn == stood


# --- values that the stream leaves out -------------------------------------------------------


server = server_of(first(0, [15, 18]))


@pytest.fixture
def wide(server, make, prefix):
    """A table whose rows have values that an update of others leaves out of the stream."""
    server.create_database(prefix)
    made = make(server.database_dsn(prefix))
    made.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text, n integer)",
        "ALTER TABLE notes ALTER text SET STORAGE EXTERNAL",
        "INSERT INTO notes SELECT n, repeat('a', 9000), 0 FROM generate_series(1, 60) n",
    )
    made.finish()
    return made


LEFT_OUT, SOON, LATER = 60, "transaction produced:100", "transaction produced:4500"


def leave_values_out(wide):
    """Leave values out of the stream, and let other changes follow."""
    wide.sql(*(f"UPDATE notes SET n = 1 WHERE id = {n}" for n in range(1, LEFT_OUT + 1)))
    wide.sql(
        "DO $$ BEGIN FOR n IN 1001..7000 LOOP INSERT INTO notes VALUES (n, 'a', 0); COMMIT; "
        "END LOOP; END $$"
    )


def newer_values(wide):
    """Let the values that the stream leaves out be newer ones when they are fetched.

    Returns where the WAL was before they were.
    """
    leave_values_out(wide)
    before = wide.end_of_wal()
    wide.sql("UPDATE notes SET text = repeat('b', 9000)")
    return before


def newest_before(wide, lsn):
    """Return the values that the frontiers before an LSN speak for."""
    topic, found = f"{wide.prefix}.notes", set()
    for frontier in frontiers_of(wide):
        if frontier.lsn <= lsn:
            rows = wide.reader.folded(frontier, topic).values()
            found |= {row["text"][:1] for row in rows}
    return found


def test_values_that_a_killed_life_has_fetched_are_in_no_frontier_before_theirs(wide):
    before = newer_values(wide)
    wide.crash(SOON, defect="deliver_each")
    wide.crash(LATER)
    wide.finish()
    wide.check()
    assert newest_before(wide, before) == {"a"}


@pytest.mark.parametrize("defect", ["forget_to_hold_again", "believe_fetched"])
def test_twin_values_of_later_stand_in_earlier_frontiers(wide, defect):
    before = newer_values(wide)
    wide.crash(SOON, defect="deliver_each")
    wide.crash(LATER, defect=defect)
    assert newest_before(wide, before) == {"a", "b"}


def test_values_that_nobody_has_written_since_hold_no_frontier(wide):
    leave_values_out(wide)
    wide.crash(SOON, defect="deliver_each")
    stood = wide.frontier().lsn
    wide.crash(LATER)
    assert wide.frontier().lsn > stood
    wide.finish()
    wide.check()
    assert inexact(wide) == []
