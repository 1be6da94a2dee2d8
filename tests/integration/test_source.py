"""The PostgreSQL side of capture against a real server."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql
from psycopg2.extensions import make_dsn, parse_dsn, quote_ident

from changelog.contract.base.errors import (
    ConfigurationError,
    LookAgainError,
    SlotError,
    SourceError,
    UnavailableSourceError,
    UncapturableTableError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.change import Change, Delete, Insert, Truncate, Update
from changelog.contract.rows.relation import UNCHANGED, Relation, ReplicaIdentity, TableName
from changelog.contract.rows.types import Kind
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import connect, connect_replication
from changelog.source.connect.retention import SlotStatus
from changelog.source.connect.system import check_ready, current_lsn, identify
from changelog.source.snapshot import toast
from changelog.source.snapshot.snapshot import (
    SnapshotHolder,
    TablesBusyError,
    begin_snapshot,
    chunks_of,
    estimated_rows,
    looks_of,
    parse_row,
    plan_tables,
    read_chunk,
    writers_of,
)
from changelog.source.snapshot.toast import AS_WRITTEN, fetch_columns
from changelog.source.stream.assemble import Assembler, Changed, Committed, Event
from changelog.source.stream.message import emit
from changelog.source.stream.pgoutput import RelationMessage, StreamColumn, decode
from changelog.source.stream.slot import (
    SlotBusyError,
    check_slot,
    create_slot,
    drop_slot,
    inspect_slot,
)
from changelog.source.stream.stream import ReplicationStream
from changelog.source.tables.catalogue import Catalogue, check_capturable, select_tables
from changelog.source.tables.filter import TableFilter
from changelog.source.tables.publication import (
    PublicationChange,
    WantedPublication,
    make_publication,
)
from changelog.source.tables.published import publication_version
from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support.matrix import first
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

pytestmark = pytest.mark.services

DEADLINE_S = 120.0
PAUSE = threading.Event()
SLOT, PUBLICATION = "t_slot", 't publication, "odd"'
DROP_PUBLICATION = sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(PUBLICATION))


@pytest.fixture(scope="module", params=first(1, [16, 18]))
def server(request, tmp_path_factory) -> Iterator[PostgresServer]:
    directory = tmp_path_factory.mktemp(f"pg{request.param}")
    settings = {"wal_sender_timeout": "4s", "fsync": "off"}
    made = PostgresServer(
        directory, pick(), version=request.param, settings=settings, password="pw"
    )
    with made:
        yield made


@pytest.fixture
def pg(server) -> Iterator[Connection]:
    """A connection to an empty database whose slot and publication vanish afterwards."""
    connection = connect(server.dsn)
    run(connection, "CREATE SCHEMA IF NOT EXISTS public")
    yield connection
    if inspect_slot(connection, SLOT) is not None:
        until(lambda: not required(connection).active, "the slot is free")
        drop_slot(connection, SLOT)
    run(connection, DROP_PUBLICATION)
    run(connection, "DROP SCHEMA public CASCADE")
    connection.close()


def publish_tables(connection: Connection, tables: Iterable[TableName]) -> PublicationChange:
    wanted = WantedPublication(tables=dict.fromkeys(tables, ""))
    return make_publication(connection, PUBLICATION, wanted)


def run(connection: Connection, *statements: str | sql.Composed) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def ask(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        PAUSE.wait(0.002)  # lets other threads run


def required(connection: Connection) -> SlotStatus:
    status = inspect_slot(connection, SLOT)
    assert status is not None
    return status


def relations(connection: Connection, *patterns: str) -> list[Relation]:
    tables = select_tables(Catalogue(connection).tables(), TableFilter(patterns or ("*.*",)))
    check_capturable(tables)
    return [table.relation for table in tables]


@dataclass
class Capture:
    """A slot's stream with its decoder, as the capture loop joins them."""

    dsn: str
    connection: Connection
    start: Lsn
    wanted: list[Relation]
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        catalogue = Catalogue(self.connection)
        self.stream = ReplicationStream.open(
            self.dsn, slot=SLOT, publication=PUBLICATION, start_lsn=self.start, status_interval=0.2
        )
        self.assembler = Assembler(catalogue.resolver(self.wanted))

    def poll(self) -> None:
        for payload in self.stream.poll(0.1):
            self.events += self.assembler.add(decode(payload))

    def up_to_now(self) -> list[Event]:
        """Read until a message written now has come."""
        mark = emit(self.connection, "mark", b"", transactional=True)

        def seen() -> bool:
            self.poll()
            return any(isinstance(e, Committed) and e.end_lsn >= mark for e in self.events)

        until(seen, "the mark comes back")
        return self.events

    def changes(self) -> list[Any]:
        return [event.change for event in self.up_to_now() if isinstance(event, Changed)]


