"""The rules of the schema registry, on a registry of a dictionary."""

import json
import socket
from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    RefusedAccessError,
    SchemaConflictError,
    UnavailableLogError,
)
from changelog.sink import registry as module
from changelog.sink.registry import SchemaRegistry, same_schema

FIELD = {"name": "id", "type": "int", "column": "id", "pg_type": "integer"}
KEY = {"type": "record", "name": "orders_key", "relation": ["public", "orders"], "key": ["id"]}


def key_schema(**field):
    return json.dumps({**KEY, "fields": [{**FIELD, **field}]})


class Subjects:
    """Answers as the client does; lays schemas out anew, as some registries do."""

    def __init__(self):
        self.versions = {}
        self.levels = {}
        self.next_id = 7
        self.failure = None

    def _check(self):
        if self.failure is not None:
            raise self.failure

    def get_compatibility(self, subject):
        if subject not in self.levels:
            raise SchemaRegistryError(404, 40408, f"subject '{subject}' has no level of its own")
        return self.levels[subject]

    def set_compatibility(self, subject, level):
        self.levels[subject] = level

    def get_subjects(self):
        return [*self.versions]

    def get_versions(self, subject):
        self._check()
        if subject not in self.versions:
            raise SchemaRegistryError(404, 40401, f"subject '{subject}' not found")
        return list(range(1, len(self.versions[subject]) + 1))

    def get_version(self, subject, version):
        number, text = self.versions[subject][version - 1]
        return SimpleNamespace(schema_id=number, schema=SimpleNamespace(schema_str=text))

    def register_schema(self, subject, schema):
        self._check()
        laid_out = json.dumps(json.loads(schema.schema_str), indent=2, sort_keys=True)
        self.versions.setdefault(subject, []).append((self.next_id, laid_out))
        self.next_id += 1
        return self.next_id - 1


@pytest.fixture
def subjects():
    return Subjects()


@pytest.fixture
def connect(subjects):
    def connect():
        registry = SchemaRegistry(RegistryConnection(url="http://127.0.0.1:1"))
        registry._client = subjects
        return registry

    return connect


def test_a_key_keeps_its_id_over_restarts(connect, subjects):
    first = connect().register_key("orders", key_schema())
    assert connect().register_key("orders", key_schema()) == first == 7
    assert len(subjects.versions["orders-key"]) == 1


def test_topics_whose_schemas_are_gone_are_told(connect, subjects):
    topics = {}
    for topic in ("kept", "unkeyed", "no_key", "no_value", "hidden"):
        topics[topic] = connect().register_key(topic, key_schema())
        connect().register_value(topic, key_schema())
    topics["unkeyed"] = None
    assert connect().lost(topics) == []
    for subject in ("unkeyed-key", "no_key-key", "no_value-value"):
        del subjects.versions[subject]
    # A registry may list what one may read alone.
    subjects.get_subjects = lambda: [each for each in subjects.versions if "hidden" not in each]
    assert connect().lost(topics) == ["no_key", "no_value"]


@pytest.mark.parametrize("change", [{"type": "long"}, {"pg_type": "int"}, {"column": "ID"}])
def test_another_key_is_refused_with_both(connect, subjects, change):
    connect().register_key("orders", key_schema())
    with pytest.raises(SchemaConflictError) as caught:
        connect().register_key("orders", key_schema(**change))
    assert '"orders-key"' in str(caught.value)
    assert "(id integer)" in str(caught.value)
    assert caught.value.hint
    assert len(subjects.versions["orders-key"]) == 1


def test_a_foreign_key_schema_is_refused_too(connect, subjects):
    subjects.versions["orders-key"] = [(3, '"long"')]
    with pytest.raises(SchemaConflictError, match='"long"'):
        connect().register_key("orders", key_schema())


def test_a_subject_without_a_setting_gets_what_the_reader_needs(connect, subjects):
    connect().register_key("orders", key_schema())
    connect().register_value("orders", key_schema())
    assert subjects.levels == {"orders-key": "FULL", "orders-value": "BACKWARD"}


