"""`changelog.connect.rules`: configurations, records, and what all workers know."""

import json
import re
from pathlib import Path

import pytest

from changelog.connect.rules.keys import MASK
from changelog.connect.rules.kinds import class_of, masked, problems, unmasked, validation
from changelog.connect.rules.records.events import DeleteRow, Events, InsertRow, MoveRow, UpsertRow
from changelog.connect.rules.records.reading import (
    BadRecordError,
    WrittenNumber,
    json_of,
    parse_json,
)
from changelog.connect.rules.settings import PkMode, WriteMode, parse_settings
from changelog.connect.rules.sink_keys import SINK_KEYS
from changelog.contract.base.errors import ConfigurationError

LEAST = {"name": "s", "topics": "a, b", "connection.url": "jdbc:postgresql://db:5432/app"}
UPSERT = {**LEAST, "writeMode": "upsert", "pk.fields": "id"}


def test_the_least_configuration_appends():
    found = parse_settings(LEAST)
    assert (found.topics, found.url) == (("a", "b"), "postgresql://db:5432/app")
    assert (found.mode, found.pk_mode, found.deletes) == (WriteMode.INSERT, PkMode.NONE, None)
    assert (found.error_limit, found.batch_size, found.table) == (0, 3000, "${topic}")


@pytest.mark.parametrize(
    ("synonym", "name", "value"),
    [
        ("insert.mode", "writeMode", "upsert"),
        ("primary.key.fields", "pk.fields", "id"),
        ("table.name.format", "target.tablename", "x"),
        ("collection.name.format", "target.tablename", "x"),
        ("connection.username", "connection.user", "u"),
        ("connector.user", "connection.user", "u"),
        ("connector.password", "connection.password", "p"),
        ("connector.url", "connection.url", "jdbc:postgresql://db/x"),
    ],
)
def test_names_of_other_sinks_mean_the_same(synonym, name, value):
    base = {key: text for key, text in UPSERT.items() if key != name}
    assert parse_settings({**base, synonym: value}) == parse_settings({**base, name: value})
    assert synonym in problems({**base, name: value, synonym: value + "2"})


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"topics": "a b"}, "topics"),
        ({"tasks.max": "0"}, "tasks.max"),
        ({"tasks.max": "1.5"}, "tasks.max"),
        ({"batch.size": 10}, "batch.size"),
        ({"batch.size": "50001"}, "batch.size"),
        ({"writeMode": "merge"}, "writeMode"),
        ({"writeMode": "update"}, "pk.fields"),
        ({"writeMode": "upsert"}, "pk.fields"),
        ({"pk.fields": "id", "pk.mode": "none"}, "pk.fields"),
        ({"pk.mode": "record_value"}, "pk.fields"),
        ({"pk.fields": "id", "col.names": "a"}, "col.names"),
        ({"col.names": "a,b", "col.types": "numeric(10,2)"}, "col.types"),
        ({"col.names": "a", "col.types": "int); DROP TABLE x; --"}, "col.types"),
        ({"auto.create": "true", "value.converter": "x.JsonConverter"}, "auto.create"),
        ({"auto.evolve": "true", "schema.evolution": "none"}, "auto.evolve"),
        ({"schema.registry.url": "ftp://x"}, "schema.registry.url"),
        ({"delete.enabled": "true"}, "delete.enabled"),
        ({"delete.enabled": "yes"}, "delete.enabled"),
        ({"errorLimit": "3"}, "errorLimit"),
        ({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "a"}, "topics"),
        ({"connection.url": "mysql://db/app"}, "connection.url"),
        ({"connection.password": "${file:/run/secrets:password}"}, "connection.password"),
        ({"topics": "server1.db.t"}, "target.tablename"),
        ({"consumer.override.group.id": "payments"}, "consumer.override.group.id"),
        ({"topics": "a.t, b.t", "target.tablename": "${table}"}, "target.tablename"),
        ({"value.converter": "io.confluent.connect.protobuf.ProtobufConverter"}, "value.converter"),
        ({"transforms": "unwrap"}, "transforms"),
        ({"connector.class": "FileStreamSink"}, "connector.class"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_key(wrong, key):
    assert key in problems({**LEAST, **wrong})
    with pytest.raises(ConfigurationError):
        parse_settings({**LEAST, **wrong})


SAID = {
    "dialect.name": "PostgreSqlDatabaseDialect",
    "quote.sql.identifiers": "always",
    "db.timezone": "UTC",
    "truncate.enabled": "false",
    "errors.log.enable": "true",
    "errors.log.include.messages": "false",
    "errors.deadletterqueue.context.headers.enable": "true",
    "max.retries": "10",
    "retry.backoff.ms": "3000",
    "connection.attempts": "3",
    "connection.backoff.ms": "10000",
    "table.types": "TABLE",
    "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "value.converter.decimal.format": "NUMERIC",
}


def test_what_a_jdbc_sink_says_that_is_so_here_is_taken_and_changes_nothing():
    assert parse_settings({**LEAST, **SAID}) == parse_settings(LEAST)


@pytest.mark.parametrize(
    ("key", "value"), [("dialect.name", "MySqlDatabaseDialect"), ("truncate.enabled", "true")]
)
def test_what_is_otherwise_here_is_refused(key, value):
    assert key in problems({**LEAST, key: value})


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("transforms.route.type", "target.tablename"),
        ("topics.regex", "list each topic in topics"),
        ("connector.host", "connection.url"),
        ("target.schema", "the schema into target.tablename"),
        ("fields.include.list", "col.names"),
        ("consumer.override.max.poll.records", "auto.offset.reset"),
    ],
)
def test_a_key_of_another_sink_is_refused_with_what_to_write(key, instead):
    (said,) = problems({**LEAST, key: "x"})[key]
    assert said.startswith(f"{key} is not a key of this sink: ")
    assert instead in said