@pytest.fixture
def capture(server, pg) -> Iterator[Callable[..., Capture]]:
    """Makes publication and slot for the tables that there are, and starts the stream."""
    made: list[Capture] = []

    def start(*patterns: str, publish: str = "") -> Capture:
        wanted = relations(pg, *patterns)
        published = relations(pg, publish) if publish else wanted
        publish_tables(pg, [relation.name for relation in published])
        with create_slot(server.dsn, SLOT) as exported:
            made.append(Capture(server.dsn, pg, exported.consistent_point, wanted))
        return made[-1]

    yield start
    for each in made:
        each.stream.close()


def shape(change: Change) -> tuple[object, ...]:
    match change:
        case Insert(key=key, row=row):
            return "insert", key, row
        case Update(old_key=old, key=key, row=row):
            return "update", old, key, row
        case Delete(key=key):
            return "delete", key
        case Truncate(relation=relation):
            return "truncate", relation.name.table


# --- the stream ---------------------------------------------------------------------------


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_every_kind_of_change_comes_with_its_keys(pg, capture, identity):
    run(pg, "CREATE TABLE t (v text, b int, a int, PRIMARY KEY (a, b))")
    run(pg, f"ALTER TABLE t REPLICA IDENTITY {identity}")
    run(pg, "INSERT INTO t VALUES ('before', 0, 0)")
    made = capture()
    run(
        pg,
        "INSERT INTO t VALUES ('x', 2, 1)",
        "UPDATE t SET v = NULL WHERE a = 1",
        "UPDATE t SET b = 3 WHERE a = 1",
        "DELETE FROM t WHERE a = 1",
        "TRUNCATE t",
    )
    assert [shape(change) for change in made.changes()] == [
        ("insert", (b"1", b"2"), (b"x", b"2", b"1")),
        ("update", (b"1", b"2"), (b"1", b"2"), (None, b"2", b"1")),
        ("update", (b"1", b"2"), (b"1", b"3"), (None, b"3", b"1")),
        ("delete", (b"1", b"3")),
        ("truncate", "t"),
    ]


def test_transactions_come_in_commit_order_with_numbered_changes(server, pg, capture):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    made = capture("t", publish="public.*")
    second = connect(server.dsn)
    second.autocommit = False
    run(second, "INSERT INTO t VALUES (1)")  # first change, last commit
    run(pg, "INSERT INTO t VALUES (2)")
    run(second, "INSERT INTO other VALUES (1)", "INSERT INTO t VALUES (3)")
    second.commit()
    second.close()
    events = made.up_to_now()
    assert [(e.sequence, *shape(e.change)[1:2]) for e in events if isinstance(e, Changed)] == [
        (0, (b"2",)),
        (0, (b"1",)),
        (8, (b"3",)),
    ]
    commits = [e for e in events if isinstance(e, Committed)]
    assert len(commits) == 3
    ordered = [lsn for e in commits for lsn in (e.commit_lsn, e.end_lsn)]
    assert ordered == sorted(ordered)
    now_us = time.time() * 1e6
    assert all(now_us - 600e6 < e.ts_us <= now_us + 1e6 for e in commits)


def fetch_one(pg, relation, key, columns, xid):
    (fetched,) = fetch_columns(pg, relation, [((key,), xid)], columns)
    return fetched


