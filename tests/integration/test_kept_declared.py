"""States of declared logs that the verifier keeps, on the real brokers: no Spark."""

from __future__ import annotations

import base64
import json
from contextlib import closing

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from changelog.contract.base.errors import CorruptRecordError, VerdictError
from changelog.contract.forms.declared import (
    Beginning,
    DeclaredLog,
    Order,
    ValueShape,
    declared_columns,
)
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from changelog.kafka.clients import KeptKafka
from replay.broker.topics import inspect
from replay.declared.declared import make_declared_cut
from tests.support.beginnings import remove_before
from tests.support.cleaning import wait_cleaned
from tests.support.declared_log import COMPACT, KEEP, Log
from tests.support.log_writer import CLEAN_AT_ONCE
from tests.support.said import all_rows
from tests.support.wait import wait_until
from views.verify.kept import declared as declared_module
from views.verify.kept.declared import KeptLog
from views.verify.kept.statements import KeptStatements
from views.verify.log.registry import WriterSchemas
from views.verify.processes.scratch import scratch
from views.verify.records.read import appended_ends, require_stable
from views.verify.values.names import reading_name

THINGS = TableName("public", "things")
COLUMNS = {
    "id": "int",
    "name": "string",
    "price": "decimal(10,2)",
    "day": "date",
    "seen": "timestamp",
    "ratio": "double",
    "flag": "boolean",
    "raw": "binary",
}
CLEANED = {**CLEAN_AT_ONCE, "delete.retention.ms": "3600000"}
VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            ],
            "default": None,
        },
        {
            "name": "seen",
            "type": ["null", {"type": "long", "connect.name": "io.debezium.time.Timestamp"}],
            "default": None,
        },
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
    ],
}


class Writer:
    """A program that writes rows in one shape, those of a key in one partition."""

    def __init__(self, log: Log, shape: ValueShape):
        self.log, self.shape = log, shape
        self.pin = None
        if shape.is_avro:
            self.schema = VALUE if shape.is_flat else ENVELOPE
            self.key_id = log.register("key", KEY)
            self.value_id = log.register("value", self.schema)
            self.pin = SchemaPin(None, self.value_id)

    def row(self, number, text):
        if self.shape.is_avro:
            return {"id": number, "name": text, "price": b"\x7f", "seen": 1500 + number}
        return {
            "id": number,
            "name": text,
            "price": "-0.10",
            "day": "2024-02-29",
            "seen": "2024-02-29T12:00:00.5Z",
            "ratio": -0.0,
            "flag": number % 2 == 0,
            "raw": base64.b64encode(b"\x00\xff").decode(),
        }

    def put(self, number, text, *, moved_from=None):
        """Write that a key has a row now, or none; perhaps the row of another key."""
        row = None if text is None else self.row(number, text)
        if self.shape.is_flat:
            if moved_from is not None:
                self._send(moved_from, None)
            self._send(number, row)
            return
        op = "d" if row is None else "c" if moved_from is None else "u"
        before = None
        if op != "c":
            before = self.row(number if moved_from is None else moved_from, "old")
        self._send(number, {"op": op, "before": before, "after": row})
        if row is None and self.shape is not ValueShape.CUD_JSON:
            self._send(number, None)

    def _send(self, number, value):
        key = {"id": number}
        if self.shape.is_avro:
            key = self.log.avro(self.key_id, KEY, key)
            value = value and self.log.avro(self.value_id, self.schema, value)
        self.log.put(key, value, partition=number % 2)