ADB = {
    "name": "s",
    "connector.class": "Adb4PgSinkConnector",
    "topics": "server1.db.t",
    "connector.url": "jdbc:postgresql://db:5432/app",
    "connector.user": "u",
    "connector.password": "hunter2",
}


@pytest.mark.parametrize("package", ["", "com.example.kafka.connect."])
def test_the_sink_of_analyticdb_takes_the_last_part_of_a_topic_and_each_change(package):
    config = {**ADB, "connector.class": f"{package}Adb4PgSinkConnector"}
    assert problems(config) == {}
    found = parse_settings(config)
    assert (found.mode, found.pk_mode, found.deletes) == (WriteMode.INSERT, PkMode.RECORD_KEY, True)
    assert (found.table_of("server1.db.t"), found.password) == ("t", "hunter2")
    assert parse_settings({**config, "pk.fields": "id"}).pk_mode is PkMode.RECORD_VALUE
    assert "target.tablename" in problems({**config, "topics": "a.x.t, a.y.t"})
    # The same masks and rules as of connection.url: no password goes to another server.
    assert masked(config)["connector.password"] == MASK
    assert masked({**config, "connector.url": "postgresql://u:pw@h/d"})["connector.url"] == MASK
    for moved in ({"connector.url": "postgresql://elsewhere/x"}, {"connector.user": "other"}):
        with pytest.raises(ConfigurationError, match="changes"):
            unmasked({**masked(config), **moved}, config)
    for wrong in ("postgresql://db/app?sslkey=/etc/key", "postgresql:///app"):
        assert "connection.url" in problems({**config, "connector.url": wrong})


def test_the_page_names_each_key_of_a_sink_and_no_other():
    page = (Path(__file__).parents[4] / "docs" / "connect.md").read_text("utf-8")
    part = page.split("## Keys of a sink\n")[1].split("\n## ")[0]
    known = {name for key in SINK_KEYS for name in (key.name, *key.also)}
    own = {name for name in known if ".converter." not in name} - {"name"}
    assert [each for each in own if not re.search(f"`{re.escape(each)}[`=]", part)] == []
    cells = [row.split("|")[1:3] for row in part.splitlines() if row.startswith("| `")]
    said = {each.partition("=")[0] for each in re.findall(r"`([^`]+)`", str(cells))}
    assert {each for each in said if not each.endswith("…")} <= known