@pytest.mark.parametrize(("identity", "filled"), [("DEFAULT", False), ("FULL", True)])
def test_unchanged_toast_is_marked_or_taken_from_the_old_row(pg, capture, identity, filled):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY, big text, n int)")
    run(pg, "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    run(pg, f"ALTER TABLE t REPLICA IDENTITY {identity}")
    run(pg, "INSERT INTO t VALUES (1, repeat('x', 9000), 1)")
    made = capture()
    run(pg, "UPDATE t SET n = 2", "UPDATE t SET id = 5")
    big = b"x" * 9000 if filled else UNCHANGED
    assert [shape(change) for change in made.changes()] == [
        ("update", (b"1",), (b"1",), (b"1", big, b"2")),
        ("update", (b"1",), (b"5",), (b"5", big, b"2")),
    ]
    (relation,) = relations(pg)
    before = current_lsn(pg)
    values, after = fetch_one(pg, relation, b"5", ["big", "n"], 0)
    assert values == (b"x" * 9000, b"2")
    assert after >= before
    gone, after = fetch_one(pg, relation, b"99", ["big"], 0)
    assert gone is None
    assert after >= before


def test_a_fetched_row_that_nobody_has_written_since_is_as_its_transaction_left_it(pg, capture):
    run(
        pg,
        "CREATE TABLE t (id int PRIMARY KEY, big text, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100)",
        "INSERT INTO t VALUES (1, repeat('x', 9000), 1)",
    )
    (relation,) = relations(pg)

    def fetched(xid):
        return fetch_one(pg, relation, b"1", ["big"], xid)

    def writes(statement):
        ((xid,),) = ask(pg, f"WITH done AS ({statement} RETURNING 1) SELECT txid_current()")
        return int(xid) % (1 << 32)

    own = writes("UPDATE t SET n = 2")
    assert fetched(own) == ((b"x" * 9000,), AS_WRITTEN)
    before = current_lsn(pg)
    other = writes("UPDATE t SET big = 'y'")
    values, after = fetched(own)
    assert values == (b"y",)
    assert after > before
    assert fetched(other) == ((b"y",), AS_WRITTEN)


def test_rows_that_are_fetched_at_once_are_those_that_are_fetched_one_by_one(pg, capture):
    run(
        pg,
        "CREATE TABLE t (a char(3), b numeric, big text, PRIMARY KEY (a, b))",
        "INSERT INTO t SELECT 'k' || n % 3, n / 10.0, repeat('x', n) FROM generate_series(1, 40) n",
    )
    (relation,) = relations(pg)
    ((xid,),) = ask(pg, "SELECT xmin FROM t LIMIT 1")
    run(pg, "UPDATE t SET big = 'newer' WHERE b > 3", "DELETE FROM t WHERE b = 2")
    keys = [(b"k%d " % (n % 3), b"%d.%d0" % divmod(n, 10)) for n in range(1, 45)]
    asked = [(key, int(xid)) for key in keys]
    at_once = fetch_columns(pg, relation, asked, ["big"])
    one_by_one = [fetch_columns(pg, relation, [one], ["big"])[0] for one in asked]
    assert [values for values, _ in at_once] == [values for values, _ in one_by_one]
    assert [at == AS_WRITTEN for _, at in at_once] == [at == AS_WRITTEN for _, at in one_by_one]
    gone = [number for number, (values, _) in enumerate(at_once, 1) if values is None]
    assert gone == [20, 41, 42, 43, 44]
    assert at_once[0] == ((b"x",), AS_WRITTEN)
    assert at_once[39][0] == (b"newer",)
    assert at_once[39][1] > AS_WRITTEN


@pytest.fixture
def moved(pg, server):
    """Return a transaction under way that moves row 1 to the key of row 7, and its number."""
    run(
        pg,
        "CREATE TABLE t (id int PRIMARY KEY, big text)",
        "INSERT INTO t VALUES (1, 'one'), (7, 'seven')",
    )
    with closing(psycopg2.connect(server.dsn)) as writer, writer.cursor() as cursor:
        cursor.execute("DELETE FROM t WHERE id = 7")
        cursor.execute("UPDATE t SET id = 7 WHERE id = 1")
        cursor.execute("SELECT txid_current()")
        ((xid,),) = cursor.fetchall()
        yield writer, int(xid) % (1 << 32)


def test_a_fetch_waits_until_the_transaction_is_visible(pg, moved):
    """PostgreSQL streams a commit before it is visible to others."""
    writer, xid = moved
    (relation,) = relations(pg)
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(fetch_one, pg, relation, b"7", ["big"], xid)
        assert wait([fetched], timeout=0.3).not_done
        writer.commit()
        assert fetched.result(30) == ((b"one",), AS_WRITTEN)


def test_twin_a_fetch_that_does_not_wait_takes_the_row_of_before(pg, moved, monkeypatch):
    _, xid = moved
    (relation,) = relations(pg)
    monkeypatch.setattr(toast, "_await_visible", lambda *_: None)
    values, _ = fetch_one(pg, relation, b"7", ["big"], xid)
    assert values == (b"seven",)


def test_a_transaction_that_stays_invisible_is_an_error(pg, moved, monkeypatch):
    _, xid = moved
    (relation,) = relations(pg)
    monkeypatch.setattr(toast, "_VISIBLE_S", 0.2)
    text = "is committed and streamed, but not visible yet"
    with pytest.raises(UnavailableSourceError, match=text):
        fetch_one(pg, relation, b"8", ["big"], xid)


@pytest.mark.parametrize(
    ("snapshot", "xid", "is_visible"),
    [
        ("10:20:10,14", 9, True),
        ("10:20:10,14", 10, False),
        ("10:20:10,14", 13, True),
        ("10:20:10,14", 20, False),
        ("10:20:10,14", 25, False),
        ("10:10:", 9, True),
        ("4294967290:4294967300:4294967290,4294967298", 2, False),  # begun again
        ("4294967290:4294967300:4294967290,4294967298", 3, True),
        ("4294967290:4294967300:4294967290,4294967298", 4294967289, True),
        ("4294967290:4294967300:4294967290,4294967298", 4294967290, False),
    ],
)
def test_a_snapshot_says_whether_a_transaction_is_visible(monkeypatch, snapshot, xid, is_visible):
    monkeypatch.setattr(toast, "row_of", lambda *_: (snapshot,))
    nobody: Any = None
    assert toast._is_visible(nobody, xid) is is_visible


def test_partitions_come_as_their_root_and_only_their_keys_are_relied_on(pg, capture):
    run(
        pg,
        "CREATE TABLE p (id int, big text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        # Other column order than its root.
        "CREATE TABLE p2 (big text, id int NOT NULL)",
        "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
        "ALTER TABLE p REPLICA IDENTITY FULL",
        "ALTER TABLE p1 ALTER big SET STORAGE EXTERNAL",
    )
    (relation,) = relations(pg)
    assert relation.name == TableName("public", "p")
    assert relation.identity is ReplicaIdentity.DEFAULT
    made = capture()
    run(
        pg,
        "INSERT INTO p VALUES (1, repeat('x', 5000)), (11, 'b')",
        "UPDATE p SET id = 2 WHERE id = 1",
        "UPDATE p SET id = 12 WHERE id = 2",  # moves to the other partition
        "DELETE FROM p",
        "TRUNCATE p",
    )
    big = b"x" * 5000
    assert [shape(change) for change in made.changes()] == [
        ("insert", (b"1",), (b"1", big)),
        ("insert", (b"11",), (b"11", b"b")),
        ("update", (b"1",), (b"2",), (b"2", UNCHANGED)),
        ("delete", (b"2",)),
        ("insert", (b"12",), (b"12", big)),
        ("delete", (b"11",)),
        ("delete", (b"12",)),
        ("truncate", "p"),
    ]


def test_role_settings_do_not_change_the_text(pg, capture):
    run(
        pg,
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, d date, b bytea, f float8,"
        " i interval)",
        "ALTER ROLE postgres SET timezone = 'Asia/Tokyo'",
        "ALTER ROLE postgres SET datestyle = 'German'",
        "ALTER ROLE postgres SET bytea_output = 'escape'",
        "ALTER ROLE postgres SET extra_float_digits = -5",
    )
    try:
        made = capture()
        run(
            pg,
            "INSERT INTO t VALUES (1, '2024-02-29 12:00:00+00', '2024-02-29', '\\x00ff',"
            " 0.1::float8 + 0.2::float8, '1 day 2 hours')",
        )
        (change,) = made.changes()
    finally:
        run(pg, "ALTER ROLE postgres RESET ALL")
    assert change.row[1:] == (
        b"2024-02-29 12:00:00+00",
        b"2024-02-29",
        b"\\x00ff",
        b"0.30000000000000004",
        b"P1DT2H",
    )


# --- acknowledgement ----------------------------------------------------------------------


def confirmed(connection: Connection) -> Lsn:
    lsn = required(connection).confirmed_flush_lsn
    assert lsn is not None
    return lsn


def until_confirmed(connection: Connection, lsn: Lsn) -> None:
    until(lambda: confirmed(connection) == lsn, "the acknowledgement arrives")


def test_keepalives_never_move_the_slot_past_what_was_acknowledged(pg, capture):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE elsewhere (id int)")
    made = capture("t")
    for number in range(3):
        run(pg, f"INSERT INTO t VALUES ({number})")
        commit = next(e for e in reversed(made.up_to_now()) if isinstance(e, Committed))
        made.stream.acknowledge(commit.end_lsn)
        until_confirmed(pg, commit.end_lsn)
        # WAL from elsewhere: keepalives now carry later positions, and ask for replies.
        run(pg, "INSERT INTO elsewhere SELECT generate_series(1, 1000)")
        elsewhere = current_lsn(pg)
        before = len(made.events)

        def passed(elsewhere=elsewhere):
            made.poll()
            return made.stream.server_wal_end >= elsewhere

        until(passed, "a keepalive shows that the server is past it")
        deadline = time.monotonic() + 3.0  # past the half of wal_sender_timeout
        while time.monotonic() < deadline:
            made.poll()
        assert len(made.events) == before
        assert made.stream.server_wal_end > commit.end_lsn
        assert confirmed(pg) == commit.end_lsn
        assert required(pg).active


def test_an_idle_stream_before_its_first_message_leaves_the_slot_where_it_is(pg, capture):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE elsewhere (id int)")
    made = capture("t")
    run(pg, "INSERT INTO elsewhere SELECT generate_series(1, 1000)")
    elsewhere = current_lsn(pg)

    def passed():
        made.poll()
        return made.stream.server_wal_end >= elsewhere

    until(passed, "a keepalive shows that the server is past it")
    made.stream.send_status(force=True)
    made.poll()
    assert confirmed(pg) == made.start
    # What psycopg2's own reader would have said, the caller may now decide to say.
    made.stream.acknowledge(made.stream.server_wal_end)
    until_confirmed(pg, made.stream.server_wal_end)


def test_psycopg2_s_own_reader_would_have_moved_the_slot(server, pg):
    """The twin of the two tests above: the hazard is there."""
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE elsewhere (id int)")
    publish_tables(pg, [TableName("public", "t")])
    with create_slot(server.dsn, SLOT) as exported:
        start = exported.consistent_point
    connection = connect_replication(server.dsn)
    cursor = connection.cursor()
    options = {"proto_version": 1, "publication_names": quote_ident(PUBLICATION, connection)}
    cursor.start_replication(SLOT, start_lsn=start, options=options, status_interval=1)
    run(pg, "INSERT INTO elsewhere SELECT generate_series(1, 1000)")

    def moved():
        assert cursor.read_message() is None
        return confirmed(pg) > start

    until(moved, "the slot moves although nobody acknowledged anything")
    connection.close()


@pytest.mark.matrix
def test_a_caller_that_does_not_read_keeps_the_connection_by_its_status(pg, capture):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    made = capture()
    run(pg, "INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 60000) g")
    stalled_until = time.monotonic() + 9.0  # more than twice wal_sender_timeout
    while time.monotonic() < stalled_until:
        made.stream.send_status()
        assert required(pg).active
    assert len(made.changes()) == 60000


def test_a_missing_publication_does_not_pass_in_silence(pg, capture):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)")
    made = capture()
    before = publication_version(pg, PUBLICATION)
    assert before is not None
    assert publication_version(pg, PUBLICATION) == before
    run(pg, DROP_PUBLICATION)
    run(pg, "INSERT INTO t VALUES (1)")
    assert publication_version(pg, PUBLICATION) is None
    if pg.server_version >= 180_000:  # the stream itself says nothing: hence the version
        assert made.changes() == []
    else:
        with pytest.raises(SourceError, match="publication") as caught:
            made.up_to_now()
        assert not isinstance(caught.value, UnavailableSourceError)


