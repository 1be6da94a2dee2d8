"""Logs of other programs, written by hand as they would write them, through replay and verifier."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console

import replay
from changelog.contract.base.errors import ConfigurationError, CorruptRecordError, VerdictError
from changelog.contract.forms.declared import DeclaredLog, Order, ValueShape, declared_columns
from changelog.contract.rows.codec import frame
from changelog.contract.rows.relation import TableName
from replay.base.record_place import TopicRange
from replay.broker.topics import inspect
from replay.declared import declared as declared_module
from replay.declared.declared import make_declared_cut, open_declared
from replay.pipeline.replay import Replay
from replay.survey import survey
from tests.support.beginnings import remove_before
from tests.support.captured_project import (
    CapturedProject,
    captured_database,
    rebuild_view,
    write_settings,
)
from tests.support.declared_log import COMPACT, KEEP, Log
from tests.support.declared_state import DeclaredState
from tests.support.matrix import first
from tests.support.rounds import quiet, rounds
from tests.support.wait import wait_until
from views.base.config import RowsSource
from views.base.progress import Stages
from views.generations.lock import Moving
from views.generations.place import LockPlace
from views.project.catalog import catalog_of
from views.rebuild.rebuild import RebuildRun

pytestmark = [pytest.mark.services, pytest.mark.spark]

THINGS = TableName("public", "things")
COLUMNS = {"id": "int", "name": "string", "price": "decimal(10,2)"}


@pytest.fixture
def make(kafka, registry, prefix):
    def made(**more):
        return Log(kafka, registry, f"{prefix}.things", **more)

    return made


def declared(log, shape, **more) -> DeclaredLog:
    columns = () if shape.is_avro else declared_columns(COLUMNS, "logs.things")
    return DeclaredLog(
        table=THINGS, topic=log.topic, shape=shape, key=("id",), columns=columns, **more
    )


@pytest.fixture
def read(spark, tmp_path):
    return DeclaredState(spark, tmp_path)


def texts(rows):
    return {key: tuple(None if v is None else str(v) for v in row) for key, row in rows.items()}


def row(number, name, price="1.50"):
    return {"id": number, "name": name, "price": price}


def envelope(op, before, after, **more):
    return {"before": before, "after": after, "op": op, **more}


@pytest.mark.matrix
def test_the_cud_envelope_where_an_update_changes_a_key(make, read):
    log = make(partitions=1)
    log.put(None, envelope("c", None, row(1, "a", 1.10)))
    log.put(None, envelope("c", None, row(2, "b")))
    log.put(None, envelope("u", row(1, "a"), row(3, "moved")))
    log.put(None, envelope("c", None, row(1, "again")))
    log.put(None, envelope("d", row(2, "b"), None))
    assert texts(read(log, declared(log, ValueShape.CUD_JSON))) == {
        3: ("moved", "1.50"),
        1: ("again", "1.50"),
    }
    assert read.report.mismatches == 0
    assert "no frontier" in read.verdict


@pytest.mark.matrix
@pytest.mark.parametrize("wrapped", first(1, [True, False]))
def test_debezium_s_json_by_the_source_s_position_also_in_the_midst_of_a_resend(
    make, read, wrapped
):
    log = make()

    def put(key, lsn, event):
        value = {**event, "source": {"lsn": lsn}}
        wrap = (lambda it: {"schema": {"type": "struct"}, "payload": it}) if wrapped else dict
        log.put(wrap({"id": key}), wrap(value))

    for _ in range(2):  # the second time is cut off before the last change of each key
        put(1, 10, envelope("r", None, row(1, "first")))
        put(2, 11, envelope("c", None, row(2, "gone")))
        put(2, 12, envelope("d", row(2, "gone"), None))
        log.put({"schema": {}, "payload": {"id": 2}} if wrapped else {"id": 2}, None)
        put(3, 13, envelope("c", None, row(3, "old")))
        if _ == 0:
            put(1, 20, envelope("u", None, row(1, "second")))
            put(2, 21, envelope("c", None, row(2, "back")))
            put(3, 22, envelope("d", row(3, "old"), None))
    by_lsn = declared(log, ValueShape.DEBEZIUM_JSON, order=Order.LSN)
    assert texts(read(log, by_lsn)) == {1: ("second", "1.50"), 2: ("back", "1.50")}
    assert read.report.mismatches == 0
    # By offset alone a resend shows older rows: what the order is for.
    assert texts(read(log, replace(by_lsn, order=Order.OFFSET))) == {
        1: ("first", "1.50"),
        3: ("old", "1.50"),
    }
    assert read.report.mismatches == 0


@pytest.mark.matrix
@pytest.mark.parametrize("delete", first(1, ["__deleted", ""]))
def test_flattened_rows_with_and_without_a_marker(make, read, delete):
    log = make(settings=COMPACT)
    mark = {delete: "false"} if delete else {}
    for number in range(1, 5):
        log.put({"id": number}, {**row(number, "a"), **mark})
    log.put({"id": 1}, {**row(1, "new", None), **mark})
    if delete:
        log.put({"id": 2}, {**row(2, "a"), delete: "true"})
    log.put({"id": 3}, None)
    wanted = {1: ("new", None), 4: ("a", "1.50"), **({} if delete else {2: ("a", "1.50")})}
    assert texts(read(log, declared(log, ValueShape.FLAT_JSON, delete=delete))) == wanted
    assert read.report.mismatches == 0


VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {
            "name": "day",
            "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}],
            "default": None,
        },
        {
            "name": "at",
            "type": ["null", {"type": "long", "connect.name": "io.debezium.time.Timestamp"}],
            "default": None,
        },
    ],
}
WIDER = {
    **VALUE,
    "fields": [
        *VALUE["fields"],
        {
            "name": "price",
            "type": [
                {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
                "null",
            ],
            "default": "\u0096",
        },
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


def of_envelope(value):
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "lsn", "type": ["null", "long"]}],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
        ],
    }


@pytest.mark.matrix
def test_debezium_s_avro_with_two_schemas_and_records_that_nobody_can_read(make, read):
    log = make()
    key_id = log.register("key", KEY)
    old, new = of_envelope(VALUE), of_envelope(WIDER)
    old_id, new_id = log.register("value", old), log.register("value", new)

    def put(number, schema_id, schema, op, before, after, lsn):
        value = {"before": before, "after": after, "source": {"lsn": lsn}, "op": op}
        log.put(log.avro(key_id, KEY, {"id": number}), log.avro(schema_id, schema, value))

    base = {"name": "x", "day": -1, "at": 1500}
    put(1, old_id, old, "c", None, {"id": 1, **base}, 1)
    put(2, new_id, new, "c", None, {"id": 2, **base, "price": b"\x7f"}, 2)
    put(3, new_id, new, "c", None, {"id": 3, **base, "price": None}, 3)
    put(
        3,
        new_id,
        new,
        "d",
        {"id": 3, "name": None, "day": None, "at": None, "price": None},
        None,
        4,
    )
    log.put(log.avro(key_id, KEY, {"id": 3}), None)
    of = declared(log, ValueShape.DEBEZIUM_AVRO, order=Order.LSN)
    day, at = "1969-12-31", "1970-01-01 00:00:01.500000"
    whole = {1: ("x", day, at, "-1.06"), 2: ("x", day, at, "1.27")}
    # The default of a column that came later is -1.06: bytes 0x96.
    assert texts(read(log, of)) == whole
    assert read.report.mismatches == 0

    key = log.avro(key_id, KEY, {"id": 2})
    log.put(key, frame(new_id) + b"\x00\x02\x04")  # cut off
    log.put(log.avro(key_id, KEY, {"id": 9}), frame(999_999))
    log.put(None, frame(new_id))
    assert texts(read(log, of, quarantine=True)) == {1: whole[1]}
    assert read.report.mismatches == 0
    assert len(read.quarantined) == read.report.certificate["records_left_out"] == 3
    with pytest.raises(CorruptRecordError, match=rf'topic "{log.topic}", partition \d, offset \d'):
        read(log, of)


@pytest.mark.matrix
def test_a_key_in_two_partitions_has_no_newest_record_by_offset(make, read, monkeypatch):
    log = make()
    log.put({"id": 1}, row(1, "a"), partition=0)
    log.put({"id": 1}, row(1, "b"), partition=1)
    of = declared(log, ValueShape.FLAT_JSON)
    with pytest.raises(CorruptRecordError, match="stands in partitions 0 and 1"):
        read(log, of)
    # The twin: a fold that takes either is found by the verifier.
    monkeypatch.setattr(declared_module, "_is_torn", lambda _: F.lit(False))
    with pytest.raises(CorruptRecordError, match="stands in two partitions"):
        read(log, of)


def test_what_the_log_cannot_give_is_said_before_anything_is_read(make):
    log = make(settings={**COMPACT, "min.compaction.lag.ms": "0"}, partitions=1)
    for _ in range(3):
        log.put({"id": 1}, row(1, "a"))
    flat, cud = declared(log, ValueShape.FLAT_JSON), declared(log, ValueShape.CUD_JSON)
    cut = make_declared_cut(log.kafka, [flat])
    assert "exact only if nothing is appended" in str(cut.verdict)
    assert make_declared_cut(log.kafka, [replace(cud, key_changes=False)]).verdict.allows_read
    with pytest.raises(VerdictError, match="key_changes = false"):
        make_declared_cut(log.kafka, [cud]).verdict.require()
    (topic,) = survey(log.kafka, [log.topic], None, declared=[cud])  # as `changelog topics` does
    assert not topic.verdict.allows_read
    assert "key_changes = false" in str(topic.verdict)
    with pytest.raises(VerdictError, match="does not exist"):
        make_declared_cut(log.kafka, [replace(flat, topic="nowhere")]).verdict.require()


@pytest.mark.matrix
def test_records_that_are_appended_to_a_topic_without_a_lag_refuse_the_result(
    make, spark, tmp_path
):
    log = make(settings={**COMPACT, "min.compaction.lag.ms": "0"}, partitions=1)
    log.put({"id": 1}, row(1, "a"))
    of = declared(log, ValueShape.FLAT_JSON)
    replay = open_declared(spark, log.kafka, log.registry, make_declared_cut(log.kafka, [of]), [of])
    replay.recheck()
    log.put({"id": 1}, row(1, "b"))
    with pytest.raises(VerdictError, match="records were appended while it was read"):
        replay.recheck()
    endless = spark.range(10**15).agg(F.sum(F.col("id") % 7))
    with (
        pytest.raises(VerdictError, match="records were appended while it was read"),
        replay.watched(look_s=0.1),
    ):
        endless.collect()
    log.admin.create_partitions([NewPartitions(log.topic, 3)])[log.topic].result()
    wait_until(
        lambda: inspect(log.kafka, [log.topic])[log.topic].partitions == 3, 30, "three partitions"
    )
    with pytest.raises(VerdictError, match="grew during the scan"):
        replay.recheck()


def project_of(log, folder, endpoints, prefix, **said):
    project = CapturedProject(folder / "project", "")
    write_settings(project.root, endpoints, "", prefix)
    declare(project, log, **said)
    return project


def declare(project, log, **said):
    settings = project.root / "changelog.toml"
    more = "\n".join(f'{name} = "{value}"' for name, value in said.items())
    settings.write_text(
        settings.read_text()
        + f"""
