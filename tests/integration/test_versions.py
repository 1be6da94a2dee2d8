"""The core of capture on the oldest PostgreSQL that we test and on the newest one.

Snapshot, stream in bulk and row by row, every kind of type, unchanged TOAST, new columns, row
filters, a crash: what depends on the server's version. Everything else is tested on one.
"""

import pytest

from tests.integration.test_capture_crashes import CHANGES
from tests.integration.test_every_type import EVERYTHING, ROWS
from tests.integration.test_groups import BOTH, LATER, Capture
from tests.support.matrix import first
from tests.support.own_server import capture_of, server_of

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]


server = server_of(first(1, [15, 18]))
capture = capture_of(Capture)


def test_every_type_comes_alike_by_snapshot_and_stream(capture):
    capture.sql(*EVERYTHING.split(";"), *ROWS)
    capture.catch_up()
    columns = ", ".join(
        name
        for (name,) in capture.query(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'everything'::regclass"
            " AND attnum > 1 ORDER BY attnum"
        )
    )
    again = f"INSERT INTO everything SELECT {{}}, {columns} FROM everything WHERE id <= 6"
    capture.sql(again.format("id + 10"))
    capture.catch_up()
    many = f"INSERT INTO everything SELECT 1000 * copy + id, {columns} FROM everything, "
    capture.sql(many + "generate_series(1, 60) copy WHERE id <= 6")
    capture.catch_up()
    assert list(capture.verified().values()) == [372]


def test_changes_toast_new_columns_and_a_crash_lose_nothing(capture):
    capture.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
        "INSERT INTO notes SELECT n, 'row ' || n FROM generate_series(1, 3000) n",
        "CREATE TABLE big (id integer PRIMARY KEY, n integer, wide text)",
        "ALTER TABLE big ALTER wide SET STORAGE EXTERNAL",
        "INSERT INTO big SELECT n, 0, repeat(n::text, 9000) FROM generate_series(1, 5) n",
        "CREATE TABLE parts (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    )
    capture.finish()
    capture.sql(*CHANGES, "UPDATE big SET n = n + 1", "INSERT INTO parts VALUES (1), (2)")
    capture.crash("frontier written:1")
    capture.sql(
        "ALTER TABLE big ADD more integer",
        "UPDATE big SET more = id WHERE id > 3",
        "TRUNCATE parts",
        "INSERT INTO parts VALUES (3)",
    )
    capture.finish()
    capture.check()
    assert capture.rows("big")[5,] == {"id": 5, "n": 1, "wide": "5" * 9000, "more": 5}
    assert list(capture.rows("parts")) == [(3,)]
    assert sorted(capture.verified().values()) == sorted(
        count
        for (count,) in capture.query(
            "SELECT count(*) FROM notes UNION ALL SELECT count(*) FROM big"
            " UNION ALL SELECT count(*) FROM parts"
        )
    )


def test_groups_of_tables_are_one_log_over_a_crash_and_a_slot_that_is_gone(capture):
    capture.make_notes(300)
    capture.sql(
        "CREATE TABLE tales (id integer PRIMARY KEY, text text)",
        "INSERT INTO tales SELECT n, 'row ' || n FROM generate_series(1, 300) n",
    )
    capture.name_groups('groups.side = ["public.ta*"]')
    capture.finish()
    main, side = capture.prefix, f"{capture.prefix}_side"
    assert capture.slots() == {main, side}
    assert capture.publications() == {(main, "notes"), (side, "tales")}
    capture.sql(*BOTH)
    capture.crash("record produced:250", defect="deliver_each")
    capture.sql(*LATER)
    capture.finish()
    capture.check_both()
    capture.sql(f"SELECT pg_drop_replication_slot('{side}')", *LATER)
    assert f'slot "{main}" is lost: "{side}": it is gone' in capture.finish()
    capture.check_both()


def test_rows_are_filtered_at_the_source(capture):
    capture.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
        "INSERT INTO notes SELECT n, 'row' FROM generate_series(1, 100) n",
    )
    capture.catch_up("--where", "notes=id > 90")
    capture.sql("INSERT INTO notes VALUES (0, 'out'), (200, 'in')")
    capture.catch_up("--where", "notes=id > 90")
    assert sorted(key for (key,) in capture.rows("notes")) == [*range(91, 101), 200]


EQUAL = {
    "double precision": ("0", "-0"),
    "real": ("-0", "0"),
    "numeric": ("1.0", "1.00"),
    "interval": ("1 day", "24:00:00"),
    "jsonb": ('{"a": 1.0}', '{"a": 1.00}'),
    "double precision[]": ("{1,0}", "{1,-0}"),
    "numeric[]": ("{1.0}", "{1.000}"),
    "timetz": ("12:00:00+00", "12:00:00+00"),
    "numrange": ("[1.0,2)", "[1.00,2)"),
}
"""Types of keys, with two values that PostgreSQL takes for one key and mostly writes apart."""


def test_a_key_that_becomes_another_text_of_an_equal_key_is_one_row(capture):
    """PostgreSQL tells the old key of an update by its bytes, whatever its type finds equal."""
    for number, (kind, (before, _)) in enumerate(EQUAL.items()):
        capture.sql(
            f"CREATE TABLE keys{number} (k {kind} PRIMARY KEY, v integer)",
            f"INSERT INTO keys{number} VALUES ('{before}', 1)",
        )
    capture.sql(
        "CREATE TABLE nans (k double precision PRIMARY KEY, v integer)",
        "INSERT INTO nans VALUES ('NaN', 1)",
    )
    capture.catch_up()
    for number, (_, after) in enumerate(EQUAL.values()):
        capture.sql(f"UPDATE keys{number} SET k = '{after}', v = 2")
    capture.sql("UPDATE nans SET k = 'Infinity'::float8 - 'Infinity'::float8, v = 2")
    capture.catch_up()
    assert set(capture.verified().values()) == {1}
    for number in range(len(EQUAL)):  # and back again, and gone
        capture.sql(
            f"INSERT INTO keys{number} SELECT k, 3 FROM keys{number}"
            f" ON CONFLICT (k) DO UPDATE SET v = 3"
        )
    capture.sql("DELETE FROM keys0", "DELETE FROM nans WHERE k = 'NaN'")
    capture.catch_up()
    rows = capture.verified()
    assert (rows.pop("public.keys0"), rows.pop("public.nans")) == (0, 0)
    assert set(rows.values()) == {1}
