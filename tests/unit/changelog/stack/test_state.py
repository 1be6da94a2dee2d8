import json
from types import SimpleNamespace

import pytest

from changelog.contract.base.errors import ConfigurationError, StackError
from changelog.stack.base.state import FILE_NAME, Endpoints, StackState, read_state, write_state
from changelog.stack.servers.postgres import PostgresServer
from changelog.stack.stack import Stack


def test_a_state_survives_its_file(tmp_path):
    state = StackState(("postgres", "kafka"), {"postgres": 15_001, "kafka": 15_002})
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state


def test_a_directory_without_a_stack_has_an_empty_state(tmp_path):
    assert read_state(tmp_path) == StackState()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2}', '{"format": 1, "ports": 5}'])
def test_a_state_file_of_another_making_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(StackError, match=FILE_NAME):
        read_state(tmp_path)


def test_endpoints_have_the_documented_json_keys():
    endpoints = Endpoints(postgres="a", brokers="b", schema_registry="c")
    assert json.loads(endpoints.to_json()) == {
        "postgres": "a",
        "brokers": "b",
        "schema_registry": "c",
        "search": None,
        "cache": None,
    }


def test_an_unknown_part_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(ConfigurationError, match="'serch'"):
        Stack(tmp_path / "stack", with_=["serch"])
    with pytest.raises(ConfigurationError, match="'web'"):
        Stack(tmp_path / "stack", ports={"web": 80})


def test_a_stack_that_was_never_up_has_no_parts_no_endpoints_and_nothing_to_stop(tmp_path):
    stack = Stack(tmp_path / "stack")
    assert stack.status() == []
    assert stack.down() == []
    assert not (tmp_path / "stack").exists()
    with pytest.raises(StackError, match="does not run"):
        stack.endpoints()
    with pytest.raises(ConfigurationError, match="never up"):
        stack.server("kafka")


def test_a_full_disk_is_named_before_a_server_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1))
    server = PostgresServer(tmp_path / "pg", 15_001)
    with pytest.raises(StackError, match="no space left on the disk"):
        server.start()
    assert not server.running