class Held:
    """A log and what the verifier holds of it."""

    def __init__(self, database, kafka, registry, of, pin=None):
        self.database, self.kafka, self.registry = database, kafka, registry
        self.of, self.pin = of, pin
        self.kept = self._log(database, "kept")

    def _log(self, database, base):
        return KeptLog(
            database, self.kafka, WriterSchemas(self.registry), self.of, pin=self.pin, base=base
        )

    def cut(self):
        return make_declared_cut(self.kafka, [self.of]).record

    def begin(self):
        record = self.cut()
        return self.kept.begin(record.frontier, record.appended_ms)

    def advance(self, record=None):
        record = record or self.cut()
        return self.kept.advance(record.frontier, record.appended_ms)

    def seen(self):
        """Return what a view's query reads."""
        return self.database.execute(f"FROM {reading_name(THINGS)} ORDER BY id").fetchall()

    def require_whole(self, record):
        """Require that what is held is what a fresh reading gives, in values and types."""
        with scratch(None, "200MB") as other:
            state = self._log(other, "kept").begin(record.frontier, record.appended_ms)
            assert self.kept.state == state
            facts = [
                [
                    database.execute("DESCRIBE kept").fetchall(),
                    [*map(repr, all_rows(database, "kept"))],
                    database.execute("FROM kept_names ORDER BY name").fetchall(),
                    database.execute(f"DESCRIBE {reading_name(THINGS)}").fetchall(),
                    database.execute(f"FROM {reading_name(THINGS)} ORDER BY id").fetchall(),
                ]
                for database in (self.database, other)
            ]
            assert facts[0] == facts[1]


def declared(log, shape, **more):
    columns = () if shape.is_avro else declared_columns(COLUMNS, "logs.things")
    return DeclaredLog(
        table=THINGS, topic=log.topic, shape=shape, key=("id",), columns=columns, **more
    )


@pytest.fixture
def held(kafka, registry, prefix):
    kept = KeptKafka.of(kafka)
    with scratch(None, "200MB") as database, closing(kept):

        def made(shape=ValueShape.FLAT_JSON, *, settings=KEEP, partitions=2, **more):
            log = Log(kafka, registry, f"{prefix}.things", settings=settings, partitions=partitions)
            writer = Writer(log, shape)
            return writer, Held(database, kept, registry, declared(log, shape, **more), writer.pin)

        yield made


@pytest.mark.parametrize(
    "shape",
    # Rows of Protobuf are refreshed in tests/integration/test_http_in.py.
    [shape for shape in ValueShape if shape is not ValueShape.FLAT_PROTOBUF],
    ids=lambda shape: shape.value,
)
def test_a_log_is_brought_forward_by_what_was_appended(held, shape):
    writer, log = held(shape)
    for number in range(1, 7):
        writer.put(number, "first")
    writer.put(6, None)
    log.begin()
    assert log.kept.records >= 7
    assert [each[0] for each in log.seen()] == [1, 2, 3, 4, 5]

    record = log.cut()
    log.advance(record)
    assert (log.kept.records, log.kept.touched) == (0, 0)

    writer.put(1, "second")
    writer.put(1, "third")
    writer.put(2, None)
    writer.put(8, None)
    record = log.cut()
    log.advance(record)
    assert log.kept.touched == 3
    assert log.kept.records <= 6
    log.require_whole(record)

    writer.put(9, "moved", moved_from=1)
    writer.put(6, "back")
    record = log.cut()
    log.advance(record)
    assert log.kept.touched == 3
    log.require_whole(record)
    assert [each[:2] for each in log.seen()] == [
        (3, "first"), (4, "first"), (5, "first"), (6, "back"), (9, "moved"),
    ]  # fmt: skip


def test_what_cannot_be_gone_on_from_is_refused_and_what_is_held_stays(held):
    writer, log = held()
    writer.put(1, "a")
    log.begin()
    before = log.seen()
    writer.log.put({"id": 1}, writer.row(1, "b"), partition=0)
    with pytest.raises(VerdictError, match="stands in two partitions"):
        log.advance()
    writer.log.put({"id": 2}, b"no JSON", partition=0)
    with pytest.raises(VerdictError, match=r"partition 0, offset 1: Expecting value"):
        log.advance()
    assert log.seen() == before
    with pytest.raises(CorruptRecordError):
        log.begin()
    with pytest.raises(VerdictError, match="nothing is held"):
        log.advance()