def test_a_setting_of_somebody_else_is_left_alone(connect, subjects):
    subjects.levels = {"orders-value": "FULL_TRANSITIVE"}
    registry = connect()
    for kind in ("int", "long"):
        registry.register_value("orders", key_schema(type=kind))
    assert subjects.levels["orders-value"] == "FULL_TRANSITIVE"


class Strict(Subjects):
    """Refuses each new version, unless nothing is asked of it."""

    def register_schema(self, subject, schema):
        if self.levels.get(subject, "NONE") != "NONE":
            raise SchemaRegistryError(409, 409, "incompatible")
        return super().register_schema(subject, schema)


def test_a_fresh_copy_need_not_be_compatible_and_leaves_the_setting_as_it_was(connect):
    registry = connect()
    registry._client = strict = Strict()
    registry.register_value("orders", key_schema())
    with pytest.raises(SchemaConflictError):
        registry.register_value("orders", key_schema(type="long"))
    registry.register_value("orders", key_schema(type="long"), fresh=True)
    assert strict.levels == {"orders-value": "BACKWARD"}
    strict.levels["orders-value"] = "FULL"
    with pytest.raises(SchemaConflictError):
        registry.register_value("orders", key_schema(type="string"), fresh=True)


def test_a_value_may_have_many_versions(connect):
    registry = connect()
    one = registry.register_value("orders", key_schema())
    other = registry.register_value("orders", key_schema(type="long"))
    assert one != other
    assert registry.register_value("orders", key_schema()) == one


@pytest.mark.parametrize("status", [409, 422])
def test_a_refused_schema_is_a_conflict_with_the_reason(connect, subjects, status):
    subjects.failure = SchemaRegistryError(status, 409, "reader field b has no default")
    with pytest.raises(SchemaConflictError, match='"orders-value": reader field b'):
        connect().register_value("orders", key_schema())


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_fails_is_unavailable(connect, subjects, status):
    subjects.failure = SchemaRegistryError(status, 50001, "storage is away")
    with pytest.raises(UnavailableLogError):
        connect().register_value("orders", key_schema())


@pytest.mark.parametrize("status", [401, 403])
def test_a_registry_that_refuses_the_user_ends_a_start_with_2(connect, subjects, status):
    subjects.failure = SchemaRegistryError(status, status, "not you")
    with pytest.raises(RefusedAccessError, match="does not let us in") as caught:
        connect().register_value("orders", key_schema())
    assert caught.value.exit_code == 2


def test_no_registry_at_the_address_is_unavailable_and_named(monkeypatch):
    monkeypatch.setattr(module, "_RETRIES", 0)
    registry = SchemaRegistry(RegistryConnection(url="http://ann:canary@127.0.0.1:1"))
    with pytest.raises(UnavailableLogError, match=r"127\.0\.0\.1:1") as caught:
        registry.register_key("orders", key_schema())
    assert "canary" not in str(caught.value)


def test_a_registry_that_never_answers_does_not_hang(monkeypatch):
    monkeypatch.setattr(module, "_RETRIES", 0)
    monkeypatch.setattr("changelog.contract.base.connection._ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        connection = RegistryConnection(url=f"http://127.0.0.1:{port}")
        with closing(SchemaRegistry(connection)) as registry, pytest.raises(UnavailableLogError):
            registry.register_key("orders", key_schema())


@pytest.mark.parametrize(
    ("url", "options"), [("ftp://host", {}), ("http://host", {"no.such.option": "x"})]
)
def test_a_connection_that_cannot_be_used_is_a_configuration_error(url, options):
    with pytest.raises(ConfigurationError):
        SchemaRegistry(RegistryConnection(url=url, options=options))


def test_schemas_are_compared_as_json():
    assert same_schema('{"a": 1, "b": [2]}', '{"b":[2],"a":1}')
    assert not same_schema('{"a": [1, 2]}', '{"a": [2, 1]}')
    assert not same_schema('{"a": true}', '{"a": 1}')
    assert not same_schema('{"a": 1, "doc": "x"}', '{"a": 1}')