# --- slots and publications ---------------------------------------------------------------


def test_a_slot_shows_its_state(server, pg, capture):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)")
    assert inspect_slot(pg, SLOT) is None
    made = capture()
    status = required(pg)
    assert (status.plugin, status.database) == ("pgoutput", "app")
    assert status.of_this_database
    assert status.wal_status == "reserved"
    assert status.confirmed_flush_lsn == made.start
    run(pg, "INSERT INTO t SELECT generate_series(1, 1000)")
    assert (required(pg).lag_bytes or 0) > 50_000
    with pytest.raises(SlotBusyError, match=rf"process {required(pg).active_pid}"):
        check_slot(required(pg))
    with pytest.raises(SlotBusyError, match="active"):
        ReplicationStream.open(server.dsn, slot=SLOT, publication=PUBLICATION, start_lsn=made.start)
    with pytest.raises(SlotBusyError):
        drop_slot(pg, SLOT)
    made.stream.close()
    until(lambda: not required(pg).active, "the slot is free")
    check_slot(required(pg))


def test_slots_that_cannot_be_used_are_named(server, pg):
    with pytest.raises(SourceError, match="invalid character"):
        create_slot(server.dsn, "Bad-Name")
    with pytest.raises(SlotError, match="does not exist"):
        drop_slot(pg, SLOT)
    with pytest.raises(SlotError, match="does not exist"):
        ReplicationStream.open(server.dsn, slot=SLOT, publication=PUBLICATION, start_lsn=Lsn(0))
    run(pg, f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    with pytest.raises(LookAgainError, match="already exists"):
        create_slot(server.dsn, SLOT)
    there = connect(server.database_dsn("postgres"))
    status = inspect_slot(there, SLOT)
    there.close()
    assert status is not None
    with pytest.raises(SlotError, match='belongs to the database "app"'):
        check_slot(status)
    drop_slot(pg, SLOT)
    run(pg, f"SELECT pg_create_physical_replication_slot('{SLOT}')")
    with pytest.raises(SlotError, match="physical"):
        check_slot(required(pg))


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ("FOR ALL TABLES WITH (publish_via_partition_root)", "ALL TABLES"),
        ("FOR TABLE a", "root"),
        ("FOR TABLE a WITH (publish_via_partition_root, publish = 'insert')", "each of insert"),
        ("FOR TABLE a WHERE (id > 1) WITH (publish_via_partition_root)", "row filters"),
        ("FOR TABLE a (id) WITH (publish_via_partition_root)", "column lists"),
        ("FOR TABLES IN SCHEMA public WITH (publish_via_partition_root)", "whole schemas"),
    ],
)
def test_a_publication_that_sends_something_else_is_refused(pg, definition, says):
    run(pg, "CREATE TABLE a (id int PRIMARY KEY)")
    quoted = sql.SQL("CREATE PUBLICATION {} ").format(sql.Identifier(PUBLICATION))
    run(pg, quoted + sql.SQL(definition))
    with pytest.raises(SourceError, match=says):
        publish_tables(pg, [TableName("public", "a")])