[logs.things]
topic = "{log.topic}"
key = ["id"]
columns = {{ id = "int", name = "string", price = "decimal(10,2)" }}
{more}
"""
    )


def test_a_view_of_a_declared_log_is_rebuilt_and_proved(
    make, spark, endpoints, prefix, tmp_path, capsys, monkeypatch
):
    log = make(partitions=1)
    log.put(None, envelope("c", None, row(1, "a", 2.5)))
    log.put(None, envelope("u", row(1, "a", 2.5), row(2, "b", 3.5)))
    project = project_of(log, tmp_path, endpoints, prefix, form="cud-json")
    project.view("priced.sql", "-- key: id\nSELECT id, price, upper(name) AS named FROM things")
    planned = rebuild_view(capsys, monkeypatch, project, "priced", "--plan")
    assert planned.code == 0, planned.err
    assert "no frontier cuts" in " ".join(planned.err.split())
    ran = rebuild_view(capsys, monkeypatch, project, "priced", "--json")
    assert ran.code == 0, ran.err
    assert "no frontier cuts" in " ".join(ran.err.split())
    (result,) = ran.results
    assert result["frontier"] is None
    assert (result["verified"], result["published"], result["rows"]) == (True, True, 1)
    assert [
        (each["id"], str(each["price"]), each["named"]) for each in project.delta("priced")
    ] == [(2, "3.50", "B")]


@pytest.mark.matrix
def test_a_log_is_a_table_in_python(make, spark, endpoints, prefix, tmp_path):
    log = make(partitions=2)
    log.put({"id": 1}, row(1, "a", "2.50"))
    log.put({"id": 2}, row(2, "b"))
    log.put({"id": 2}, None)
    project = project_of(log, tmp_path, endpoints, prefix, form="flat-json")
    things = replay.Log.open(project.root, spark=spark).table("things")
    assert "no frontier cuts" in things.verdict().text
    assert things.schema().names == ["id", "name", "price"]
    assert things.arrow().to_pylist() == [{"id": 1, "name": "a", "price": Decimal("2.50")}]
    assert things.duckdb(["name"]).fetchall() == [("a",)]
    assert things.pandas()["id"].tolist() == [1]
    log.put({"id": 3}, row(3, "c"))
    with things.reading() as frame:
        assert sorted(each.id for each in frame.collect()) == [1, 3]
    for refused in (
        lambda: things.row(1),
        lambda: things.history(1),
        lambda: things.explain(1),
        lambda: things.changes("0/1"),
        lambda: things.at("0/1"),
        lambda: things.arrow(engine="local"),
        things.frontier,
    ):
        with pytest.raises(ConfigurationError, match="is the log of another program"):
            refused()
    with pytest.raises(ConfigurationError, match="has no column nothing"):
        things.arrow(["nothing"])


@pytest.mark.matrix
def test_a_log_is_followed_by_its_ends(make, spark, endpoints, prefix, tmp_path):
    log = make(partitions=2)
    log.put({"id": 1}, row(1, "a"))
    project = project_of(log, tmp_path, endpoints, prefix, form="flat-json")
    project.view("named.sql", "-- key: id\nSELECT id, name FROM things")

    def rows():
        return [(each["id"], each["name"]) for each in project.delta("named")]

    with rounds(project.root, "named") as (made, specs, settings):
        assert made()
        assert rows() == [(1, "a")]
        assert made() is None  # nothing was appended
        log.put({"id": 1}, row(1, "b"))
        log.put({"id": 2}, row(2, "c"))
        assert made()
        assert rows() == [(1, "b"), (2, "c")]
        log.put({"id": 1}, None)
        assert made()
        assert rows() == [(2, "c")]
        assert (
            RebuildRun(replace(settings, source=RowsSource.START), quiet()).run(specs).error is None
        )
        log.put({"id": 3}, row(3, "d"))
        assert made()
        assert rows() == [(2, "c"), (3, "d")]


def overtaken(made, log, project, specs, settings):
    """Let a follower's round begin while a rebuild is on its way; give the rows when both are done.

    The round sees a record that came after the rebuild's beginning.
    """
    moving = Moving(LockPlace(project.root), [spec.name for spec in specs], lambda: False)
    follower = threading.Thread(target=made)

    def before(stage):
        if stage == "verify" and not follower.ident:
            log.put({"id": 9}, row(9, "new"))
            follower.start()
            wait_until(lambda: not follower.is_alive() or moving.is_wanted(), 240, "a round")

    stages = Stages(Console(quiet=True), before)
    outcome = RebuildRun(replace(settings, source=RowsSource.START), stages).run(specs)
    follower.join()
    assert outcome.error is None, outcome.error
    return [each["id"] for each in project.delta("named")]


@pytest.mark.parametrize("waits", [True, pytest.param(False, id="twin that does not wait")])
@pytest.mark.matrix
def test_a_rebuild_beside_its_follower_takes_no_reader_back(
    make, spark, endpoints, prefix, tmp_path, monkeypatch, waits
):
    log = make(partitions=2)
    log.put({"id": 1}, row(1, "a"))
    project = project_of(log, tmp_path, endpoints, prefix, form="flat-json")
    project.view("named.sql", "-- key: id\nSELECT id, name FROM things")
    if not waits:
        monkeypatch.setattr(Moving, "holding", lambda *_: nullcontext())
    with rounds(project.root, "named") as (made, specs, settings):
        assert made()
        found = overtaken(made, log, project, specs, settings)
    assert (9 in found) is waits


@pytest.mark.matrix
def test_a_log_that_has_lost_its_beginning_is_read_where_that_is_accepted(
    make, spark, endpoints, prefix, tmp_path, capsys, monkeypatch
):
    log = make(partitions=1)
    for number in range(1, 5):
        log.put({"id": number}, row(number, "a"))
    remove_before(log.admin, TopicPartition(log.topic, 0, 2))
    project = project_of(log, tmp_path, endpoints, prefix, form="flat-json")
    project.view("named.sql", "-- key: id\nSELECT id, name FROM things")
    refused = rebuild_view(capsys, monkeypatch, project, "named")
    assert refused.code == VerdictError.exit_code
    assert "partition 0 starts at offset 2" in " ".join(refused.err.split())
    settings = project.root / "changelog.toml"
    settings.write_text(settings.read_text() + 'beginning = "earliest"\n')
    ran = rebuild_view(capsys, monkeypatch, project, "named", "--json")
    assert ran.code == 0, ran.err
    assert "its first records were deleted (partition 0 at 2)" in " ".join(ran.err.split())
    (result,) = ran.results
    assert (result["verified"], result["rows"]) == (True, 2)
    assert [each["id"] for each in project.delta("named")] == [3, 4]


@pytest.mark.matrix
def test_a_log_is_read_from_a_time_on(
    make, spark, endpoints, prefix, tmp_path, capsys, monkeypatch
):
    log = make(partitions=2, settings={**KEEP, "message.timestamp.type": "LogAppendTime"})
    for number in range(1, 5):
        log.put({"id": number}, row(number, "old"))
    offset = log.last_ms()
    wait_until(lambda: time.time() * 1000 > offset + 5, 5, "a later millisecond")
    moment = datetime.fromtimestamp((offset + 2) / 1000, UTC).isoformat()
    log.put({"id": 2}, row(2, "new"))
    log.put({"id": 9}, row(9, "new"))
    project = project_of(log, tmp_path, endpoints, prefix, form="flat-json", beginning=moment)
    project.view("named.sql", "-- key: id\nSELECT id, name FROM things")
    ran = rebuild_view(capsys, monkeypatch, project, "named", "--json")
    assert ran.code == 0, ran.err
    assert f"it is read from {moment[:19]}" in " ".join(ran.err.split())
    assert ran.results[0]["verified"] is True
    assert [(each["id"], each["name"]) for each in project.delta("named")] == [
        (2, "new"),
        (9, "new"),
    ]
    # One of the two that reads more is found.
    monkeypatch.setattr(
        declared_module, "TopicRange", lambda **each: TopicRange(**each | {"starts": (0, 0)})
    )
    assert rebuild_view(capsys, monkeypatch, project, "named").code == 3


ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, amount numeric(10,2));
INSERT INTO orders VALUES (1, 1.10), (3, 3.30)
"""