def test_validation_counts_errors_and_shows_no_secret():
    said = validation("PostgresSink", {**LEAST, "connection.password": "hunter2", "x": "y"})
    assert said["error_count"] == 1
    assert "hunter2" not in str(said)
    assert {"definition", "value"} == set(said["configs"][0])
    assert next(each for each in said["configs"] if each["value"]["errors"])["value"]["name"] == "x"
    assert validation("PostgresSink", {})["error_count"] == 3


def test_secrets_are_masked_and_a_mask_means_the_kept_one():
    kept = {**LEAST, "connection.password": "hunter2"}
    assert masked(kept)["connection.password"] == MASK
    assert masked({"connection.url": "postgresql://u:pw@db/app"})["connection.url"] == MASK
    assert unmasked(masked(kept), kept) == kept
    with pytest.raises(ConfigurationError, match="no value is stored"):
        unmasked(masked(kept), LEAST)
    # Else a client could have the password sent to a server of its own.
    with pytest.raises(ConfigurationError, match=r"connection\.url changes"):
        unmasked({**masked(kept), "connection.url": "postgresql://elsewhere/x"}, kept)
    assert "hunter2" not in repr(parse_settings(kept))


def test_plugins_are_known_by_class_and_short_name():
    assert class_of("PostgresSink") == class_of("changelog.PostgresSink")
    assert class_of("io.debezium.connector.jdbc.JdbcSinkConnector")
    assert class_of("JdbcSinkConnector") == class_of("JdbcSink")
    assert problems({**LEAST, "connector.class": "JdbcSinkConnector"}) == {}
    assert class_of("com.example.Adb4PgSinkConnector") == "Adb4PgSinkConnector"
    assert class_of("Mirror") is None


def asked(value, key=None, **more):
    config = {**UPSERT, **{name.replace("_", "."): text for name, text in more.items()}}
    return Events(parse_settings(config)).operations(key, value)


MICRO, DECIMAL = "io.debezium.time.MicroTimestamp", "org.apache.kafka.connect.data.Decimal"


def _described(kind, name, value, **parameters):
    """Return an envelope as the JSON converter writes it with its schema."""
    field = {"type": kind, "optional": True, "name": name, "field": "a", "parameters": parameters}
    row = {"type": "struct", "fields": [{"type": "int32", "field": "id"}, field]}
    parts = [{**row, "field": "before"}, {**row, "field": "after"}]
    schema = {"type": "struct", "fields": [*parts, {"type": "string", "field": "op"}]}
    event = {"before": None, "after": {"id": 1, "a": value}, "op": "c"}
    return json.dumps({"schema": schema, "payload": event}).encode()


@pytest.mark.parametrize(
    ("kind", "name", "value", "parameters", "expected"),
    [
        ("int32", "io.debezium.time.Date", 19782, {}, "2024-02-29"),
        ("int64", "io.debezium.time.MicroTime", 36_000_000_001, {}, "10:00:00.000001"),
        ("int64", "io.debezium.time.Timestamp", -1, {}, "1969-12-31T23:59:59.999"),
        ("int64", MICRO, 1_709_208_000_000_001, {}, "2024-02-29T12:00:00.000001"),
        ("int64", "io.debezium.time.NanoTimestamp", 10**18, {}, "2001-09-09T01:46:40"),
        ("int64", "org.apache.kafka.connect.data.Timestamp", 0, {}, "1970-01-01T00:00:00+00:00"),
        ("bytes", DECIMAL, "ANc=", {"scale": "2"}, "2.15"),
        ("bytes", DECIMAL, "1234", {"scale": "0"}, "-2658824"),  # a base64 that looks as a number
        ("bytes", DECIMAL, 2.15, {"scale": "2"}, WrittenNumber("2.15")),  # decimal.format NUMERIC
        ("bytes", "io.debezium.data.Bits", "BQ==", {"length": "4"}, "0101"),
        ("int64", MICRO, None, {}, None),
    ],
)
def test_a_value_means_what_the_schema_beside_it_says(kind, name, value, parameters, expected):
    (found,) = asked(_described(kind, name, value, **parameters))
    assert found == UpsertRow({"id": 1, "a": expected})


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("int64", MICRO, "x"), ("bytes", DECIMAL, "ANc="), ("bytes", "io.debezium.data.Bits", "?")],
)
def test_a_value_that_does_not_fit_the_schema_beside_it_is_bad(kind, name, value):
    with pytest.raises(BadRecordError, match="does not fit its schema"):
        asked(_described(kind, name, value))