# --- the snapshot -------------------------------------------------------------------------


def chunks(connection, relation, blocks):
    plan = plan_tables(connection, [relation])[relation.oid]
    return chunks_of(plan.stores, blocks)


def read_snapshot(
    dsn: str, snapshot: str, read: list[Relation], blocks: int = 8192
) -> dict[TableName, list[tuple[Any, ...]]]:
    session = connect(dsn)
    rows: dict[TableName, list[tuple[Any, ...]]] = {}
    try:
        with closing(connect(dsn)) as planning:
            cut = {relation.name: chunks(planning, relation, blocks) for relation in read}
        begin_snapshot(session, snapshot, read)
        for relation in read:
            found = rows.setdefault(relation.name, [])
            for chunk in cut[relation.name]:
                count = len(found)
                lines: list[bytes] = []
                number = read_chunk(session, relation, chunk, lines.extend, batch_rows=7)
                found += map(parse_row, lines)
                assert number == len(found) - count
    finally:
        session.close()
    return rows


@pytest.mark.parametrize("begun", [False, True], ids=["before", "amid"])
def test_a_connection_that_is_cut_while_a_chunk_is_read_may_be_tried_again(pg, server, begun):
    run(
        pg,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 30000) g",
    )
    (relation,) = relations(pg, "t")
    with closing(connect(server.dsn)) as session:
        (chunk,) = chunks(session, relation, 100_000)
        wire = socket.socket(fileno=os.dup(session.fileno()))

        def cut(_lines: object = None) -> None:
            with suppress(OSError):  # rows that had come already are still handed over
                wire.shutdown(socket.SHUT_RDWR)

        if not begun:
            cut()
        backend = session.info.backend_pid
        with wire, pytest.raises(UnavailableSourceError, match="cannot read the table"):
            read_chunk(session, relation, chunk, cut)
        # It would go on for a minute to write to nobody.
        run(pg, f"SELECT pg_terminate_backend({backend})")


