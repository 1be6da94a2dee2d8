"""Declared logs that a process holds, on a real broker: the rows are those of a whole read."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from changelog.avro.bodies import bare
from changelog.contract.base.errors import VerdictError
from changelog.contract.forms.declared import PLACEHOLDER, DeclaredLog, ValueShape, declared_columns
from changelog.kafka.clients import KeptKafka
from replay.base.config import ReplaySettings
from replay.base.failures import translated
from replay.broker.topics import inspect
from replay.declared import follow
from replay.declared.declared import make_declared_cut, open_declared
from replay.declared.follow import FollowedLog
from replay.decode.decode import decode
from replay.local.records import WrittenRecord
from replay.local.rows import RowReader
from tests.integration.test_declared_logs import KEY, THINGS, envelope, make, of_envelope
from tests.support.cleaning import wait_cleaned
from tests.support.log_writer import CLEAN_AT_ONCE
from tests.support.wait import wait_until

__all__ = ["make"]
pytestmark = [pytest.mark.services, pytest.mark.spark]

SHARP = ReplaySettings(clock_allowance_ms=0)
"""One machine has one clock."""
TYPES = {
    "id": "int", "flag": "boolean", "big": "bigint", "f": "float", "d": "double",
    "m": "decimal(10,2)", "wide": "decimal(38,10)", "name": "string", "raw": "binary",
    "day": "date", "at": "timestamp", "local": "timestamp_ntz", "Odd name": "string",
}  # fmt: skip
FULL = {
    "flag": True, "big": -(2**63), "f": 0.1, "d": "NaN", "m": -12.5, "wide": 0.0000000001,
    "name": "ü", "raw": "AP8=", "day": "1582-10-04", "at": "1500-02-28T23:59:59.999999Z",
    "local": "0001-01-01T00:00:00", "Odd name": {"a": [1.50, None]},
}  # fmt: skip


def json_log(log, shape, **more) -> DeclaredLog:
    columns = declared_columns(TYPES, "logs.things")
    return DeclaredLog(
        table=THINGS, topic=log.topic, shape=shape, key=("id",), columns=columns, **more
    )


class Follower:
    """Holds the rows of a log, with the clients of a follower."""

    def __init__(self, log, of, settings=None):
        self.log, self.of, self.settings = log, of, settings
        self.kafka = KeptKafka.of(log.kafka)
        self.followed = FollowedLog(of, self.kafka, log.registry)
        self.rows = {}
        self.named = set()

    def cut(self):
        return make_declared_cut(self.kafka, [self.of], settings=self.settings)

    def begin(self):
        for key, *rest in self.followed.begin(self.cut()):
            assert key not in self.rows
            self.rows[key] = rest

    def advance(self):
        cut = self.cut()
        found = self.followed.advance(cut, self.held)
        self.named = {key for key, *_ in found}
        assert len(self.named) == len(found)
        for key, *rest in found:
            self.rows.pop(key, None)
            if rest[0] is not None:
                self.rows[key] = rest
        return cut

    def held(self, key):
        return self.rows[key][0] if key in self.rows else None

    def check(self, spark):
        """Go on, and compare with a whole read at the same cut: values and types."""
        cut = self.advance()
        whole = open_declared(spark, self.log.kafka, self.log.registry, cut, [self.of])
        wanted = whole.states[THINGS].frame
        schema = "key binary, value binary, partition int, offset bigint"
        records = [(bytearray(k), bytearray(rest[0]), *rest[1:]) for k, rest in self.rows.items()]
        own = decode(spark.createDataFrame(records, schema), self.followed.schemas).frame
        assert [(f.name, f.dataType) for f in own.schema] == [
            (f.name, f.dataType) for f in wanted.schema
        ]
        with translated():
            here = own.orderBy("id").toArrow()
            there = wanted.orderBy("id").toArrow()
        whole.recheck()
        assert str(here.to_pylist()) == str(there.to_pylist())  # NaN is not equal to itself
        names = [each.column for each in self.followed.schemas.logged(1).columns]
        reader = RowReader(self.followed.schemas, names)
        local = reader.table([WrittenRecord(*rest) for rest in self.rows.values()])
        assert str(local.sort_by("id").to_pylist()) == str(there.to_pylist())
        assert [each.type for each in local.schema] == [each.type for each in there.schema]
        return {row["id"]: row for row in there.to_pylist()}


@pytest.fixture
def following():
    made = []

    def follower(*words, **more):
        made.append(Follower(*words, **more))
        return made[-1]

    yield follower
    for each in made:
        each.kafka.close()


@pytest.mark.matrix
def test_flattened_json(make, spark, following):
    log = make(partitions=3)
    for number in range(1, 7):
        log.put({"id": number}, {"id": number, **FULL, "__deleted": "false"})
    it = following(log, json_log(log, ValueShape.FLAT_JSON, delete="__deleted"))
    it.begin()
    assert len(it.check(spark)) == 6
    assert not it.named
    log.put({"id": 1}, {"id": 1, "name": "new", "__deleted": "false"})
    log.put({"id": 2}, {"id": 2, "__deleted": "true"})
    log.put({"id": 3}, None)
    log.put({"id": 99}, None)
    rows = it.check(spark)
    assert {*rows} == {1, 4, 5, 6}
    assert it.named == {b"[1]", b"[2]", b"[3]", b"[99]"}
    assert rows[4]["day"] == date(1582, 10, 4)
    assert rows[4]["local"] == datetime(1, 1, 1)  # noqa: DTZ001 - a timestamp without a zone


@pytest.mark.matrix
def test_the_cud_envelope_where_an_update_changes_a_key(make, spark, following):
    log = make(partitions=1)
    log.put(None, envelope("c", None, {"id": 1, **FULL}))
    log.put(None, envelope("c", None, {"id": 2, **FULL}))
    it = following(log, json_log(log, ValueShape.CUD_JSON))
    it.begin()
    log.put(None, envelope("u", {"id": 1}, {"id": 3, **FULL}))
    log.put(None, envelope("d", {"id": 2}, None))
    log.put(None, envelope("c", None, {"id": 1, "name": "again"}))
    assert {*it.check(spark)} == {1, 3}
    log.put(None, envelope("d", {"id": 3}, None))
    log.put(None, envelope("d", {"id": 7}, None))
    assert {*it.check(spark)} == {1}
    assert it.named == {b"[3]", b"[7]"}


@pytest.mark.matrix
def test_debezium_s_json_with_values_that_the_source_left_out(make, spark, following):
    log = make(partitions=1)

    def put(number, op, **more):
        log.put({"id": number}, envelope(op, None, {"id": number, **FULL, **more}))

    put(1, "r", name="long")
    put(1, "u", name=PLACEHOLDER, big=2)
    it = following(log, json_log(log, ValueShape.DEBEZIUM_JSON))
    it.begin()
    put(2, "c")
    put(2, "u", wide=PLACEHOLDER, raw=PLACEHOLDER)
    assert [row["name"] for row in it.check(spark).values()] == ["long", "ü"]
    put(1, "u", name=PLACEHOLDER, big=3)
    assert it.check(spark)[1]["name"] == "long"
    # The row under the new key is another one: what it lacks stands under the old key.
    put(3, "c", name=PLACEHOLDER)
    with pytest.raises(VerdictError, match="left out a value"):
        it.advance()


@pytest.mark.matrix
def test_flattened_avro_of_every_type_and_two_schemas(make, spark, following):
    log = make()
    digits = {
        "type": "record",
        "name": "VariableScaleDecimal",
        "namespace": "io.debezium.data",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
        "connect.name": "io.debezium.data.VariableScaleDecimal",
    }
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    types = {
        "day": {"type": "int", "connect.name": "io.debezium.time.Date"},
        "at": {"type": "long", "connect.name": "io.debezium.time.Timestamp"},
        "micro": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
        "zoned": {"type": "long", "logicalType": "timestamp-millis"},
        "exact": moment,
        "u": {"type": "string", "logicalType": "uuid"},
        "m": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
        "n": digits,
        "moments": {"type": "array", "items": ["null", moment]},
        "texts": {"type": "array", "items": ["null", "string"]},
        "days": {"type": "array", "items": {"type": "int", "logicalType": "date"}},
        "raw": "bytes",
        "f": "float",
        "flag": "boolean",
    }
    fields = [{"name": "id", "type": "int"}] + [
        {"name": name, "type": ["null", kind], "default": None} for name, kind in types.items()
    ]
    late = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 10}
    later = {"name": "late", "type": [late, "null"], "default": "\x96"}
    old = {"type": "record", "name": "Value", "fields": fields}
    new = {**old, "fields": [*fields, later]}
    key_id, old_id = log.register("key", KEY), log.register("value", old)
    new_id = log.register("value", new)
    full = {
        "day": -141_430, "at": -14_831_164_800_001, "micro": -62_135_596_800_000_000,
        "zoned": 1, "exact": -62_135_596_800_000_000, "u": "no uuid", "m": b"\xff",
        "n": {"scale": 3, "value": b"\xff\x00"}, "moments": [None, -1, 0], "texts": ["ü", None],
        "days": [-719_162, -141_427], "raw": b"\x00", "f": 0.10000000149011612, "flag": False,
    }  # fmt: skip
    few = {name: full[name] for name in ("day", "raw")}

    def put(number, schema_id, schema, found):
        # What values mean is for readers: the writer gets the numbers.
        raw = log.avro(schema_id, bare(schema), {"id": number, **found})
        log.put(log.avro(key_id, KEY, {"id": number}), raw)

    put(1, old_id, old, full)
    put(2, new_id, new, {**full, "late": b"\x01"})
    of = DeclaredLog(table=THINGS, topic=log.topic, shape=ValueShape.FLAT_AVRO, key=("id",))
    it = following(log, of)
    it.begin()
    put(3, old_id, old, few)
    put(4, new_id, new, {**few, "late": None})
    log.put(log.avro(key_id, KEY, {"id": 2}), None)
    rows = it.check(spark)
    assert {*rows} == {1, 3, 4}
    assert rows[4]["late"] is None
    assert rows[3]["late"] is not None
    assert rows[1]["n"] == "-0.256"

    newest = {**new, "fields": [*new["fields"], {**later, "name": "latest"}]}
    newest_id = log.register("value", newest)
    it.advance()
    assert {*it.rows} == {b"[1]", b"[3]", b"[4]"}
    put(5, newest_id, newest, {**few, "late": None, "latest": None})
    with pytest.raises(VerdictError, match=f"its schema id {newest_id} is not of the topic"):
        it.advance()


@pytest.mark.matrix
def test_debezium_s_avro(make, spark, following):
    log = make(partitions=1)
    value = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
    }
    schema = of_envelope(value)
    key_id, schema_id = log.register("key", KEY), log.register("value", schema)

    def put(number, op, before, after):
        found = {"before": before, "after": after, "source": {"lsn": 1}, "op": op}
        log.put(log.avro(key_id, KEY, {"id": number}), log.avro(schema_id, schema, found))

    put(1, "c", None, {"id": 1, "name": "a"})
    of = DeclaredLog(table=THINGS, topic=log.topic, shape=ValueShape.DEBEZIUM_AVRO, key=("id",))
    it = following(log, of)
    it.begin()
    put(2, "c", None, {"id": 2, "name": "b"})
    put(1, "d", {"id": 1, "name": "a"}, None)
    log.put(log.avro(key_id, KEY, {"id": 1}), None)
    assert {number: row["name"] for number, row in it.check(spark).items()} == {2: "b"}


@pytest.mark.matrix
def test_marks_of_transactions_are_gaps_of_a_topic_that_nobody_cleans(make, spark, following):
    log = make(partitions=1)
    it = following(log, json_log(log, ValueShape.FLAT_JSON))
    it.begin()
    producer = Producer(log.kafka.client_config(transactional_id=log.topic))
    producer.init_transactions(30)
    for number, commits in ((1, True), (2, False), (3, True)):
        producer.begin_transaction()
        producer.produce(log.topic, key=b'{"id":%d}' % number, value=b'{"id":%d}' % number)
        producer.flush(30)
        assert {*it.check(spark)} == {1} - {number}, "it is open"
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    assert {*it.check(spark)} == {1, 3}


@pytest.mark.matrix
@pytest.mark.parametrize("defect", [False, True])
def test_a_delete_that_was_cleaned_away_is_missed_by_nobody(make, following, monkeypatch, defect):
    """The twin does not ask whether offsets without a record are marks, and keeps the row."""
    settings = {
        **CLEAN_AT_ONCE,
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "delete.retention.ms": "4000",
    }
    log = make(settings=settings, partitions=1)
    log.put({"id": 1}, {"id": 1})
    log.put({"id": 2}, {"id": 2})
    it = following(log, json_log(log, ValueShape.FLAT_JSON), settings=SHARP)
    it.begin()
    assert {*it.rows} == {b"[1]", b"[2]"}
    log.put({"id": 1}, None)
    wait_cleaned(log.kafka, lambda: log.put({"id": 9}, {"id": 9}), {log.topic: [(0, 2)]})
    if defect:
        monkeypatch.setattr(follow, "lost_between", lambda *_, **__: None)
        it.advance()
        assert b"[1]" in it.rows, "the row is gone, and nobody knows"
        return
    with pytest.raises(VerdictError, match="offsets hold no record"):
        it.advance()


def test_a_topic_that_grows_is_refused(make, following):
    log = make(partitions=1)
    log.put({"id": 1}, {"id": 1})
    it = following(log, json_log(log, ValueShape.FLAT_JSON))
    it.begin()
    log.admin.create_partitions([NewPartitions(log.topic, 2)])[log.topic].result()
    wait_until(
        lambda: inspect(log.kafka, [log.topic])[log.topic].partitions == 2, 30, "two partitions"
    )
    with pytest.raises(VerdictError, match="grew during the scan"):
        it.advance()
