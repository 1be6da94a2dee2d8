"""What a topic of a view promises beyond other sinks: a log of changes that others replay."""

from __future__ import annotations

import uuid
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import duckdb
import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import SinkError
from changelog.contract.forms.declared import DeclaredLog, ValueShape, declared_columns
from changelog.contract.rows.relation import TableName
from tests.conformance.conftest import Bench, committed, topic_bench
from tests.conformance.test_cache_options import EVERY_TYPE
from tests.conformance.test_forward import at, delta
from tests.support.declared_state import DeclaredState
from tests.support.matrix import first
from views.sinks.base import UnavailableSinkError
from views.sinks.topic import sink as topic_module
from views.sinks.topic.server import TopicServer
from views.verify.served.served import read_served
from views.verify.values.types import parse_type

pytestmark = [pytest.mark.spark, pytest.mark.services]

KINDS = "id int, name string, amount decimal(10,2), at timestamp, day date, tags array<string>"
FIRST = [(n, f"name {n}", Decimal(n) / 4, None, None, [str(n), None]) for n in range(6)]
CHANGED: list[tuple[Any, ...]] = [
    (2, "é", Decimal("0.10"), None, None, None),
    (9, "new", None, None, None, []),
]


def build(bench: Bench, number: int, rows: Any, key: tuple[str, ...] = ("id",)) -> Any:
    sink = bench.sink(key=key)
    sink.open(number, rows.schema)
    sink.write(rows)
    sink.seal()
    return sink


def published(bench: Bench, number: int, rows: Any) -> Any:
    sink = build(bench, number, rows)
    sink.publish(number)
    return sink


def rows_of(bench: Bench, rows: Any) -> Any:
    return bench.spark.createDataFrame(rows, KINDS)


def records(sink: Any, topic: str) -> list[tuple[bytes, bytes | None]]:
    return [(each.key(), each.value()) for each in sink._server.records(topic)]


def frontier(bench: Bench) -> dict[str, Any]:
    found = committed(_brokers(bench), f"views.{bench.view}.generations")
    assert found is not None
    told: dict[str, Any] = orjson.loads(found[b"published"])
    return told


def _brokers(bench: Bench) -> str:
    assert bench.settings.kafka is not None
    return bench.settings.kafka.brokers


def read_back(bench: Bench, number: int, rows: Any, key: tuple[str, ...]) -> tuple[list, list]:
    """Return what the verifier reads of a generation: rows in order of the key, and faults."""
    columns = [(field.name, parse_type(field.dataType.simpleString())) for field in rows.schema]
    with duckdb.connect() as database:
        read_served(database, "t", bench.sink(key=key).address(number), columns, key)
        names = ", ".join(f'"{name}"' for name, _ in columns)
        found = database.execute(f"select {names} from t order by 1").fetchall()
        faults = database.execute("select __fault from t where __fault is not null").fetchall()
    return found, [fault for (fault,) in faults]


def test_the_verifier_reads_avro_and_json_alike(topic, endpoints, spark, view):
    rows = spark.sql(EVERY_TYPE)
    as_json = topic_bench(endpoints, spark, f"{view}_b", {"value": "json"})
    for bench in (topic, as_json):
        build(bench, 1, rows.repartition(3), ("k",))
    found, expected = (read_back(each, 1, rows, ("k",)) for each in (topic, as_json))
    assert repr(found) == repr(expected)
    assert (found[1], len(found[0])) == ([], 2)
    assert [row[7] for row in found[0]] == ["null", ""]


@pytest.mark.parametrize("value", first(1, ["avro", "json"]))
def test_a_record_under_another_key_or_in_another_form_is_a_fault(
    endpoints, spark, view, value, topic
):
    bench = topic_bench(endpoints, spark, view, {"value": value})
    rows = spark.sql("select id, 'a' s from range(3)")
    sink = published(bench, 1, rows)
    of = f"views.{view}"
    (one, first), (two, _), *_ = records(sink, of)
    assert first is not None
    producer = Producer({"bootstrap.servers": endpoints.brokers, "log_level": 0})
    producer.produce(of, first, two)
    producer.produce(of, b"{" if value == "json" else first[:-1], one)
    producer.flush(30)
    found, faults = read_back(bench, 1, rows, ("id",))
    assert len(found) == 3
    assert len(faults) == 2
    assert any("its key says" in each for each in faults)
    assert any("malformed" in each for each in faults)


