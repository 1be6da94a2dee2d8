"""Partitions, primary keys and names that exist only between two looks at the catalogue.

The stream brings the rows of a partition, but not that the partition alone was truncated or
dropped, and rows under the names that columns have at the time. The log must
end with the rows that PostgreSQL has.
"""

import pytest

from tests.integration.test_incompatible import Capture
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

TABLES = (
    "CREATE TABLE parted (id integer PRIMARY KEY, a text) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    "INSERT INTO parted VALUES (1, 'kept')",
    "CREATE TABLE keyed (id integer PRIMARY KEY, a text)",
    "INSERT INTO keyed VALUES (1, 'kept'), (2, 'kept')",
    "CREATE TABLE wide (id integer PRIMARY KEY, a text, b text)",
    "INSERT INTO wide VALUES (1, 'a', 'b'), (2, 'a', 'b')",
    "CREATE TABLE pairs (id integer, b integer, c text, PRIMARY KEY (id, b))",
    "INSERT INTO pairs VALUES (1, 2, 'x'), (2, 1, 'y'), (3, 4, 'z')",
)
NAMES = ("parted", "keyed", "wide", "pairs")
MADE = "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (10) TO (20)"
FILLED = "INSERT INTO parted VALUES (11, 'gone')"
SUB = (
    f"{MADE} PARTITION BY RANGE (id)",
    "CREATE TABLE parted_11 PARTITION OF parted_1 FOR VALUES FROM (10) TO (15)",
)
UNKEYED = (
    "ALTER TABLE keyed DROP CONSTRAINT keyed_pkey",
    "INSERT INTO keyed VALUES (1, 'twice')",
    "ALTER TABLE keyed REPLICA IDENTITY FULL",
    "DELETE FROM keyed WHERE a = 'twice'",
    "ALTER TABLE keyed ADD PRIMARY KEY (id)",
    "ALTER TABLE keyed REPLICA IDENTITY DEFAULT",
)

SWAPPED = (
    "ALTER TABLE wide RENAME a TO c",
    "ALTER TABLE wide RENAME b TO a",
    "ALTER TABLE wide RENAME c TO b",
)
KEY_SWAPPED = (
    "ALTER TABLE pairs RENAME id TO d",
    "ALTER TABLE pairs RENAME b TO id",
    "ALTER TABLE pairs RENAME d TO b",
)
PAIRS = (
    "INSERT INTO pairs VALUES (5, 6, 'new')",
    "UPDATE pairs SET c = 'changed' WHERE id = 1",
    "DELETE FROM pairs WHERE id = 4",
)
WIDE = "INSERT INTO wide VALUES (3, 'a', 'b')", "UPDATE wide SET b = 'new' WHERE id = 1"


def at_once(*statements):
    return ("; ".join(("BEGIN", *statements, "COMMIT")),)


