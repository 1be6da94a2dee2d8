"""A sink's task on a real broker and a real PostgreSQL: rows, forms, bad records, rivals."""

import json
import threading
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.connect import target as target_module
from changelog.connect.rules.events import Insert
from changelog.connect.rules.settings import parse_settings
from changelog.connect.target import PLACES, Asked, OvertakenError, Target
from changelog.connect.task import Share, run_task
from changelog.contract.base.errors import ChangelogError, LogError, SinkError
from tests.support.wait import wait_until

DEADLINE_S = 30


@pytest.fixture
def make_topic(kafka, prefix):
    def make(name="t", partitions=1):
        topic = f"{prefix}.{name}"
        admin = AdminClient({**kafka.client_config(), "log_level": 0})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        return topic

    return make


@pytest.fixture
def send(kafka):
    def send(topic, *records):
        producer = Producer({**kafka.client_config(), "log_level": 0})
        for each in records:
            key, value = each if isinstance(each, tuple) else (None, each)
            raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
            producer.produce(topic, key=key, value=raw)
        assert producer.flush(30) == 0

    return send


@pytest.fixture
def execute(dsn):
    def execute(statement):
        with (
            closing(psycopg2.connect(dsn)) as connection,
            connection,
            connection.cursor() as cursor,
        ):
            try:
                cursor.execute(statement)
            except psycopg2.errors.UndefinedTable:  # the task has not made it yet
                return []
            return cursor.fetchall() if cursor.description else []

    return execute


@pytest.fixture
def settings(dsn, prefix):
    parts = psycopg2.extensions.parse_dsn(dsn)
    url = f"postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}"

    def make(topic, **more):
        config = {"name": prefix, "topics": topic, "connection.url": url}
        config |= {"connection.user": parts["user"], "target.tablename": "public.t"}
        return parse_settings(config | {key.replace("__", "."): text for key, text in more.items()})

    return make


@pytest.fixture
def running(kafka):
    """A task in a thread; what ended it is in the list that comes out."""

    @contextmanager
    def run(settings):
        stop, ended = threading.Event(), []

        def work():
            try:
                run_task(kafka, settings, Share(0, 1), stop)
            except ChangelogError as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield ended
        finally:
            stop.set()
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    return run


UPSERT = {"writeMode": "upsert", "pk__fields": "id"}


def test_each_form_of_an_event_reaches_the_table(make_topic, send, execute, settings, running):
    topic = make_topic()
    execute(
        "CREATE TABLE t (id int PRIMARY KEY, a numeric, j jsonb, n smallint, w timetz, b bytea)"
    )
    send(
        topic,
        b'{"id": 1, "a": 12345678901234567890.10, "j": {"x": [1.50]}, "n": 7, "w": "10:00:00+02"}',
        {"id": 2, "j": '{"y": 1}', "b": "AP8="},
        {"before": None, "after": {"id": 3, "a": 1}, "op": "c"},
        {"before": {"id": 3}, "after": {"id": 4, "a": 2}, "op": "u"},
        {"schema": {}, "payload": {"before": None, "after": {"id": 5}, "op": "r", "source": {}}},
        {"before": {"id": 5}, "after": None, "op": "d"},
        {"id": 6, "a": 1, "__deleted": "false"},
        {"id": 6, "__deleted": "true"},
        (b"1", {"id": 1, "n": 8}),
        {"id": 7},
        (b'{"id": 7}', None),
    )
    with running(settings(topic, **UPSERT)) as ended:
        wait_until(
            lambda: ended or execute(f"SELECT 1 FROM {PLACES} WHERE next_offset = 11"),
            DEADLINE_S,
            "all records are written",
        )
        assert ended == []
    rows = execute("SELECT id, a::text, j::text, n, w::text, encode(b, 'hex') FROM t ORDER BY id")
    assert rows == [
        (1, "12345678901234567890.10", '{"x": [1.50]}', 8, "10:00:00+02", None),
        (2, None, '{"y": 1}', None, None, "00ff"),
        (4, "2", None, None, None, None),
    ]


def test_rows_without_a_key_are_appended_to_a_table_made_on_request(
    make_topic, send, execute, settings, running
):
    topic = make_topic(partitions=3)
    more = {"auto__create": "true", "col__names": "a,b", "col__types": "numeric(10,2),text[]"}
    send(topic, *({"a": n, "b": ["x", None], "c": 1} for n in range(100)))
    for _ in range(2):  # the second start goes on, and writes nothing twice
        with running(settings(topic, **more)) as ended:
            wait_until(
                lambda: ended or execute(f"SELECT sum(next_offset) FROM {PLACES}") == [(100,)],
                DEADLINE_S,
                "all records are written",
            )
            assert ended == []
    assert execute("SELECT count(*), sum(a), min(b::text) FROM t") == [(100, 4950, "{x,NULL}")]


