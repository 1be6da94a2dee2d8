"""The log against PostgreSQL itself: every type, planted defects, and the wait for the frontier."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import LogError, NoFrontierError, SlotError, ViewError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.text import SESSION_SETTINGS
from changelog.contract.rows.types import array_type, column_type
from tests.support.builders import INTEGER, TEXT, make_relation
from tests.support.handmade_log import HandmadeLog
from views.verify.source.source import SourceRequest, verify_source

FAR = 1 << 60
TYPES = {
    "id": ("integer", INTEGER),
    "b": ("boolean", column_type("bool", "boolean")),
    "s": ("smallint", column_type("int2", "smallint")),
    "l": ("bigint", column_type("int8", "bigint")),
    "n": ("numeric", column_type("numeric", "numeric")),
    "d": ("numeric(10,2)", column_type("numeric", "numeric(10,2)")),
    "w": ("numeric(38,0)", column_type("numeric", "numeric(38,0)")),
    "r": ("real", column_type("float4", "real")),
    "f": ("double precision", column_type("float8", "double precision")),
    "t": ("text", TEXT),
    "c": ("char(5)", column_type("bpchar", "character(5)")),
    "y": ("bytea", column_type("bytea", "bytea")),
    "day": ("date", column_type("date", "date")),
    "ts": ("timestamp", column_type("timestamp", "timestamp without time zone")),
    "tz": ("timestamptz", column_type("timestamptz", "timestamp with time zone")),
    "ti": ("time", column_type("time", "time without time zone")),
    "iv": ("interval", column_type("interval", "interval")),
    "u": ("uuid", column_type("uuid", "uuid")),
    "j": ("json", column_type("json", "json")),
    "jb": ("jsonb", column_type("jsonb", "jsonb")),
    "p": ("point", column_type("point", "point")),
    "ia": ("integer[]", array_type(INTEGER, "integer[]")),
    "ta": ("text[]", array_type(TEXT, "text[]")),
    "da": ("date[]", array_type(column_type("date", "date"), "date[]")),
    "fa": ("float8[]", array_type(column_type("float8", "float8"), "double precision[]")),
}
VALUES = [
    (
        "1, true, -32768, 9223372036854775807, 1e-20, -0.05,"
        " 12345678901234567890123456789012345678,"
        " '1e-30', 0.1, 'a\"\\\n,é', 'ab', '\\x00ff', '2013-01-01', '2013-01-01 05:06:07.000008',"
        " '1969-12-31 23:59:59.999999+00', '24:00:00', '1 mon -2 days 3.5 secs',"
        " 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\" :  1}', '{\"b\": 1, \"a\": 2}', '(1,2)',"
        " '{1,NULL,3}', '{\"a,b\",NULL,\"\",\"q\\\"x\"}', '{2013-01-01,infinity}', '{NaN,-0,1e300}'"
    ),
    (
        "2, false, 0, 0, 'NaN', 'NaN', 0, 'NaN', '-Infinity', '', '', '', 'infinity', '-infinity',"
        " 'infinity', '00:00', 'P0D', null, 'null', 'null', null, '{{1,2},{3,4}}', '[0:1]={a,b}',"
        " '{}', '{}'"
    ),
    (
        "3, null, null, null, 'Infinity', null, null, '-0', '-0', null, null, null,"
        " '0044-03-15 BC',"
        " '0044-03-15 12:00:00.5 BC', '294246-01-01 00:00:00+00', null, null, null, null,"
        " null, null,"
        " null, null, '{0001-01-01 BC,NULL}', null"
    ),
]
EVERY = make_relation(
    {name: kind for name, (_, kind) in TYPES.items()}, name=TableName("public", "every type")
)


class Source:
    """A database with a table, and a log made by hand of its rows."""

    def __init__(
        self, dsn: str, kafka: KafkaConnection, registry: RegistryConnection, prefix: str
    ) -> None:
        self.dsn = dsn
        self.kafka = kafka
        options = " ".join(f"-c {n}={v.replace(', ', ',')}" for n, v in SESSION_SETTINGS.items())
        self.connection = psycopg2.connect(dsn, options=options)
        self.connection.autocommit = True
        columns = ", ".join(f'"{name}" {sql}' for name, (sql, _) in TYPES.items())
        self.execute(f'CREATE TABLE "every type" ({columns}, PRIMARY KEY (id))')
        for values in VALUES:
            self.execute(f'INSERT INTO "every type" VALUES ({values})')
        self.log = HandmadeLog(kafka, registry, [EVERY], prefix=prefix)
        self.request = SourceRequest(
            postgres=dsn,
            kafka=kafka,
            registry=registry,
            slot=prefix,
            publication=prefix,
            topic_prefix=prefix,
            timeout_seconds=20,
        )

    def execute(self, text: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(text)

    def texts(self) -> list[list[str | None]]:
        """Each row as PostgreSQL's output functions write it."""
        columns = ", ".join(
            f'CASE WHEN "{name}" IS DISTINCT FROM NULL THEN format(\'%s\', "{name}") END'
            for name in TYPES
        )
        with self.connection.cursor() as cursor:
            cursor.execute(f'SELECT {columns} FROM "every type" ORDER BY id')
            # A boolean alone is cast by `format` as its output function does: t or f.
            return [list(row) for row in cursor]

    def write_log(self, *, without: str = "") -> None:
        for row in self.texts():
            if row[0] != without:
                self.log.put(EVERY, row)

    def publish(self, *, lsn: int = FAR) -> Frontier:
        topic = frontier_topic(self.log.prefix)
        admin = AdminClient(self.kafka.client_config())
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        frontier = replace(self.log.frontier(), lsn=Lsn(lsn))
        producer = Producer(self.kafka.client_config())
        producer.produce(topic, frontier.to_json().encode(), self.log.prefix.encode())
        assert producer.flush(30) == 0
        return frontier