@pytest.mark.parametrize("waits", ["release", "copy"])
def test_a_proxy_that_swallows_everything_is_noticed(pg, server, monkeypatch, waits):
    monkeypatch.setattr("changelog.runtime.process.silence.SILENCE_S", 1.0)
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    (relation,) = relations(pg, "t")
    at = parse_dsn(server.dsn)
    with Proxy(pick(), int(at["port"])) as proxy:
        through = connect(make_dsn(server.dsn, port=proxy.port))
        with closing(SnapshotHolder(through)) as holder:
            holder.take()
            (chunk,) = chunks(pg, relation, 8)
            proxy.forget()
            waiting: dict[str, Callable[[], object]] = {
                "release": holder.release,
                "copy": partial(read_chunk, through, relation, chunk, lambda _: None),
            }
            with pytest.raises(UnavailableSourceError):
                waiting[waits]()
    run(
        pg,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )


@pytest.mark.parametrize("look", ["plan", "look"])
def test_a_look_does_not_wait_for_who_waits_for_our_locks(server, pg, look):
    """PostgreSQL sees no circle in it: one of those who wait is this process.

    The size of a table cannot be had so: it is asked for while none of our locks is held, and not
    for long.
    """
    run(
        pg,
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "INSERT INTO p VALUES (1, 'x')",
    )
    (relation,) = relations(pg, "p")
    planned = plan_tables(pg, [relation])[relation.oid]
    with closing(SnapshotHolder(connect(server.dsn))) as holder, closing(connect(server.dsn)) as by:
        holder.take()
        holder.lock([relation])
        altering = threading.Thread(target=run, args=(by, "TRUNCATE p1"))
        altering.start()
        queued = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
        try:
            wait_until(lambda: ask(pg, queued), 10, "the TRUNCATE waits")
            if look == "look":
                assert looks_of(pg, [relation])[relation.oid].is_same(planned)
                assert Catalogue(pg).table(relation.oid) is not None
                assert estimated_rows(pg, [relation.name]) >= 0
                assert writers_of(pg, [relation]) == frozenset()
            else:
                with pytest.raises(TablesBusyError, match="lock"):
                    plan_tables(pg, [relation])
            assert ask(pg, queued)
        finally:
            holder.release()
            altering.join()
    assert not looks_of(pg, [relation])[relation.oid].is_same(planned)


def test_chunks_hold_each_row_once(server, pg):
    run(
        pg,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE child (x int) INHERITS (t)",
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (500)",
        "CREATE TABLE p2 (v text, id int NOT NULL)",
        "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (500) TO (10000)",
        "INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 3000) g",
        "INSERT INTO child VALUES (-1, 'child', 1)",
        "INSERT INTO p SELECT g, NULLIF(g, 7)::text FROM generate_series(0, 999) g",
    )
    read = relations(pg, "t", "empty", "p")
    publish_tables(pg, [relation.name for relation in read])
    with create_slot(server.dsn, SLOT) as exported:
        t = next(relation for relation in read if relation.name.table == "t")
        found = chunks(pg, t, 3)
        assert len(found) > 10
        assert all(a.end == b.start for a, b in pairwise(found))
        rows = read_snapshot(server.dsn, exported.snapshot_name, read, blocks=3)
    by_table = {name.table: sorted(found, key=lambda r: int(r[0])) for name, found in rows.items()}
    assert by_table["t"] == [(str(n).encode(), b"x" * 100) for n in range(1, 3001)]
    assert by_table["empty"] == []
    expected = [(str(n).encode(), None if n == 7 else str(n).encode()) for n in range(1000)]
    assert by_table["p"] == expected