LEFT_OUT = "__debezium_unavailable_value"


def test_a_value_that_was_left_out_is_taken_from_what_is_held(held):
    writer, log = held()
    writer.put(1, "a")
    log.begin()
    writer.put(1, LEFT_OUT)
    writer.put(3, "c")
    writer.put(3, LEFT_OUT)
    record = log.cut()
    log.advance(record)
    log.require_whole(record)
    assert [each[:2] for each in log.seen()] == [(1, "a"), (3, "c")]
    writer.put(3, None)
    writer.put(3, LEFT_OUT)
    with pytest.raises(VerdictError, match=r"left out a value.*has to be read whole"):
        log.advance()
    assert [each[:2] for each in log.seen()] == [(1, "a"), (3, "c")]


def test_a_topic_that_was_made_anew_or_grew_is_refused(held, monkeypatch):
    writer, log = held()
    writer.put(1, "a")
    log.begin()
    admin, topic = writer.log.admin, writer.log.topic
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    wait_until(lambda: inspect(log.kafka, [topic])[topic].partitions == 3, 30, "three partitions")
    with pytest.raises(VerdictError, match="3 partitions and had 2"):
        log.advance()
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: not inspect(log.kafka, [topic]), 30, "no topic")
    again = Writer(Log(log.kafka, log.registry, topic), ValueShape.FLAT_JSON)
    again.put(1, "b")
    record = log.cut()
    with pytest.raises(VerdictError, match="its id changed"):
        log.advance(record)
    # The twin: a state that takes the new topic for the old one.
    for check in ("_not_ahead", "not_the_same"):
        monkeypatch.setattr(declared_module, check, lambda *_: ())
    log.advance(record)
    with pytest.raises(AssertionError):
        log.require_whole(record)


def test_another_leader_may_have_other_records(held, monkeypatch):
    writer, log = held()
    writer.put(1, "a")
    log.begin()
    monkeypatch.setattr(
        declared_module,
        "appended_ends",
        lambda *asked: [(end, epoch + 1) for end, epoch in appended_ends(*asked)],
    )
    with pytest.raises(VerdictError, match="partition 0 has got another leader"):
        log.advance()


def test_a_start_that_moved_is_refused_also_where_it_may_be_anywhere(held, monkeypatch):
    writer, log = held(partitions=2, beginning=Beginning.EARLIEST)
    for number in (2, 4, 6):
        writer.put(number, "a")

    def delete(before):
        remove_before(writer.log.admin, TopicPartition(writer.log.topic, 0, before))

    delete(1)
    log.begin()
    assert [each[0] for each in log.seen()] == [4, 6]
    writer.put(8, "a")
    log.advance()
    assert [each[0] for each in log.seen()] == [4, 6, 8]
    writer.put(8, "b")
    record = log.cut()
    delete(2)
    with pytest.raises(VerdictError, match="starts at offset 2"):
        log.advance(record)
    record = log.cut()
    with pytest.raises(VerdictError, match="begins at offset 2, and did at 1"):
        log.advance(record)
    with monkeypatch.context() as patch:  # the twin: rows whose records were deleted stay
        patch.setattr(declared_module, "not_the_same", lambda *_: ())
        log.advance(record)
    with pytest.raises(AssertionError):
        log.require_whole(record)
    writer.put(8, "c")
    delete(6)
    with pytest.raises(VerdictError, match="starts at offset 6, behind 5"):
        log.advance()


def in_a_transaction(log, *texts, commit=True):
    """Write rows of key 1 in one transaction; it leaves an offset without a record at its end.

    The brokers write that end a moment after they have answered; until then nobody reads the rows.
    """
    producer = Producer(log.kafka.client_config(transactional_id=log.of.topic))
    producer.init_transactions(30)
    producer.begin_transaction()
    for text in texts:
        value = json.dumps({"id": 1, "name": text}).encode()
        producer.produce(log.of.topic, key=b'{"id": 1}', value=value, partition=1)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)
    topic = log.of.topic
    require_stable(log.kafka, {topic: [end for end, _ in appended_ends(log.kafka, topic, 2)]})


