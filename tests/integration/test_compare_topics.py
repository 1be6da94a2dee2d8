"""`changelog verify --target topic:`: topics of a real Debezium and of our own log; bad input."""

from __future__ import annotations

import json
from contextlib import closing

import psycopg2
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from changelog.cli import app
from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.headers import decode_headers
from changelog.contract.base.position import Position
from changelog.kafka.cluster import Cluster
from changelog.kafka.scan import OffsetRange, scan
from changelog.runtime.edge import one_line
from tests.integration.test_verify_source import EVERY, Source
from tests.support.record_debezium import TABLES
from tests.support.recorded import RecordedLog, recording

SETTINGS = {"cleanup.policy": "compact", "delete.retention.ms": "3600000"}
COLUMNS = (
    *("i2", "i8", "n", "d", "f4", "f8", "b", "t", "vc", "c", "by", "day", "ts", "ts3", "tz", "tm"),
    *("u", "j", "e"),
)
NUMBERS = {"day", "ts", "ts3", "tm"}
"""Columns that are numbers in JSON without a schema, whose unit nothing tells."""


@pytest.fixture
def verify(dsn, endpoints):
    def run(table, topic, *more, registry=True):
        words = ["verify", table, "--source", dsn, "--target", f"topic:{topic}", "--json"]
        words += ["-b", endpoints.brokers, "--settle", "0", *more]
        words += ["-r", endpoints.schema_registry] if registry else []
        ran = CliRunner().invoke(app, words)
        error = ran.exception
        code = error.exit_code if isinstance(error, ChangelogError) else ran.exit_code
        report = json.loads(ran.stdout or "{}")
        said = one_line(error) if isinstance(error, Exception) else ran.stderr
        return code, report, f"{said} {report.get('differences')}"

    return run


@pytest.fixture
def debezium(dsn, execute, kafka, registry, prefix):
    """Put the topic of a recording on the broker, and its table's rows into PostgreSQL."""

    def put(form):
        found = recording(form)
        RecordedLog(kafka, registry, prefix, found, SETTINGS).put()
        execute(TABLES)
        names = ", ".join(found.rows[0])
        marks = ", ".join(["%s"] * len(found.rows[0]))
        with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
            for row in found.rows:
                cursor.execute(f"INSERT INTO typed ({names}) VALUES ({marks})", list(row.values()))
            connection.commit()
        return found

    return put


@pytest.mark.parametrize(
    ("form", "columns"),
    [
        ("avro", COLUMNS),
        ("avro-flat", COLUMNS),
        ("json-schema", COLUMNS),
        ("json", [name for name in COLUMNS if name not in NUMBERS]),
        ("json-flat-rewrite", [name for name in COLUMNS if name not in NUMBERS]),
    ],
)
def test_a_topic_of_debezium_is_compared(debezium, execute, verify, prefix, form, columns):
    found = debezium(form)
    code, report, said = verify("typed", prefix, "--columns", ",".join(columns))
    assert (code, report["rows_target"]) == (0, len(found.rows)), said
    execute("DELETE FROM typed WHERE id = 3")
    execute("UPDATE typed SET d = d + 0.0001 WHERE id = 10")
    execute("UPDATE typed SET tz = tz + interval '1 microsecond', u = NULL WHERE id = 207")
    code, report, said = verify("typed", prefix, "--columns", ",".join(columns))
    seen = {each["key"]["id"]: (each["kind"], {*each["columns"]}) for each in report["differences"]}
    assert code == 3, said
    assert seen == {
        "3": ("unexpected", set()),
        "10": ("differs", {"d"}),
        "207": ("differs", {"tz", "u"}),
    }


def test_values_that_debezium_did_not_get_differ(debezium, verify, prefix):
    debezium("avro")
    code, report, _ = verify("typed", prefix, "--columns", "t,big_text,texts")
    assert code == 3
    seen = {(name, values["target"]) for each in report["differences"]
            for name, values in each["columns"].items()}  # fmt: skip
    assert seen == {
        ("big_text", "__debezium_unavailable_value"),
        ("texts", '["__debezium_unavailable_value"]'),
    }


@pytest.fixture
def own(dsn, kafka, registry, prefix):
    """A table of every type and a log of its rows, as capture writes it."""
    made = Source(dsn, kafka, registry, prefix)
    with closing(made.connection):
        made.write_log()
        made.log.frontier()
        yield made