@pytest.fixture
def captured(stack, tmp_path):
    with captured_database(stack, tmp_path / "project", ORDERS) as (project, _):
        yield project


def test_a_captured_table_is_joined_with_a_log(make, captured, capsys, monkeypatch):
    project, log = captured, make(partitions=2)
    for number in (1, 2, 3):
        log.put({"id": number}, row(number, f"n{number}"))
    log.put({"id": 3}, None)
    declare(project, log, form="flat-json")
    project.view(
        "joined.sql",
        "-- key: id\nSELECT o.id, o.amount, t.name FROM orders o LEFT JOIN things t ON t.id = o.id",
    )
    project.view("apart.sql", "-- key: id\nSELECT id, amount FROM orders")
    planned = rebuild_view(capsys, monkeypatch, project, "joined", "--plan", "--json")
    assert planned.code == 0, planned.err
    (plan,) = planned.results
    assert set(plan["verdicts"]) == {log.topic, *plan["topics"].values()}
    assert any("no frontier cuts" in each for each in plan["reasons"])

    def rows():
        return [(r["id"], str(r["amount"]), r["name"]) for r in project.delta("joined")]

    ran = rebuild_view(capsys, monkeypatch, project, "--all", "--json")
    assert ran.code == 0, ran.err
    found = {each["view"]: each for each in ran.results}
    assert {each["verified"] for each in found.values()} == {True}
    assert found["joined"]["frontier"]["lsn"]
    assert rows() == [(1, "1.10", "n1"), (3, "3.30", None)]
    certificate = found["joined"]["certificates"]["delta"]["certificate"]
    assert certificate["declared"] == [log.topic]
    assert sum(certificate["ends"][log.topic]) == 4

    # Either moves by itself, and the next rebuild has both.
    log.put({"id": 3}, row(3, "again"))
    project.execute("UPDATE orders SET amount = 9.90 WHERE id = 1")
    project.capture()
    again = rebuild_view(capsys, monkeypatch, project, "joined", "--refresh", "--json")
    assert again.code == 0, again.err
    assert rows() == [(1, "9.90", "n1"), (3, "3.30", "again")]

    older = rebuild_view(capsys, monkeypatch, project, "joined", "--as-of", "0/1")
    assert older.code == 2
    assert "leave out --as-of" in " ".join(older.err.split())


