"""Schemas of a topic, against the in-process registry."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import (
    CorruptRecordError,
    LogError,
    SchemaConflictError,
    UnavailableLogError,
)
from changelog.contract.log.scope import WHOLE
from changelog.contract.rows.evolution import obstacles
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import key_schema, read_schema, value_schema
from changelog.contract.rows.types import array_type, column_type
from replay.decode.schemas import SchemaReader
from tests.support.builders import BIGINT, INTEGER, TEXT, decimal_type, make_relation

CONNECTION = RegistryConnection(url="mock://tests")
KAFKA = KafkaConnection(brokers="127.0.0.1:9")
THINGS = TableName("public", "things")
WIDER = {"id": INTEGER, "name": TEXT, "added": TEXT}


@pytest.fixture
def registry(monkeypatch):
    client = SchemaRegistryClient.new_client(CONNECTION.client_config())
    monkeypatch.setattr(SchemaRegistryClient, "new_client", staticmethod(lambda _: client))
    return client


def register(client, topic, relation):
    key = client.register_schema(f"{topic}-key", Schema(key_schema(relation), "AVRO"))
    return key, client.register_schema(f"{topic}-value", Schema(value_schema(relation), "AVRO"))


def test_every_version_is_a_writer_and_the_newest_the_reader(registry):
    key, first = register(registry, "things", make_relation())
    _, second = register(registry, "things", make_relation(WIDER))
    schemas = SchemaReader(CONNECTION, KAFKA).of_table("things", THINGS, WHOLE)
    assert (schemas.key_id, schemas.reader_id) == (key, second)
    assert list(schemas.writers) == [first, second]
    assert [column.column for column in schemas.logged(second).columns] == list(WIDER)


def test_a_second_key_schema_is_refused(registry):
    register(registry, "things", make_relation())
    register(registry, "things", make_relation({"id": BIGINT, "name": TEXT}))
    with pytest.raises(SchemaConflictError, match="things-key"):
        SchemaReader(CONNECTION, KAFKA).of_table("things", THINGS, WHOLE)


def test_a_missing_subject_is_named(registry):
    with pytest.raises(LogError, match='no subject "things-key"'):
        SchemaReader(CONNECTION, KAFKA).of_table("things", THINGS, WHOLE)


def test_another_programs_keys_may_have_no_schema(registry):
    _, value = register(registry, "things", make_relation())
    registry.delete_subject("things-key")
    keys, values = SchemaReader(CONNECTION, KAFKA).versions_of("things")
    assert (keys, list(values)) == ({}, [value])


def test_a_registry_that_refuses_a_key_is_not_one_without_its_schema(registry, monkeypatch):
    register(registry, "things", make_relation())
    answer = registry.get_versions

    def refuse(subject):
        if subject == "things-key":
            raise SchemaRegistryError(403, 40301, "not allowed")
        return answer(subject)

    monkeypatch.setattr(registry, "get_versions", refuse)
    with pytest.raises(LogError, match="refuses: not allowed"):
        SchemaReader(CONNECTION, KAFKA).versions_of("things")


def test_columns_that_differ_in_case_alone_are_refused(registry):
    register(registry, "things", make_relation({"id": INTEGER, "Id": TEXT}))
    with pytest.raises(LogError, match='"id" and "Id"'):
        SchemaReader(CONNECTION, KAFKA).of_table("things", THINGS, WHOLE)


def test_a_foreign_schema_is_refused(registry):
    register(registry, "things", make_relation())
    foreign = '{"type": "record", "name": "x", "fields": [{"name": "id", "type": "int"}]}'
    registry.register_schema("things-value", Schema(foreign, "AVRO"))
    with pytest.raises(CorruptRecordError):
        SchemaReader(CONNECTION, KAFKA).of_table("things", THINGS, WHOLE)


def test_a_registry_that_is_down_is_named_without_its_password():
    reader = SchemaReader(RegistryConnection(url="http://ann:canary@127.0.0.1:9"), KAFKA)
    with pytest.raises(UnavailableLogError, match=r"127\.0\.0\.1:9") as failed:
        reader.of_table("things", THINGS, WHOLE)
    assert "canary" not in str(failed.value)


def schema_of(column):
    return read_schema(value_schema(make_relation({"id": INTEGER, "c": column})))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TEXT, TEXT),
        (INTEGER, BIGINT),
        (decimal_type(8, 2), decimal_type(10, 2)),
        (array_type(INTEGER, "integer[]"), array_type(BIGINT, "bigint[]")),
    ],
)
def test_a_type_that_holds_every_old_value_is_no_obstacle(old, new):
    assert obstacles(schema_of(old), schema_of(new)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BIGINT, INTEGER),
        (TEXT, column_type("bytea", "bytea")),
        (decimal_type(10, 2), decimal_type(10, 3)),
        (decimal_type(10, 2), decimal_type(8, 2)),
        (column_type("timestamp", "timestamp"), column_type("timestamptz", "timestamptz")),
        (array_type(TEXT, "text[]"), array_type(INTEGER, "integer[]")),
    ],
)
def test_a_type_that_would_change_old_values_is_an_obstacle(old, new):
    (found,) = obstacles(schema_of(old), schema_of(new))
    assert 'column "c"' in found


def test_a_column_of_one_side_alone_is_no_obstacle():
    old = read_schema(value_schema(make_relation()))
    new = read_schema(value_schema(make_relation(WIDER)))
    assert obstacles(old, new) == obstacles(new, old) == []
