"""Generated columns: on the log where the server sends them, else refused until they are left out.

`SELECT *` of a view has what `SELECT *` of the table has, or the user has said what it lacks.
"""

import pytest

from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support.capture_command import CrashingCapture
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

OLDER = first(1, [16, 15])
TABLE = (
    "CREATE TABLE lines (id integer PRIMARY KEY, a integer, b integer, text text)",
    "ALTER TABLE lines ADD sum integer GENERATED ALWAYS AS (a + b) STORED",
    "INSERT INTO lines (id, a, b, text) SELECT n, n, 2 * n, 'x' FROM generate_series(1, 50) n",
)
CHANGES = (
    "UPDATE lines SET a = 100 WHERE id % 3 = 0",
    "UPDATE lines SET id = id + 1000 WHERE id % 5 = 0",
    "DELETE FROM lines WHERE id % 7 = 0",
    "INSERT INTO lines (id, a, b) SELECT n, NULL, n FROM generate_series(200, 220) n",
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Start servers when they are asked for; all stop at the end."""
    started = {}

    def server(version):
        if version not in started:
            folder = tmp_path_factory.mktemp(f"pg{version}")
            started[version] = PostgresServer(
                folder, pick(), version=version, settings={"fsync": "off"}, password="pw"
            )
            started[version].start()
        return started[version]

    yield server
    for each in started.values():
        each.stop()


@pytest.fixture
def make(servers, kafka, registry, prefix, tmp_path):
    made = []

    def capture(version):
        server = servers(version)
        server.create_database(prefix)
        found = CrashingCapture(
            dsn=server.database_dsn(prefix),
            kafka=kafka,
            registry=registry,
            prefix=prefix,
            folder=tmp_path,
        )
        made.append(found)
        return found

    yield capture
    for each in made:
        each.kill()


def equal(capture, columns="id, a, b, sum, text", table="lines"):
    rows = {row[0]: row for row in capture.query(f"SELECT {columns} FROM {table}")}
    names = columns.split(", ")
    folded = capture.rows(table).values()
    assert {each["id"]: tuple(each.get(n) for n in names) for each in folded} == rows
    assert all(set(each) == set(names) for each in folded)


def refused(capture, *options):
    """Return what a start says that must not be, the same as its check."""
    code, _, said = capture.run("--until", "now", *options)
    assert code != 0, said
    checked, out, _ = capture.run("--check", "--json", *options)
    assert checked != 0
    assert "public.lines.sum" in out
    return said


def test_stored_columns_are_carried_where_the_server_sends_them(make):
    capture = make(18)
    capture.sql(
        *TABLE,
        "CREATE TABLE parts (id integer, half integer GENERATED ALWAYS AS (id / 2) STORED,"
        " PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE full_rows (id integer PRIMARY KEY, a integer,"
        " sum integer GENERATED ALWAYS AS (a + 1) STORED)",
        "ALTER TABLE full_rows REPLICA IDENTITY FULL",
        "INSERT INTO parts SELECT n FROM generate_series(1, 20) n",
        "INSERT INTO full_rows SELECT n, n FROM generate_series(1, 20) n",
        "CREATE TABLE by_sum (a integer, sum integer GENERATED ALWAYS AS (a + 1) STORED"
        " PRIMARY KEY)",
        "INSERT INTO by_sum SELECT n FROM generate_series(1, 20) n",
    )
    capture.catch_up()
    equal(capture)
    capture.sql(
        *CHANGES,
        "UPDATE parts SET id = id + 50",
        "UPDATE full_rows SET a = 7 WHERE id < 5",
        "DELETE FROM full_rows WHERE id > 10",
        "UPDATE by_sum SET a = a + 100 WHERE a < 5",
        "DELETE FROM by_sum WHERE a > 110 OR a = 20",
    )
    capture.catch_up()
    equal(capture)
    tables = ("by_sum", "full_rows", "lines", "parts")
    counts = {f"public.{each}": capture.query(f"SELECT count(*) FROM {each}") for each in tables}
    assert capture.verified() == {table: count for table, ((count,),) in counts.items()}
    equal(capture, "id, half", "parts")
    equal(capture, "id, a, sum", "full_rows")
    assert {(k, row["a"]) for (k,), row in capture.rows("by_sum").items()} == {
        *capture.query("SELECT sum, a FROM by_sum")
    }


@pytest.mark.matrix
@pytest.mark.parametrize("version", OLDER)
def test_before_that_they_are_refused_until_they_are_left_out(make, version):
    capture = make(version)
    capture.sql(*TABLE)
    said = refused(capture)
    assert "generated columns that the stream does not bring: sum" in said
    assert "--columns public.lines.sum" in said
    without = ("--columns", "public.lines.sum")
    capture.catch_up(*without)
    capture.sql(*CHANGES)
    capture.catch_up(*without)
    equal(capture, "id, a, b, text")


@pytest.mark.matrix
def test_virtual_columns_are_refused_until_they_are_left_out(make):
    capture = make(18)
    capture.sql(
        "CREATE TABLE lines (id integer PRIMARY KEY, a integer, b integer,"
        " sum integer GENERATED ALWAYS AS (a + b) VIRTUAL, text text)",
        TABLE[2],
    )
    assert "the stream does not bring: sum" in refused(capture)
    without = ("--columns", "public.lines.sum")
    capture.catch_up(*without)
    capture.sql(*CHANGES)
    capture.catch_up(*without)
    equal(capture, "id, a, b, text")
    capture.sql("ALTER TABLE lines REPLICA IDENTITY FULL")
    code, _, said = capture.run("--until", "now", *without)
    assert code == 2
    assert "its updates and deletes would fail" in said


@pytest.mark.matrix
@pytest.mark.parametrize("version", first(1, [18, 16, 15]))
def test_a_log_of_before_goes_on_with_them_copied_anew_or_without_them(make, version):
    capture = make(version)
    capture.sql(*TABLE)
    capture.finish(defect="leave_generated_out")
    equal(capture, "id, a, b, text")
    capture.sql("UPDATE lines SET a = 3 WHERE id = 1")
    said = refused(capture)
    assert "sum" in said
    if version == 18:
        assert "--on-incompatible resnapshot" in said
        capture.catch_up("--on-incompatible", "resnapshot")
        capture.sql(*CHANGES)
        capture.catch_up()
        equal(capture)
    else:
        capture.catch_up("--columns", "public.lines.sum")
        equal(capture, "id, a, b, text")


@pytest.mark.matrix
def test_a_publication_of_others_has_to_send_them(make):
    capture = make(18)
    capture.sql(*TABLE)
    more = ("--no-create-publication",)
    capture.sql(
        f"CREATE PUBLICATION {capture.prefix} FOR TABLE lines"
        " WITH (publish_via_partition_root = true)"
    )
    assert "publish_generated_columns = stored" in refused(capture, *more)
    capture.sql(f"ALTER PUBLICATION {capture.prefix} SET (publish_generated_columns = stored)")
    capture.catch_up(*more)
    capture.sql(*CHANGES)
    capture.catch_up(*more)
    equal(capture)
