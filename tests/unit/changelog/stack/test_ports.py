import socket

import pytest

from changelog.stack.base.ports import LOOPBACK, answers, is_free, owner_of, pick


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_port_with_a_listener_is_taken_and_answers(listener):
    assert not is_free(listener)
    assert answers(listener)
    assert "pid" in owner_of(listener)


def test_a_picked_port_is_free_and_below_those_of_outgoing_connections():
    port = pick()
    assert is_free(port)
    assert not answers(port)
    assert 1024 < port < 32_768


def test_picked_ports_differ_from_those_already_chosen():
    chosen: list[int] = []
    for _ in range(20):
        chosen.append(pick(chosen))
    assert len(set(chosen)) == 20