def test_a_switch_writes_what_differs_and_a_tombstone_for_what_vanished(topic):
    sink = published(topic, 1, rows_of(topic, FIRST))
    of = f"views.{topic.view}"
    assert len(records(sink, of)) == 6
    told = {"generation": 1, "end": 6, "position": None, "records": "keyed"}
    assert frontier(topic) == told
    published(topic, 2, rows_of(topic, [each for each in FIRST if each[0] not in {2, 5}] + CHANGED))
    new = records(sink, of)[6:]
    assert sorted(value is None for _, value in new) == [False, False, True]
    assert len(topic.served(topic.view)) == 6
    told = frontier(topic)
    assert told["generation"] == 2
    assert told["end"] == sink._server.end(of) - 1  # the mark of the transaction lies behind
    sink.publish(1)
    assert len(records(sink, of)) == 12
    assert sorted(row["id"] for row in topic.served(topic.view)) == list(range(6))


class KilledError(Exception):
    """Stands for the end of a process."""


def killed(*_: Any) -> None:
    raise KilledError


@pytest.mark.matrix
def test_a_switch_that_is_killed_shows_nothing_and_is_done_again(topic, monkeypatch):
    """Its transaction stays open: readers stop before it, and the next of its name aborts it."""
    sink = published(topic, 1, rows_of(topic, FIRST))
    before = topic.served(topic.view)
    build(topic, 2, rows_of(topic, CHANGED))
    of = f"views.{topic.view}"
    with monkeypatch.context() as patched:
        patched.setattr(TopicServer, "_abort", lambda *_: None)
        patched.setattr(topic_module, "write_frontier", lambda into, *_: killed(into.end(of)))
        with pytest.raises(KilledError):
            topic.sink().publish(2)
    assert sink._server.end(of, committed=False) > sink._server.end(of)
    assert topic.served(topic.view) == before
    assert topic.sink().published() == 1
    sink.publish(2)
    assert sorted(row["id"] for row in topic.served(topic.view)) == [2, 9]


@pytest.mark.matrix
def test_twin_a_switch_without_a_transaction_shows_a_part(topic, monkeypatch):
    """The defect: each record is committed by itself, so what a kill leaves is a mixture."""
    published(topic, 1, rows_of(topic, FIRST))
    before = topic.served(topic.view)
    build(topic, 2, rows_of(topic, CHANGED))
    with monkeypatch.context() as patched:
        sound = topic_module.TopicSink._move

        def commits(self, into, *rest):
            sound(self, into, *rest)
            into._producer.commit_transaction(30)
            raise KilledError

        patched.setattr(topic_module.TopicSink, "_move", commits)
        with pytest.raises(KilledError):
            topic.sink().publish(2)
    assert topic.served(topic.view) != before
    assert topic.sink().published() == 1


def test_who_was_overtaken_cannot_write(topic):
    server = published(topic, 1, rows_of(topic, FIRST))._server
    of = f"views.{topic.view}"

    def overtaken() -> None:
        with server.transaction(of) as late:
            late.put(of, b"late", b"")
            with server.transaction(of):
                pass

    with pytest.raises(SinkError, match="another process"):
        overtaken()
    assert len(topic.served(topic.view)) == 6


