"""A sink into servers before PostgreSQL 15: the same rows, with ON CONFLICT and without."""

from contextlib import closing

import psycopg2
import pytest

from changelog.connect.postgres import tables
from changelog.connect.postgres.places import PLACES, OvertakenError
from changelog.connect.postgres.target import SinkDatabase, WriteRequest
from changelog.connect.rules.records.events import DeleteRow, InsertRow, MoveRow, UpsertRow
from changelog.connect.rules.settings import parse_settings
from changelog.contract.base.errors import SinkError
from tests.support.matrix import first
from tests.support.own_server import server_of

pytestmark = [pytest.mark.services, pytest.mark.slow]

server = server_of(first(1, [9, 10, 11, 12, 13, 14]))
ROWS = 100


@pytest.fixture
def database(server, prefix):
    server.create_database(prefix)
    with closing(psycopg2.connect(server.database_dsn(prefix))) as link:
        link.autocommit = True
        with link.cursor() as cursor:

            def execute(statement):
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else None

            execute.url = server.database_dsn(prefix)  # type: ignore[attr-defined]
            yield execute


@pytest.fixture
def target(database):
    made = []

    def target(**more):
        config = {"name": "s", "topics": "t", "connection.url": database.url}
        config |= {name.replace("__", "."): text for name, text in more.items()}
        made.append(SinkDatabase(parse_settings(config)))
        return made[-1]

    yield target
    for each in made:
        each.close()


def write(target, start, *operations, columns=None):
    def refuse(refused):
        assert list(refused) == []

    place = {("t", 0): (start, start + len(operations))}
    asked = [
        WriteRequest(("t", 0, start + n), [each], columns or {}, ["id"])
        for n, each in enumerate(operations)
    ]
    target.write(asked, place, refuse=refuse)
    return start + len(operations)


@pytest.mark.parametrize("merges", [True, False])
def test_rows_are_written_by_key_and_what_a_record_leaves_out_stays(
    database, target, monkeypatch, merges
):
    if not merges:  # as on 9.4, of which there is no build here: Greenplum 6, AnalyticDB 6
        monkeypatch.setattr(tables, "ON_CONFLICT_VERSION", 10**6)
    database("CREATE TABLE t (id int PRIMARY KEY, a text, n numeric(10, 2), x text DEFAULT 'x')")
    database("INSERT INTO t SELECT n, 'old', n, 'kept' FROM unnest('{1, 2, 9}'::int[]) n")
    one = target(writeMode="upsert", pk__fields="id")
    one.begin({("t", 0): 0})
    end = write(
        one,
        0,
        UpsertRow({"id": 1, "a": "new", "n": "1.50"}),
        DeleteRow({"id": 9}),
        MoveRow({"id": 2}, {"id": 3, "a": "moved"}),
        *(UpsertRow({"id": n, "a": f"tab\t{n}"}) for n in range(100, 100 + ROWS)),
        UpsertRow({"id": 100}),
    )
    end = write(one, end, *(UpsertRow({"id": n, "n": str(n)}) for n in range(100, 100 + ROWS)))
    assert database("SELECT id, a, n, x FROM t WHERE id < 102 ORDER BY id") == [
        (1, "new", 1.5, "kept"),
        (3, "moved", 2, "kept"),
        (100, "tab\t100", 100, "x"),
        (101, "tab\t101", 101, "x"),
    ]
    assert database("SELECT count(*), sum(n) FROM t WHERE id >= 100") == [
        (ROWS, sum(range(100, 100 + ROWS)))
    ]
    assert one.places() == {("t", 0): end}
    one.set_places({("t", 0): 7, ("t", 1): 8})
    assert one.places() == {("t", 0): 7, ("t", 1): 8}


def test_a_table_is_made_grows_and_its_places_are_compared(database, target):
    both = {"writeMode": "upsert", "pk__mode": "record_key", "schema__evolution": "basic"}
    one, other = target(**both), target(**both)
    one.begin({("t", 0): 0})
    with pytest.raises(OvertakenError):
        other.begin({("t", 0): 0})
    end = write(one, 0, UpsertRow({"id": 1}), columns={"id": "integer"})
    columns = {"id": "integer", "at": "timestamp with time zone"}
    write(one, end, UpsertRow({"id": 1, "at": "2024-02-29T12:00:00Z"}), columns=columns)
    with pytest.raises(OvertakenError):
        write(other, 0, UpsertRow({"id": 2}), columns=columns)
    assert database("SELECT id, extract(year FROM at)::int FROM t") == [(1, 2024)]
    assert database(f"SELECT next_offset FROM {PLACES}") == [(2,)]


def test_rows_are_appended_and_changed_beside(database, target):
    database("CREATE TABLE t (id int PRIMARY KEY, a text)")
    one = target(pk__fields="id")
    one.begin({("t", 0): 0})
    new = (InsertRow({"id": n, "a": "new"}) for n in range(ROWS))
    write(one, 0, *new, UpsertRow({"id": 1, "a": "changed"}), DeleteRow({"id": 2}))
    assert database("SELECT count(*), count(*) FILTER (WHERE a = 'new') FROM t") == [
        (ROWS - 1, ROWS - 2)
    ]


def test_a_server_that_is_too_old_is_refused(target, monkeypatch):
    monkeypatch.setattr(tables, "OLDEST", 10**6)
    with pytest.raises(SinkError, match=r"and a sink needs 9\.4 or newer"):
        target()