@pytest.fixture
def source(dsn: str, kafka: KafkaConnection, registry: RegistryConnection, prefix: str):
    made = Source(dsn, kafka, registry, prefix)
    with closing(made.connection):
        yield made


def slots(source: Source) -> list[str]:
    with source.connection.cursor() as cursor:
        cursor.execute(
            "SELECT slot_name FROM pg_replication_slots "
            "WHERE slot_name LIKE 'changelog_verify%' AND database = current_database()"
        )
        return [row[0] for row in cursor]


def test_a_log_as_the_source_says_is_equal_in_every_type(source: Source) -> None:
    source.write_log()
    # A transaction after the snapshot is not in it, and must not be in the fold.
    source.log.put(EVERY, ["1", *[None] * (len(TYPES) - 1)], lsn=FAR - 10)
    source.publish()
    (report,) = verify_source(source.request)
    assert report.differences == ()
    assert (report.verified, report.rows_expected, report.rows_served) == (True, 3, 3)
    assert json.dumps(report.to_json())
    assert slots(source) == []


def test_a_wrong_value_of_every_type_is_found(source: Source) -> None:
    source.write_log()
    texts = source.texts()
    source.log.put(EVERY, ["1", *texts[2][1:]])
    source.publish()
    (report,) = verify_source(source.request)
    assert (report.verified, report.mismatches) == (False, 1)
    assert [d.column for d in report.differences] == [name for name in TYPES if name != "id"]
    assert {tuple(d.key.items()) for d in report.differences} == {(("id", "1"),)}
    assert {d.offset is None for d in report.differences} == {False}


def test_a_missing_and_an_extra_row_are_found(source: Source) -> None:
    source.write_log(without="2")
    source.log.put(EVERY, ["7", *[None] * (len(TYPES) - 1)])
    source.publish()
    (report,) = verify_source(source.request)
    assert (report.verified, report.mismatches) == (False, 2)
    assert [(d.kind, dict(d.key)) for d in report.differences] == [
        ("missing", {"id": "2"}),
        ("extra", {"id": "7"}),
    ]


def test_without_a_frontier_it_says_so(source: Source) -> None:
    with pytest.raises(NoFrontierError, match="does not exist"):
        verify_source(source.request)


def test_a_frontier_that_stays_behind_is_an_error_with_a_hint(source: Source) -> None:
    source.execute("CREATE PUBLICATION p FOR ALL TABLES")
    source.execute(f"SELECT pg_create_logical_replication_slot('{source.log.prefix}', 'pgoutput')")
    source.execute('DELETE FROM "every type" WHERE id = 1')
    source.write_log()
    source.publish(lsn=source.log.lsn + 1)
    request = replace(source.request, publication="p", timeout_seconds=1)
    with pytest.raises(LogError, match="capture must be running"):
        verify_source(request)
    assert slots(source) == []


def test_a_stopped_capture_with_nothing_to_write_is_verified(source: Source) -> None:
    source.execute("CREATE PUBLICATION p FOR ALL TABLES")
    source.execute(f"SELECT pg_create_logical_replication_slot('{source.log.prefix}', 'pgoutput')")
    source.execute("SELECT pg_logical_emit_message(true, 'other', 'work')")
    source.write_log()
    source.publish(lsn=source.log.lsn + 1)
    (report,) = verify_source(replace(source.request, publication="p"))
    assert report.verified is True


def test_a_stopped_capture_without_its_slot_is_an_error(source: Source) -> None:
    source.write_log()
    source.publish(lsn=source.log.lsn + 1)
    with pytest.raises(SlotError, match="does not exist"):
        verify_source(source.request)


def test_a_table_that_is_not_captured_is_named(source: Source) -> None:
    source.write_log()
    source.publish()
    with pytest.raises(ViewError, match=r"public\.none"):
        verify_source(replace(source.request, tables=(TableName("public", "none"),)))
