"""A table that is changed in silence behind its copy, before a frontier speaks of it.

The capture is killed in between: the next one has only the progress of the copy to go by.
"""

import pytest

from tests.integration.test_incompatible import Capture
from tests.support.capture_command import capture_with
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

TABLES = (
    "CREATE TABLE plain (id integer PRIMARY KEY, a integer)",
    "CREATE TABLE parted (id integer PRIMARY KEY, a integer) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (60)",
    "CREATE TABLE parted_rest PARTITION OF parted DEFAULT",
    *(f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 100) n" for name in
      ("plain", "parted")),
    "CREATE TABLE swapped (id integer PRIMARY KEY, a integer, b integer)",
    "INSERT INTO swapped SELECT n, n, -n FROM generate_series(1, 100) n",
)  # fmt: skip
SILENT = {
    "swapped": (
        "BEGIN; ALTER TABLE swapped RENAME a TO c; ALTER TABLE swapped RENAME b TO a; "
        "ALTER TABLE swapped RENAME c TO b; COMMIT"
    ),
    "plain": "ALTER TABLE plain ALTER a TYPE bigint USING a * 2",
    "parted": (
        "BEGIN; ALTER TABLE parted DETACH PARTITION parted_low; UPDATE parted_low SET a = -1; "
        "ALTER TABLE parted ATTACH PARTITION parted_low FOR VALUES FROM (0) TO (60); COMMIT"
    ),
}


capture = capture_with(Capture, "CREATE TABLE kept (id integer PRIMARY KEY, a integer)")


def killed_behind_the_copies(capture, is_new, **named):
    """Have the tables copied, by the first capture or as newcomers, and changed after its end."""
    if is_new:
        capture.finish()
    capture.sql(*TABLES)
    capture.crash("table whole:3", **named)
    capture.sql(*SILENT.values())


@pytest.mark.parametrize("is_new", first(1, [False, True]), ids=["first", "newcomers"])
def test_a_table_that_is_changed_in_silence_behind_its_copy_is_copied_again(capture, is_new):
    killed_behind_the_copies(capture, is_new)
    capture.set(on_incompatible="resnapshot")
    said = capture.finish()
    assert "the log has no word of it" in said
    for table in SILENT:
        assert capture.differing(table) == [], table


@pytest.mark.matrix
def test_or_capture_stops_and_names_it(capture):
    killed_behind_the_copies(capture, is_new=True)
    code, said = capture.attempt()
    assert code == 1
    assert "the log has no word of it" in said


@pytest.mark.matrix
def test_twin_copies_whose_tables_are_not_written_down_are_taken_for_whole(capture):
    killed_behind_the_copies(capture, is_new=True, defect="forget_how_copies_began")
    capture.set(on_incompatible="resnapshot")
    capture.finish(defect="forget_how_copies_began")
    assert {table for table in SILENT if capture.differing(table)} == {*SILENT}