SILENT = {
    "truncated": (MADE, FILLED, "TRUNCATE parted_1"),
    "truncated at once": at_once(MADE, FILLED, "TRUNCATE parted_1"),
    "truncated in a savepoint": at_once(
        "SAVEPOINT a", MADE, "RELEASE a", FILLED, "TRUNCATE parted_1"
    ),
    "truncated and filled": (MADE, FILLED, "TRUNCATE parted_1", FILLED.replace("11", "12")),
    "below another": (*SUB, FILLED, "TRUNCATE parted_11"),
    "dropped": (MADE, FILLED, "DROP TABLE parted_1"),
    "dropped at once": at_once(MADE, FILLED, "DROP TABLE parted_1"),
    "detached": (MADE, FILLED, "ALTER TABLE parted DETACH PARTITION parted_1"),
    "dropped with what is below": (*SUB, FILLED, "DROP TABLE parted_1"),
    "without a key": UNKEYED,
    "without a key at once": at_once(*UNKEYED),
    "names of columns": (*at_once(*SWAPPED), *WIDE, *at_once(*SWAPPED)),
    "names of columns at once": at_once(*SWAPPED, *WIDE, *SWAPPED),
    "names in a key": (*at_once(*KEY_SWAPPED), *PAIRS, *at_once(*KEY_SWAPPED)),
    "names in a key at once": at_once(*KEY_SWAPPED, *PAIRS, *KEY_SWAPPED),
    "names of columns to the end": (*SWAPPED, *WIDE),
}
FEW = ("detached", "without a key at once", "names in a key")
"""One of each sort of what comes and goes: `make test` has these."""
TOLD = {
    "new partition": (MADE, FILLED),
    "new partition at once": at_once(MADE, FILLED),
    "all emptied": (MADE, FILLED, "TRUNCATE parted"),
    "all emptied at once": at_once(MADE, FILLED, "TRUNCATE parted"),
    "emptied row by row": (MADE, FILLED, "DELETE FROM parted WHERE id = 11", "VACUUM parted_1"),
    "names of columns without rows": (*at_once(*SWAPPED), *at_once(*SWAPPED), *WIDE),
    "a name that went and is back": (SWAPPED[0], "ALTER TABLE wide RENAME c TO a", *WIDE),
    "an index made again": ("REINDEX INDEX CONCURRENTLY keyed_pkey",),
}


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    made = Capture(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    made.sql(*TABLES)
    made.set(on_incompatible="resnapshot")
    made.finish()
    yield made
    made.kill()


def differing(capture, table):
    return capture.differing(table, key=("id", "b") if table == "pairs" else ("id",))


@pytest.mark.matrix
@pytest.mark.parametrize("name", first(1, [*FEW, *(name for name in SILENT if name not in FEW)]))
def test_a_table_with_something_that_came_and_went_is_copied_again(capture, name):
    capture.sql(*SILENT[name])
    said = capture.finish()
    assert "the log has no word of it" in said
    assert not any(differing(capture, table) for table in NAMES)
    assert "no word" not in capture.finish()


def test_what_comes_and_goes_while_capture_runs_is_noticed(capture):
    before = capture.frontier().lsn
    capture.start()
    capture.sql("INSERT INTO keyed VALUES (3, 'kept')")
    capture.wait_for_frontier(past=before)
    capture.sql(*SILENT["dropped at once"], *SILENT["without a key at once"])
    capture.stop()
    said = capture.said() + capture.finish()
    assert said.count("the log has no word of it") >= 2
    assert not any(differing(capture, table) for table in NAMES)


@pytest.mark.matrix
@pytest.mark.parametrize("name", [name for name in SILENT if "to the end" not in name])
def test_twin_what_came_and_went_stays_on_the_log(capture, name):
    capture.sql(*SILENT[name])
    defect = "forget_places" if "names" in name else "forget_what_came_and_went"
    assert "no word" not in capture.finish(defect=defect)
    tables = {"names of": "wide", "names in": "pairs", "without a": "keyed"}
    table = tables.get(" ".join(name.split()[:2]), "parted")
    assert differing(capture, table)


LENT = ("ALTER TABLE wide RENAME a TO c", "ALTER TABLE wide RENAME b TO a")
GIVEN_BACK = ("ALTER TABLE wide RENAME a TO b", "ALTER TABLE wide RENAME c TO a")
ROW = "INSERT INTO wide (id, a) VALUES (3, 'of b')"


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("statements", "column"),
    first(2, [((*SWAPPED, ROW, *SWAPPED), "b"), ((ROW,), ""), ((*LENT, ROW, *GIVEN_BACK), "b")]),
    ids=["names exchanged", "neither", "name lent"],
)
def test_a_column_that_is_left_out_lends_its_name_to_none(capture, statements, column):
    capture.set(drop_columns=["public.wide.b"])
    capture.finish()
    capture.sql(*at_once(*statements))
    assert ("the log has no word of it" in capture.finish()) is bool(column)
    assert {row["id"]: row["a"] for row in capture.rows("wide").values()} == {
        1: "a",
        2: "a",
        3: None if column else "of b",
    }


@pytest.mark.matrix
def test_twin_a_column_that_is_left_out_lends_its_name(capture):
    capture.set(drop_columns=["public.wide.b"])
    capture.finish()
    capture.sql(*at_once(*SWAPPED, ROW, *SWAPPED))
    assert "no word" not in capture.finish(defect="forget_places")
    assert capture.rows("wide")[3,]["a"] == "of b"


@pytest.mark.parametrize("name", first(2, TOLD))
def test_what_the_stream_tells_copies_nothing(capture, name):
    capture.sql(*TOLD[name])
    assert "no word" not in capture.finish()
    assert not any(differing(capture, table) for table in NAMES)
