import os
import socket
import sys
from subprocess import PIPE, Popen

import pytest

from changelog.contract.base.errors import StackError
from changelog.stack.base import ports
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


_PICKER = """
import sys
from changelog.stack.base.ports import pick
import changelog.stack.base.ports as ports
ports._FIRST, ports._LAST = map(int, sys.argv[1:])
print(pick(), flush=True)
sys.stdin.read()
"""


def test_two_processes_that_pick_before_either_binds_never_pick_the_same(monkeypatch):
    """What a process picked is free again when it has ended."""
    first = pick()
    monkeypatch.setattr(ports, "_FIRST", first)
    monkeypatch.setattr(ports, "_LAST", first)
    with pytest.raises(StackError, match="no free port"):
        pick()
    os.close(ports._spoken_for.pop())
    command = [sys.executable, "-c", _PICKER, str(first), str(first)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == first
        with pytest.raises(StackError, match="no free port"):
            pick()
        other.communicate("")
    assert pick() == first