@pytest.mark.parametrize(
    "settings", [KEEP, COMPACT], ids=["never cleaned", "cleaned after an hour"]
)
def test_offsets_of_transactions_have_no_record(held, settings):
    writer, log = held(settings=settings)
    writer.put(1, "a")
    log.begin()
    in_a_transaction(log, "b", "c")
    in_a_transaction(log, "taken back", commit=False)
    record = log.cut()
    log.advance(record)
    assert [each[:2] for each in log.seen()] == [(1, "c")]
    assert (log.kept.records, log.kept.touched) == (2, 1)
    log.require_whole(record)


def test_offsets_without_a_record_are_refused_where_nobody_knows_since_when(held):
    writer, log = held(settings=COMPACT)
    writer.put(1, "a")
    log.kept.begin(log.cut().frontier)
    writer.put(1, "b")
    frontier = log.cut().frontier
    log.kept.advance(frontier)  # each offset has a record
    in_a_transaction(log, "c")
    with pytest.raises(VerdictError, match="not known when its ends were asked for"):
        log.kept.advance(log.cut().frontier)


def test_records_that_were_cleaned_away_since_are_refused(held, monkeypatch):
    writer, log = held(settings=CLEANED)
    writer.put(1, "a")
    log.begin()
    writer.put(1, "b")
    record = log.cut()

    def stir():
        writer.put(1, "c")

    wait_cleaned(log.kafka, stir, {writer.log.topic: [(1, 1)]})
    with pytest.raises(VerdictError, match=r"gave 0 records .* min\.compaction\.lag\.ms"):
        log.advance(record)
    assert [each[1] for each in log.seen()] == ["a"]
    with pytest.raises(VerdictError, match="records were appended since its ends were taken"):
        KeptLog.begin(log._log(log.database, "other"), record.frontier, record.appended_ms)
    # The twin: without the check the row stays as it was, though the log said otherwise.
    monkeypatch.setattr(declared_module, "may_lack", lambda *_, **__: None)
    log.advance(record)
    assert [each[1] for each in log.seen()] == ["a"]


def test_a_log_in_the_order_of_its_source_goes_forward_while_it_ascends(held, monkeypatch):
    writer, log = held(ValueShape.DEBEZIUM_JSON, order=Order.LSN)

    def put(lsn, op, number, text=None):
        key, row = {"id": number}, None if op == "d" else writer.row(number, text)
        before = key if op == "d" else None
        value = {"before": before, "after": row, "op": op, "source": {"lsn": lsn}}
        writer.log.put(key, value, partition=number % 2)
        if op == "d":
            writer.log.put(key, None, partition=number % 2)

    for number in range(1, 5):
        put(10, "r", number, "a")
    put(20, "u", 2, "b")
    put(10, "r", 2, "a")  # sent again
    log.begin()
    assert [each[1] for each in log.seen()] == ["a", "b", "a", "a"]
    put(30, "u", 1, LEFT_OUT)
    put(31, "u", 2, LEFT_OUT)
    put(32, "d", 3)
    put(33, "d", 4)
    put(34, "c", 4, "back")
    record = log.cut()
    log.advance(record)
    assert (log.kept.records, log.kept.touched) == (7, 4)
    log.require_whole(record)
    assert [each[:2] for each in log.seen()] == [(1, "a"), (2, "b"), (4, "back")]
    put(30, "u", 1, "older")
    put(29, "u", 1, "oldest")
    record = log.cut()
    with pytest.raises(VerdictError, match=r"partition 1, offset .* sent again"):
        log.advance(record)
    # The twin: a state that takes what was sent again for the newest.
    monkeypatch.setattr(KeptStatements, "_require_ascending", lambda *_: None)
    log.advance(record)
    with pytest.raises(AssertionError):
        log.require_whole(record)