def test_a_topic_of_our_own_log_is_compared(own, verify, kafka):
    topic = own.log.topics[EVERY.name]
    code, report, said = verify('"every type"', topic)
    assert (code, report["rows_target"], report["not_compared"]) == (0, 3, {}), said
    rows = own.texts()
    own.log.put(EVERY, [rows[0][0], *rows[1][1:]], lsn=500)  # sent again, older than what is there
    own.log.delete(EVERY, ["2"])
    own.log.put(EVERY, ["9", *rows[2][1:]])
    own.log.frontier()
    own.execute("UPDATE \"every type\" SET d = d + 0.01, iv = '1 mon -2 days' WHERE id = 1")
    code, report, said = verify('"every type"', topic)
    seen = {each["key"]["id"]: (each["kind"], {*each["columns"]}) for each in report["differences"]}
    assert code == 3, said
    assert seen == {
        "1": ("differs", {"d", "iv"}),
        "2": ("missing", set()),
        "9": ("unexpected", set()),
    }
    places = last_places(kafka, topic)
    for difference, value_is_there in zip(report["differences"], [True, False, True], strict=True):
        place = difference["written_by"]
        assert places.pop(place) is value_is_there, "the newest record of the key, by its position"


def last_places(kafka, topic):
    """Return whether the last record of each key has a value, by its place."""
    cluster = Cluster(kafka)
    ends = cluster.standing([topic], committed=True)[topic].ends
    last: dict[bytes | None, tuple[Position, str, bool]] = {}
    ranges = [OffsetRange(topic, number, 0, end) for number, end in enumerate(ends)]
    for record in scan(kafka, ranges):
        position = decode_headers(record.headers()).position
        place = f"partition {record.partition()}, offset {record.offset()} of topic:{topic}"
        place += f", commit {position.commit_lsn}"
        if record.key() not in last or position > last[record.key()][0]:
            last[record.key()] = (position, place, record.value() is not None)
    return {place: has_value for _, place, has_value in last.values()}


@pytest.fixture
def topic(endpoints, execute, prefix):
    """A topic of one partition, and a function that writes records to it."""
    execute("CREATE TABLE orders (id int PRIMARY KEY, t text); INSERT INTO orders VALUES (1, 'a')")
    admin = AdminClient({"bootstrap.servers": endpoints.brokers})
    admin.create_topics([NewTopic(prefix, 1, 1)])[prefix].result()

    def write(*records):
        producer = Producer({"bootstrap.servers": endpoints.brokers, "enable.idempotence": True})
        for key, value in records:
            producer.produce(prefix, value, key)
        assert producer.flush(30) == 0

    return write


@pytest.mark.parametrize(
    ("records", "code", "part"),
    [
        ([("1", '{"t": "a"}')], 0, ""),  # the key alone has the key's column
        ([("1", '{"t": "b"}'), ("1", None), ("1", '{"t": "a"}')], 0, ""),
        ([("1", '{"t": "a"}'), ("1", None)], 3, "differs from its source in 1 keys"),
        ([(None, '{"id": 1, "t": "a"}')], 1, "offset 0: it has no key"),
        ([("1", "no json")], 1, "offset 0: the value is not JSON"),
        ([("1", '{"op": "m", "after": {"id": 1}}')], 1, "its op is 'm'"),
        ([('{"id":1}', b"\0\0\0\0\1x")], 1, "of a schema registry, and none is set"),
        ([], 3, "differs from its source in 1 keys"),
    ],
)
def test_records_of_other_forms(topic, verify, prefix, records, code, part):
    topic(*records)
    ended, _, said = verify("orders", prefix, registry=False)
    assert (ended, part in said) == (code, True), said


def test_a_key_in_two_partitions_is_two_rows(endpoints, execute, verify, prefix):
    execute("CREATE TABLE orders (id int PRIMARY KEY, t text); INSERT INTO orders VALUES (1, 'a')")
    admin = AdminClient({"bootstrap.servers": endpoints.brokers})
    admin.create_topics([NewTopic(prefix, 2, 1)])[prefix].result()
    producer = Producer({"bootstrap.servers": endpoints.brokers})
    for partition in (0, 1):
        producer.produce(prefix, '{"t": "a"}', json.dumps({"id": 1}), partition)
    assert producer.flush(30) == 0
    code, report, said = verify("orders", prefix)
    assert (code, report["differences"][0]["kind"]) == (3, "duplicated"), said


@pytest.mark.parametrize(
    ("more", "code", "part"),
    [([], 2, "there is no topic"), (["-b", "127.0.0.1:1"], 1, "no Kafka broker answers")],
)
def test_a_topic_or_broker_that_is_not_there_is_told(
    topic, dsn, run_command, endpoints, more, code, part
):
    words = ["verify", "orders", "--source", dsn, "--target", "topic:nowhere"]
    ended, _, said = run_command([*words, *(more or ["-b", endpoints.brokers])])
    assert (ended, part in said) == (code, True), said