@pytest.mark.matrix
def test_a_rebuild_of_both_catches_up_with_who_follows_the_captured_table(make, captured):
    project, log = captured, make(partitions=1)
    log.put({"id": 1}, row(1, "a"))
    declare(project, log, form="flat-json")
    project.view("named.sql", "-- key: id\nSELECT id, name FROM things")
    project.view("apart.sql", "-- key: id\nSELECT id, amount FROM orders")
    with rounds(project.root, "apart") as (made, _, settings):
        assert made()

        def before(stage):
            if stage == "verify" and not project.query("SELECT 1 FROM orders WHERE id = 5"):
                project.execute("INSERT INTO orders VALUES (5, 5.50)")
                project.capture()
                assert made(), "nobody keeps it waiting"

        stages = Stages(Console(quiet=True), before)
        specs = catalog_of(settings.project).load_all(["apart", "named"])
        outcome = RebuildRun(replace(settings, source=RowsSource.START), stages).run(specs)
        assert outcome.error is None, outcome.error
        assert [each["id"] for each in project.delta("apart")] == [1, 3, 5]
    assert [each["id"] for each in project.delta("named")] == [1]


@pytest.mark.matrix
@pytest.mark.parametrize("defect", [False, True])
def test_the_joined_cut_sees_what_moves_in_the_log(make, captured, monkeypatch, capsys, defect):
    """The log is cut off at its start while it is read: the captured table's check sees nothing.

    The twin asks that check alone, and publishes.
    """
    project, log = captured, make(partitions=1)
    log.put({"id": 1}, row(1, "a"))
    log.put({"id": 2}, row(2, "b"))
    declare(project, log, form="flat-json")
    project.view(
        "joined.sql", "-- key: id\nSELECT o.id, t.name FROM orders o JOIN things t USING (id)"
    )
    real = RebuildRun._build

    def cut_off(self, *words):
        real(self, *words)
        remove_before(log.admin, TopicPartition(log.topic, 0, 1))

    monkeypatch.setattr(RebuildRun, "_build", cut_off)
    if defect:
        monkeypatch.setattr(
            Replay,
            "beside",
            lambda self, other, cut: replace(
                other,
                cut=cut,
                states={**self.states, **other.states},
                _exact_for_ms=self._exact_for_ms,
                _observations={**self._observations, **other._observations},
            ),
        )
    ran = rebuild_view(capsys, monkeypatch, project, "joined", "--verify", "none", "--json")
    if defect:
        assert ran.code == 0, ran.err
        return
    assert ran.code == 4, ran.err
    assert log.topic in ran.err
    assert {state for _, state in project.history("joined")} == {"failed"}


def test_a_log_with_the_name_of_a_captured_table_is_refused(make, captured, capsys, monkeypatch):
    project, log = captured, make()
    log.put({"id": 1}, row(1, "a"))
    project.execute("CREATE TABLE things (id int PRIMARY KEY)")
    project.execute("INSERT INTO things VALUES (1)")
    project.capture()
    declare(project, log, form="flat-json")
    project.view("joined.sql", "-- key: id\nSELECT id FROM orders JOIN things USING (id)")
    ran = rebuild_view(capsys, monkeypatch, project, "joined", "--plan")
    assert ran.code == 2
    assert "has the name of a captured table" in " ".join(ran.err.split())
