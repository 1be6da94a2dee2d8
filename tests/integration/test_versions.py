"""The core of capture on the oldest PostgreSQL that we test and on the newest one.

Snapshot, stream in bulk and row by row, every kind of type, unchanged TOAST, new columns, row
filters, a crash: what depends on the server's version. Everything else is tested on one.
"""

import pytest

from changelog.stack.ports import pick
from changelog.stack.postgres import PostgresServer
from tests.integration.test_capture_crashes import CHANGES
from tests.integration.test_every_type import EVERYTHING, ROWS
from tests.support.capture_command import CrashingCapture
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]


@pytest.fixture(scope="module", params=first(1, [15, 18]))
def server(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(f"pg{request.param}")
    with PostgresServer(
        directory, pick(), version=request.param, settings={"fsync": "off"}, password="pw"
    ) as made:
        yield made


@pytest.fixture
def capture(server, kafka, registry, prefix, tmp_path):
    server.create_database(prefix)
    made = CrashingCapture(
        dsn=server.database_dsn(prefix),
        kafka=kafka,
        registry=registry,
        prefix=prefix,
        folder=tmp_path,
    )
    yield made
    made.kill()


def verified(capture):
    """Compare the log with the source by the independent verifier; gives the rows of each table."""
    (line,) = capture.command("verify", "--json")
    assert line["verified"] is True
    return {table["view"]: table["rows"] for table in line["tables"]}


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
    assert list(verified(capture).values()) == [372]


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
    assert sorted(verified(capture).values()) == sorted(
        count
        for (count,) in capture.query(
            "SELECT count(*) FROM notes UNION ALL SELECT count(*) FROM big"
            " UNION ALL SELECT count(*) FROM parts"
        )
    )


def test_rows_are_filtered_at_the_source(capture):
    capture.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
        "INSERT INTO notes SELECT n, 'row' FROM generate_series(1, 100) n",
    )
    capture.catch_up("--where", "notes=id > 90")
    capture.sql("INSERT INTO notes VALUES (0, 'out'), (200, 'in')")
    capture.catch_up("--where", "notes=id > 90")
    assert sorted(key for (key,) in capture.rows("notes")) == [*range(91, 101), 200]