@pytest.mark.matrix
@pytest.mark.parametrize("value", first(1, ["avro", "json"]))
def test_another_project_replays_the_topic_and_proves_it(
    endpoints, kafka, registry, spark, view, tmp_path, value
):
    """Logs are chained: through two generations and a delta."""
    bench = topic_bench(endpoints, spark, view, {"value": value})
    sink = published(bench, 1, rows_of(bench, FIRST))
    published(bench, 2, rows_of(bench, FIRST[:4] + CHANGED[1:]))
    sink.apply(2, *delta(bench, sink, CHANGED[:1], FIRST[:1], KINDS, ("id",)), at(7))
    as_json = value == "json"
    plain = {"id": "int", "name": "string", "amount": "decimal(10,2)"}
    of = DeclaredLog(
        table=TableName("public", "copied"),
        topic=f"views.{view}",
        shape=ValueShape.FLAT_JSON if as_json else ValueShape.FLAT_AVRO,
        key=("id",),
        columns=declared_columns(plain, "logs.copied") if as_json else (),
    )
    read = DeclaredState(spark, tmp_path)
    found = read(SimpleNamespace(kafka=kafka, registry=registry), of)
    expected = {n: FIRST[n][1:] for n in (1, 3)} | {each[0]: each[1:] for each in CHANGED}
    assert {key: row[:2] for key, row in found.items()} == {
        key: row[:2] for key, row in expected.items()
    }
    if not as_json:
        assert found == expected
        assert [kind for _, kind in read.frame.dtypes] == [
            kind for _, kind in rows_of(bench, []).dtypes
        ]
    assert read.report.mismatches == 0
    assert "exact" in read.verdict


@pytest.mark.matrix
@pytest.mark.parametrize("value", first(1, ["avro", "json"]))
def test_without_keys_new_rows_come_once_and_others_are_refused(topic, value):
    """Before readers see anything; and a delta is told as a switch is."""
    topic.options = {"records": "unkeyed", "value": value}
    published(topic, 1, rows_of(topic, FIRST))
    published(topic, 2, rows_of(topic, FIRST + CHANGED[1:]))
    sink, of = topic.sink(), f"views.{topic.view}"
    config = ConfigResource(ConfigResource.Type.TOPIC, of)
    admin = AdminClient({"bootstrap.servers": _brokers(topic), "log_level": 0})
    held = admin.describe_configs([config])[config].result()
    assert [held[each].value for each in ("cleanup.policy", "retention.ms")] == ["delete", "-1"]
    assert [key for key, _ in records(sink, of)] == [None] * 7
    assert read_back(topic, 2, rows_of(topic, FIRST), ("id",))[0] == FIRST + CHANGED[1:]
    for rows, what in (
        (FIRST[1:] + CHANGED[1:], r'key \{"id": ?0\} is gone'),
        ([*FIRST[:2], *CHANGED, *FIRST[3:]], r'key \{"id": ?2\} has changed'),
    ):
        build(topic, 3, rows_of(topic, rows))
        with pytest.raises(SinkError, match=what):
            sink.publish(3)
        sink.discard(3)

    def bring(sink: Any, changed: Any, gone: Any, lsn: int) -> None:
        sink.apply(2, *delta(topic, sink, changed, gone, KINDS, ("id",)), at(lsn))

    with pytest.raises(SinkError, match=r'key \{"id": ?2\} has changed'):
        bring(sink, CHANGED[:1], [], 5)
    with pytest.raises(SinkError, match=r'key \{"id": ?1\} is gone'):
        bring(sink, [], FIRST[1:2], 5)
    assert (len(records(sink, of)), sink.position(2)) == (7, None)
    new = [(20, "later", None, None, None, None)]
    for each in (sink, topic.sink()):  # the second is the delta of one that was killed
        bring(each, new + FIRST[:1], [(30, *FIRST[0][1:])], 6)
    assert (sink.rows(2), sink.position(2)) == (8, at(6))
    found, faults = read_back(topic, 2, rows_of(topic, []), ("id",))
    assert (found, faults) == (FIRST + CHANGED[1:] + new, [])
    assert frontier(topic)["records"] == "unkeyed"


@pytest.mark.matrix
def test_another_project_reads_records_without_keys(
    endpoints, kafka, registry, spark, view, tmp_path
):
    bench = topic_bench(endpoints, spark, view, {"records": "unkeyed"})
    published(bench, 1, rows_of(bench, FIRST[:3]))
    sink = published(bench, 2, rows_of(bench, FIRST))
    name = TableName("public", "copied")
    of = DeclaredLog(table=name, topic=f"views.{view}", shape=ValueShape.FLAT_AVRO, key=("id",))
    read = DeclaredState(spark, tmp_path)
    found = read(SimpleNamespace(kafka=kafka, registry=registry), of)
    assert found == {each[0]: each[1:] for each in FIRST}
    assert read.report.mismatches == 0
    sink.drop()