def test_a_tombstone_deletes_by_the_records_key():
    assert asked(None, b'{"id": 7}') == [DeleteRow({"id": 7})]
    assert asked(None, b"7") == [DeleteRow({"id": 7})]
    assert asked(None, b"x-7") == [DeleteRow({"id": "x-7"})]
    assert asked(None, b"7", delete_enabled="false") == []
    assert asked(b'{"a": 1}', b"7", pk_mode="record_key") == [UpsertRow({"a": 1, "id": 7})]


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"[1]",
        b'"text"',
        b"\xff",
        b'{"id": NaN}',
        b'{"id": null}',
        b'{"a": 1}',
        b'{"id": 1, "id": 2}',
        b'{"op": "t", "before": null, "after": null}',
        b'{"op": "u", "before": null, "after": null}',
        b'{"op": "d", "before": null, "after": null}',
        b"[" * 100_000,
        None,
    ],
)
def test_a_record_without_a_row_is_bad(value):
    with pytest.raises(BadRecordError):
        asked(value)


def test_appending_refuses_what_would_change_rows():
    events = Events(parse_settings(LEAST))
    assert events.operations(None, b'{"a": 1}') == [InsertRow({"a": 1})]
    for value in (b'{"op": "u", "before": null, "after": {"a": 1}}', None):
        with pytest.raises(BadRecordError, match=r"needs pk\.fields or pk\.mode record_key"):
            events.operations(None, value)


def test_appending_with_a_key_changes_and_deletes_by_it():
    def asked(value, key=None):
        return Events(parse_settings(ADB)).operations(key, value)

    key = b'{"schema": {}, "payload": {"id": 1}}'
    for op in "cr":
        said = b'{"before": null, "after": {"id": 1, "a": 2}, "op": "%s"}' % op.encode()
        assert asked(said, key) == [InsertRow({"id": 1, "a": 2})]
    said = b'{"before": {"id": 1}, "after": {"id": 1, "a": 3}, "op": "u"}'
    assert asked(said, key) == [UpsertRow({"id": 1, "a": 3})]
    assert asked(b'{"before": {"id": 1, "a": 3}, "after": null, "op": "d"}', key) == [
        DeleteRow({"id": 1})
    ]
    assert asked(None, key) == [DeleteRow({"id": 1})]
    with pytest.raises(BadRecordError, match=r"set pk\.fields to columns"):
        asked(b'{"id": 1}')


@pytest.mark.parametrize("keys", [{}, {"pk.fields": "id", "pk.mode": "record_key"}])
@pytest.mark.parametrize("of_record", [b'{"id": 1}', b'{"id": 9}'])
def test_a_key_that_moves_is_told_by_before_and_after_whatever_the_record_s_key(keys, of_record):
    events = Events(parse_settings({**ADB, **keys}))
    moved = b'{"before": {"id": 1}, "after": {"id": 9, "a": 3}, "op": "u"}'
    (move,) = events.operations(of_record, moved)
    assert isinstance(move, MoveRow)
    assert json_of(move.key) == b'{"id":1}'
    assert json_of(move.row) == b'{"id":9,"a":3}'
    same = b'{"before": {"id": 1}, "after": {"id": 1, "a": 3}, "op": "u"}'
    assert events.operations(b'{"id": 1}', same) == [UpsertRow({"id": 1, "a": 3})]
    untold = b'{"before": null, "after": {"id": 1, "a": 3}, "op": "u"}'
    assert events.operations(b'{"id": 1}', untold) == [UpsertRow({"id": 1, "a": 3})]


def test_digits_of_numbers_are_kept():
    raw = b'{"a":12345678901234567890.10,"b":123456789012345678901234,"c":1E+2,"d":[1.50,-0.0]}'
    assert json_of(parse_json(raw, "value")) == raw
    assert isinstance(parse_json(b"1.0", "value"), WrittenNumber)
    with pytest.raises(BadRecordError):
        json_of(parse_json(b'"\\ud800"', "value"))
