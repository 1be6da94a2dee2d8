"""kill -9 of capture at named points, each with a twin that seeds the defect and must be seen."""

import pytest

from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 3000


capture = capture_with(CrashingCapture, notes=ROWS)


CHANGES = (
    "UPDATE notes SET text = text || '!' WHERE id % 3 = 0",
    "DELETE FROM notes WHERE id % 5 = 0",
    "UPDATE notes SET id = id + 100000 WHERE id % 7 = 0",
    "INSERT INTO notes SELECT n, 'new' FROM generate_series(50000, 50500) n",
    "BEGIN; DELETE FROM notes WHERE id = 1; INSERT INTO notes VALUES (1, 'again'); COMMIT",
)


WITH_ROWS = ("chunk copied", "table whole", "segment written", "progress written")
POINTS = ("slot made", *WITH_ROWS, "slot intended", "fence taken")


@pytest.mark.parametrize("point", first(1, POINTS))
def test_a_kill_in_the_snapshot_leaves_no_deleted_row(capture, point):
    capture.crash(f"{point}:1")
    capture.sql("DELETE FROM notes WHERE id <= 10")
    capture.finish()
    capture.check()
    live = {key for key, _ in capture.log().rows.items()}
    dead = {tuple(k.values()) for _, _, k, v, _ in capture.log().records if v is None}
    assert not live & dead
    if point in WITH_ROWS:
        # Readers that do not know `since` find tombstones.
        assert {(number,) for number in range(1, 11)} <= dead


@pytest.mark.matrix
def test_twin_a_snapshot_that_forgets_since_revives_deleted_rows(capture):
    capture.crash("segment written")
    capture.sql("DELETE FROM notes WHERE id <= 10")
    capture.finish(defect="forget_since")
    capture.sees_defect()


@pytest.mark.parametrize("point", first(1, ["frontier written", "acknowledged"]))
def test_a_kill_between_snapshot_and_stream_is_healed(capture, point):
    capture.crash(point)
    capture.sql(*CHANGES)
    capture.finish()
    capture.check()


@pytest.mark.parametrize("times", first(1, [700, 1, 1400]))
def test_a_kill_in_the_middle_of_a_transaction_loses_nothing(capture, times):
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash(f"record produced:{times}")
    capture.sql("UPDATE notes SET text = 'later' WHERE id % 11 = 0")
    capture.finish()
    capture.check()


@pytest.mark.parametrize(
    "point", first(1, ["frontier written", "transaction produced", "acknowledged"])
)
def test_a_kill_between_commit_and_acknowledgement_loses_nothing(capture, point):
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash(point)
    capture.sql("UPDATE notes SET text = 'later' WHERE id % 11 = 0")
    capture.finish()
    capture.check()


@pytest.mark.matrix
def test_twin_a_writer_that_forgets_to_skip_lets_positions_go_back(capture):
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash("record produced:1400", defect="deliver_each")
    capture.finish(defect="forget_to_skip")
    capture.sees_defect()


def test_twin_a_frontier_without_a_flush_loses_records(capture):
    capture.finish()
    capture.sql(*CHANGES)
    # The frontier has to speak of rows: one before them, or of a transaction of ours, loses none.
    # With a record more than its own, the first transaction is whole.
    capture.crash(f"acknowledged:1:record produced:{ROWS // 3 + 1}", defect="forget_to_flush")
    capture.finish()
    capture.sees_defect()


@pytest.mark.matrix
def test_twin_an_early_acknowledgement_is_refused_at_the_next_start(capture):
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash("transaction produced:3", defect="acknowledge_early")
    code, said = capture.attempt()
    assert code != 0
    assert "past the last frontier" in said


@pytest.mark.matrix
def test_unchanged_toast_keeps_its_value(capture):
    capture.sql(
        "ALTER TABLE notes ALTER text SET STORAGE EXTERNAL, ADD other integer",
        "INSERT INTO notes VALUES (-1, repeat('x', 9000))",
    )
    capture.finish()
    capture.sql("UPDATE notes SET other = 5 WHERE id = -1")
    capture.finish()
    capture.check()


@pytest.mark.matrix
def test_twin_a_null_for_toast_is_seen(capture):
    capture.sql(
        "ALTER TABLE notes ALTER text SET STORAGE EXTERNAL, ADD other integer",
        "INSERT INTO notes VALUES (-1, repeat('x', 9000))",
    )
    capture.finish()
    capture.sql("UPDATE notes SET other = 5 WHERE id = -1")
    capture.finish(defect="null_for_toast")
    capture.sees_defect()


@pytest.mark.matrix
def test_truncate_leaves_no_row_for_any_reader(capture):
    capture.finish()
    capture.sql("TRUNCATE notes", "INSERT INTO notes VALUES (1, 'after')")
    capture.finish()
    capture.check()
    last = {}
    for _, _, key, value, headers in capture.log().records:
        last[tuple(key.values())] = (value, headers.op.value)
    assert {key for key, (value, _) in last.items() if value is not None} == {(1,)}
    assert last[(2,)] == (None, b"t")
