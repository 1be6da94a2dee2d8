"""TRUNCATE explains a new file also when columns came after it, but not a rewrite beside it.

Both by the catalogue's marks, which are of PostgreSQL's version; capture stops where it cannot go
on, so what passes here was taken for right.
"""

import pytest

from tests.integration.test_incompatible import Capture
from tests.integration.test_versions import server
from tests.support.own_server import capture_of

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]

__all__ = ["server"]

PLAIN = "CREATE TABLE {t} (id integer PRIMARY KEY, a integer)"
PARTED = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, a integer) PARTITION BY RANGE (id);"
    "CREATE TABLE {t}_low PARTITION OF {t} FOR VALUES FROM (0) TO (60);"
    "CREATE TABLE {t}_high PARTITION OF {t} FOR VALUES FROM (60) TO (100000)"
)
EMPTIED = "TRUNCATE {t}; INSERT INTO {t} VALUES (1, 10), (70, 20)"
COLUMNS = (
    "ALTER TABLE {t} ADD b integer; ALTER TABLE {t} ADD c integer DEFAULT 7;"
    "ALTER TABLE {t} ADD d integer; UPDATE {t} SET d = 3 WHERE id = 1"
)
TOLD = {
    "later": (PLAIN, f"{EMPTIED}; {COLUMNS}"),
    "at_once": (PLAIN, f"BEGIN; {EMPTIED}; ALTER TABLE {{t}} ADD c integer DEFAULT 7; COMMIT"),
    "before": (PLAIN, f"ALTER TABLE {{t}} ALTER a TYPE integer USING -a; {EMPTIED}; {COLUMNS}"),
    "twice": (PLAIN, f"{EMPTIED}; {COLUMNS}; {EMPTIED}"),
    "parted": (PARTED, f"{EMPTIED}; {COLUMNS}"),
}
VALUES = {
    "computed": (
        "ALTER TABLE {t} ADD b float DEFAULT random(); ALTER TABLE {t} ALTER b DROP DEFAULT"
    ),
    "altered": "ALTER TABLE {t} ALTER a TYPE integer USING a * 2 + 1",
}
TABLES = {"": PLAIN, "parted_": PARTED}
SILENT = {
    f"{kind}{name}{how}": (made, f"{begin}{EMPTIED}; {change}{commit}")
    for kind, made in TABLES.items()
    for name, change in VALUES.items()
    for how, begin, commit in [("", "", ""), ("_at_once", "BEGIN; ", "; COMMIT")]
}


capture = capture_of(Capture)


def change(capture, cases):
    """Make the tables, capture them, and let each be changed while capture is down."""
    for table, (made, _) in cases.items():
        capture.sql(
            *made.format(t=table).split(";"),
            f"INSERT INTO {table} SELECT n, n FROM generate_series(1, 100) n",
        )
    capture.finish()
    for table, (_, changed) in cases.items():
        whole = changed.format(t=table)
        capture.sql(*[whole] if whole.startswith("BEGIN") else whole.split(";"))


def test_columns_that_came_after_a_truncation_need_no_copy(capture):
    change(capture, TOLD)
    before = capture.frontier().since
    capture.finish()
    found = capture.frontier()
    assert {table: capture.differing(table) for table in TOLD} == {table: [] for table in TOLD}
    assert found.excluded == {}
    since = {f"{capture.prefix}.{table}" for table in TOLD}
    assert all(found.since[topic] > before[topic] for topic in since)


@pytest.mark.parametrize("table", SILENT)
def test_values_of_a_rewrite_after_a_truncation_are_noticed(capture, table):
    change(capture, {table: SILENT[table]})
    code, said = capture.attempt()
    assert code == 1
    assert "rewritten" in said
    capture.set(on_incompatible="resnapshot")
    capture.finish()
    assert capture.differing(table) == []


def test_twin_without_a_look_values_of_a_rewrite_are_missed(capture):
    change(capture, SILENT)
    capture.finish(defect="forget_to_look")
    assert [table for table in SILENT if not capture.differing(table)] == []