def test_a_bad_record_fails_the_task_and_half_a_batch_is_not_written(
    make_topic, send, execute, settings, running
):
    topic = make_topic()
    execute("CREATE TABLE t (id int PRIMARY KEY)")
    send(topic, {"id": 1}, {"id": "x"}, {"id": 3})
    with running(settings(topic, **UPSERT)) as ended:
        wait_until(lambda: ended, DEADLINE_S, "the task has failed")
    assert isinstance(ended[0], SinkError)
    assert "offset 1 of partition 0" in str(ended[0])
    assert execute("SELECT * FROM t") == []
    assert execute(f"SELECT next_offset FROM {PLACES}") == [(0,)]


def test_bad_records_go_to_the_dead_letters_with_the_reason_until_they_are_too_many(
    make_topic, send, execute, settings, running, kafka
):
    topic = make_topic()
    execute("CREATE TABLE t (id int PRIMARY KEY, a int CHECK (a > 0))")
    dead = f"{topic}.dead"
    more = {
        "errors__tolerance": "all",
        "errors__deadletterqueue__topic__name": dead,
        "errorLimit": "3",
    }
    send(topic, {"id": 1, "a": 1}, b"{", {"id": 2, "a": -1}, {"id": 3, "z": 1}, {"id": 4, "a": 1})
    with running(settings(topic, **UPSERT, **more)) as ended:
        wait_until(
            lambda: ended or execute("SELECT count(*) FROM t") == [(2,)], DEADLINE_S, "rows are in"
        )
        assert ended == []
        send(topic, b"[]")
        wait_until(lambda: ended, DEADLINE_S, "the fourth one ends the task")
        assert "errorLimit 3" in str(ended[0])
    config = kafka.client_config(group_id=dead, auto_offset_reset="earliest")
    consumer = Consumer({**config, "log_level": 0})
    consumer.subscribe([dead])
    found: list[Any] = []

    def arrived():
        found.extend(consumer.consume(10, 0.2))
        return len(found) >= 3

    wait_until(arrived, DEADLINE_S, "the dead letters")
    consumer.close()
    headers = [dict(each.headers()) for each in found]
    assert sorted(int(each["__connect.errors.offset"]) for each in headers) == [1, 2, 3]
    assert all(each["__connect.errors.exception.message"] for each in headers)
    assert {each.value() for each in found} >= {b"{"}


def test_a_new_column_is_found_and_its_record_is_not_bad(
    make_topic, send, execute, settings, running
):
    topic = make_topic()
    execute("CREATE TABLE t (id int PRIMARY KEY)")
    with running(settings(topic, **UPSERT)) as ended:
        send(topic, {"id": 1})
        wait_until(lambda: ended or execute("SELECT 1 FROM t"), DEADLINE_S, "the first row")
        execute("ALTER TABLE t ADD COLUMN a int")
        send(topic, {"id": 2, "a": 5})
        wait_until(lambda: ended or execute("SELECT 1 FROM t WHERE a = 5"), DEADLINE_S, "the next")
        assert ended == []


def test_an_unknown_topic_and_a_missing_table_are_said(make_topic, send, settings, running):
    topic = make_topic()
    with running(settings(f"{topic}.no")) as ended:
        wait_until(lambda: ended, DEADLINE_S, "the task has failed")
    assert isinstance(ended[0], LogError)
    send(topic, {"id": 1})
    with running(settings(topic)) as ended:
        wait_until(lambda: ended, DEADLINE_S, "the task has failed")
    assert "there is no table" in str(ended[0])


def _two_writers_of_one_partition(dsn, settings):
    """Let a writer that was overtaken write: as one does that slept while another took over."""
    first, second = Target(settings("x")), Target(settings("x"))
    with closing(first), closing(second):
        first.begin({("x", 0): 0})
        rows = [Asked(("x", 0, n), [Insert({"id": n})]) for n in range(3)]
        second.write(rows, {("x", 0): (0, 3)}, refuse=lambda _: None)
        first.write(rows, {("x", 0): (0, 3)}, refuse=lambda _: None)


def test_who_was_overtaken_writes_nothing(dsn, execute, settings):
    execute("CREATE TABLE t (id int)")
    with pytest.raises(OvertakenError):
        _two_writers_of_one_partition(dsn, settings)
    assert execute("SELECT count(*) FROM t") == [(3,)]


def test_twin_without_the_comparison_of_places_writes_twice(dsn, execute, settings, monkeypatch):
    """The same with the seeded defect: places that nobody compares."""
    monkeypatch.setattr(target_module.Target, "_check_moved", lambda *_: None)
    execute("CREATE TABLE t (id int)")
    _two_writers_of_one_partition(dsn, settings)
    assert execute("SELECT count(*) FROM t") == [(6,)]