def test_row_security_is_an_error_and_not_a_filter(server, pg):
    run(
        pg,
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1), (2)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE ROLE reader LOGIN PASSWORD 'pw'",
        "GRANT USAGE ON SCHEMA public TO reader",
        "GRANT SELECT ON t TO reader",
    )
    read = relations(pg)
    try:
        with create_slot(server.dsn, SLOT) as exported:
            dsn = f"{server.dsn}?user=reader"
            with pytest.raises(SourceError, match="row-level security"):
                read_snapshot(dsn, exported.snapshot_name, read)
    finally:
        run(pg, "DROP OWNED BY reader", "DROP ROLE reader")


def test_a_snapshot_that_is_gone_may_be_tried_again(server, pg):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)")
    with create_slot(server.dsn, SLOT) as exported:
        pass
    until(lambda: not required(pg).active, "the slot is free")
    with pytest.raises(UnavailableSourceError, match="snapshot is gone"):
        read_snapshot(server.dsn, exported.snapshot_name, relations(pg))


# --- the catalogue ------------------------------------------------------------------------


def test_relations_have_the_stream_s_columns_and_the_key_s_order(pg):
    run(
        pg,
        "CREATE TYPE mood AS ENUM ('sad')",
        "CREATE DOMAIN price AS numeric(8,2)",
        "CREATE DOMAIN fine_price AS price",
        "CREATE TYPE mystery",
        "CREATE FUNCTION m_in(cstring) RETURNS mystery LANGUAGE internal STRICT AS 'textin'",
        "CREATE FUNCTION m_out(mystery) RETURNS cstring LANGUAGE internal STRICT AS 'textout'",
        "CREATE TYPE mystery (INPUT = m_in, OUTPUT = m_out, LIKE = text)",
        "CREATE TABLE t (gone int, b int, a int, n numeric(10,3), w numeric, m mood, p fine_price,"
        " ps price[], ns numeric(6,1)[], ms mood[], ts timestamptz(3), x mystery,"
        " PRIMARY KEY (a, b) INCLUDE (n))",
        "ALTER TABLE t DROP gone",
    )
    (t,) = relations(pg)
    assert t.key == ("a", "b")
    assert t.key_indexes == (1, 0)
    found = {c.name: (c.type.kind, c.type.precision, c.type.scale) for c in t.columns}
    assert found == {
        "b": (Kind.INT, 0, 0),
        "a": (Kind.INT, 0, 0),
        "n": (Kind.DECIMAL, 10, 3),
        "w": (Kind.STRING, 0, 0),
        "m": (Kind.STRING, 0, 0),
        "p": (Kind.DECIMAL, 8, 2),
        "ps": (Kind.ARRAY, 0, 0),
        "ns": (Kind.ARRAY, 0, 0),
        "ms": (Kind.ARRAY, 0, 0),
        "ts": (Kind.TIMESTAMPTZ, 0, 0),
        "x": (Kind.STRING, 0, 0),
    }
    types = {column.name: column.type for column in t.columns}
    assert types["n"].name == "numeric(10,3)"
    assert types["ns"].name == "numeric(6,1)[]"
    assert not types["x"].mapped
    assert types["ms"].mapped


def test_only_permanent_tables_and_roots_are_listed(pg):
    run(
        pg,
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE UNLOGGED TABLE u (id int PRIMARY KEY)",
        "CREATE TEMPORARY TABLE tmp (id int PRIMARY KEY)",
        "CREATE VIEW v AS SELECT 1 AS id",
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE SCHEMA pgstuff CREATE TABLE s (id int PRIMARY KEY)",
    )
    try:
        names = [str(table.name) for table in Catalogue(pg).tables()]
    finally:
        run(pg, "DROP SCHEMA pgstuff CASCADE")
    assert names == ["pgstuff.s", "public.p", "public.t"]