def test_records_with_keys_and_without_do_not_mix(topic):
    published(topic, 1, rows_of(topic, FIRST))
    other = topic.sink(options={"records": "unkeyed"})
    assert "keyed" in other.holds_back(1)
    with pytest.raises(SinkError, match="has keyed records, not unkeyed ones"):
        other.open(2, rows_of(topic, FIRST).schema)
    other.drop()
    topic.options = {"records": "unkeyed"}
    published(topic, 1, rows_of(topic, FIRST))
    with pytest.raises(SinkError, match="has unkeyed records, not keyed ones"):
        topic.sink(options={}).open(2, rows_of(topic, FIRST).schema)


def test_a_record_that_came_twice_or_with_a_key_is_found_by_the_proof(topic, endpoints):
    """The twin: what a writer without a transaction would leave."""
    topic.options = {"records": "unkeyed"}
    rows = topic.spark.sql("select id, 'a' s from range(3)")
    sink = published(topic, 1, rows)
    of = f"views.{topic.view}"
    assert read_back(topic, 1, rows, ("id",)) == ([(0, "a"), (1, "a"), (2, "a")], [])
    _, value = records(sink, of)[0]
    producer = Producer({"bootstrap.servers": endpoints.brokers, "log_level": 0})
    producer.produce(of, value)
    producer.produce(of, value, b"key")
    producer.flush(30)
    found, faults = read_back(topic, 1, rows, ("id",))
    assert len(found) == 5
    assert len(faults) == 1


def test_what_retention_may_take_is_proved_where_all_rows_stay(topic):
    topic.options = {"records": "unkeyed", "retention_ms": 3_600_000}
    sink = published(topic, 1, topic.spark.range(3))
    assert sink.address(1).location["topic"] == f"views.{topic.view}.000001"
    assert len(records(sink, f"views.{topic.view}")) == 3


def test_a_topic_of_somebody_else_is_not_touched(topic, endpoints):
    of = f"views.{topic.view}"
    admin = AdminClient({"bootstrap.servers": endpoints.brokers, "log_level": 0})
    admin.create_topics([NewTopic(of, 1, 1)])[of].result()
    schema = topic.spark.range(1).schema
    for act in (lambda: topic.sink().open(1, schema), topic.sink().drop):
        with pytest.raises(SinkError, match="was not created for view"):
            act()
    assert topic.sink().generations() == []
    assert of in admin.list_topics(timeout=30).topics
    admin.delete_topics([of])[of].result()


def test_columns_come_and_go_and_a_type_that_the_registry_forbids_is_refused(topic):
    spark = topic.spark
    sink = published(topic, 1, spark.sql("select 1 id, 'a' name"))
    published(topic, 2, spark.sql("select 1 id, 2.5 extra"))
    assert topic.served(topic.view) == [{"id": 1, "extra": Decimal("2.5")}]
    sink.publish(1)
    assert topic.served(topic.view) == [{"id": 1, "name": "a"}]
    with pytest.raises(SinkError, match="refuses subject"):
        topic.sink().open(3, spark.sql("select 1 id, array(1) extra").schema)
    assert sink.generations() == [1, 2]


def test_without_a_registry_avro_is_refused_and_json_is_written(topic):
    topic.settings = replace(topic.settings, registry=None)
    rows = topic.spark.range(3)
    with pytest.raises(SinkError, match="need a schema registry"):
        topic.sink().open(1, rows.schema)
    assert topic.sink().generations() == []
    topic.options = {"value": "json"}
    sink = published(topic, 1, rows)
    assert "registry" not in sink.address(1).location
    assert read_back(topic, 1, rows, ("id",)) == ([(0,), (1,), (2,)], [])


def test_brokers_that_are_away_are_told_as_such():
    server = TopicServer(KafkaConnection(brokers="127.0.0.1:1"), None, 0.5)
    with (
        pytest.raises(UnavailableSinkError),
        server.transaction(f"views.{uuid.uuid4().hex}") as into,
    ):
        into.put("views.none", b"", b"")