def test_missing_tables_are_all_named(pg):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE VIEW v AS SELECT 1")
    with pytest.raises(UncapturableTableError, match=r'"public\.T", "shop\.x", "public\.v"'):
        relations(pg, "t", "T", "shop.x", "v", "none*")


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (["CREATE TABLE bad (id int)"], "no primary key"),
        (
            ["CREATE TABLE bad (id int PRIMARY KEY)", "ALTER TABLE bad REPLICA IDENTITY NOTHING"],
            "REPLICA IDENTITY NOTHING",
        ),
        (
            [
                "CREATE TABLE bad (id int PRIMARY KEY, o int NOT NULL UNIQUE)",
                "ALTER TABLE bad REPLICA IDENTITY USING INDEX bad_o_key",
            ],
            "other than its primary key",
        ),
        (["CREATE TABLE bad (id int PRIMARY KEY DEFERRABLE)"], "deferrable"),
        (
            ["CREATE TABLE bad (a int, g int GENERATED ALWAYS AS (a) STORED PRIMARY KEY)"],
            "generated column",
        ),
        (
            [
                "CREATE TABLE bad (id int PRIMARY KEY) PARTITION BY RANGE (id)",
                "CREATE TABLE leaf PARTITION OF bad FOR VALUES FROM (0) TO (9)",
                "ALTER TABLE leaf REPLICA IDENTITY NOTHING",
            ],
            r'partition "public\.leaf"',
        ),
    ],
)
def test_a_table_that_cannot_be_captured_is_refused_by_name(pg, statements, says):
    run(pg, "CREATE TABLE good (id int PRIMARY KEY)", *statements)
    with pytest.raises(UncapturableTableError, match=rf'"public\.bad" .*{says}') as caught:
        relations(pg)
    assert "good" not in str(caught.value)
    assert caught.value.hint
    assert [relation.name.table for relation in relations(pg, "good")] == ["good"]


def test_the_primary_key_as_identity_index_is_fine(pg):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)")
    run(pg, "ALTER TABLE t REPLICA IDENTITY USING INDEX t_pkey")
    assert [relation.identity for relation in relations(pg)] == [ReplicaIdentity.DEFAULT]


def test_the_same_description_gives_the_same_relation(pg):
    run(pg, "CREATE TABLE t (id int PRIMARY KEY)")
    catalogue = Catalogue(pg)
    (table,) = catalogue.tables()
    oid = table.relation.oid
    columns = (StreamColumn("id", 23, -1, True),)
    message = RelationMessage(oid, "public", "t", ReplicaIdentity.FULL, columns)
    first = catalogue.resolve(message)
    assert catalogue.resolve(message) is first
    run(pg, "DROP TABLE t")  # the stream may be behind: what it describes is still known
    wider = (*columns, StreamColumn("n", 0xFFFFFFF0, -1, True))
    later = catalogue.resolve(RelationMessage(oid, "public", "t", ReplicaIdentity.FULL, wider))
    assert later.key == ("id",)
    assert not later.columns[1].type.mapped
    with pytest.raises(UncapturableTableError, match="its key is not among the columns"):
        Catalogue(pg).resolve(message)


# --- the system ---------------------------------------------------------------------------


def test_the_system_says_who_it_is(server, pg):
    found = identify(server.dsn)
    assert found.timeline == 1
    assert found.database == "app"
    assert [(found.system_id,)] == ask(
        pg, "SELECT system_identifier::text FROM pg_control_system()"
    )
    check_ready(pg)
    assert ask(pg, "SHOW application_name") == [("changelog",)]


def test_a_refused_connection_says_what_to_do(server, pg):
    wrong = server.dsn.replace(":pw@", ":c4n4ry@")
    with pytest.raises(ConfigurationError, match="password authentication failed") as caught:
        connect(wrong)
    assert "c4n4ry" not in str(caught.value)
    with pytest.raises(ConfigurationError, match='"nowhere" does not exist'):
        connect(server.database_dsn("nowhere"))
    run(pg, "CREATE ROLE plain LOGIN PASSWORD 'pw'")
    try:
        with pytest.raises(ConfigurationError, match=r"(?i)replication") as caught:
            identify(f"{server.dsn}?user=plain")
        assert "REPLICATION" in caught.value.hint
        ordinary = connect(f"{server.dsn}?user=plain")
        with pytest.raises(SourceError, match="cannot make the publication"):
            publish_tables(ordinary, [TableName("public", "t")])
        ordinary.close()
    finally:
        run(pg, "DROP ROLE plain")


def test_settings_that_do_not_fit_are_refused(tmp_path):
    settings = {"wal_level": "replica", "fsync": "off"}
    with PostgresServer(tmp_path, pick(), settings=settings) as made:
        run(
            connect(made.dsn),
            "CREATE DATABASE ascii ENCODING SQL_ASCII TEMPLATE template0"
            " LC_COLLATE 'C' LC_CTYPE 'C'",
        )
        with pytest.raises(SourceError, match="wal_level is replica") as caught:
            check_ready(connect(made.dsn))
        assert "ALTER SYSTEM SET wal_level = logical" in caught.value.hint
        with pytest.raises(SourceError, match="wal_level"):
            create_slot(made.dsn, SLOT)
        run(connect(made.dsn), "ALTER SYSTEM SET wal_level = logical")
        made.stop()
        made.start()
        check_ready(connect(made.dsn))
        with pytest.raises(SourceError, match="SQL_ASCII"):
            check_ready(connect(made.database_dsn("ascii")))
    with pytest.raises(UnavailableSourceError):
        connect(made.dsn)
