"""A thread that asks for it keeps its connection between requests; nobody else has it."""

import pickle
import threading

import pytest

from views.sinks import kept
from views.sinks.kept import KeptConnection, kept_of


class Line:
    """A connection."""

    def __init__(self):
        self.is_closed = False

    def close(self):
        assert not self.is_closed
        self.is_closed = True


def used(connection: KeptConnection) -> Line:
    with connection.lent(Line) as line:
        assert not line.is_closed
    return line


def test_requests_of_a_thread_that_keeps_it_share_a_connection():
    connection = KeptConnection()
    with connection.keep():
        line = used(connection)
        assert used(connection) is line
        with connection.lent(Line) as outer, connection.lent(Line) as inner:
            assert outer is line
            assert inner is not line
        assert [line.is_closed, inner.is_closed] == [True, False], "one is kept, the last"
    assert inner.is_closed


def test_another_thread_opens_its_own():
    connection, others = KeptConnection(), []
    with connection.keep():
        line = used(connection)
        thread = threading.Thread(target=lambda: others.append(used(connection)))
        thread.start()
        thread.join()
        assert others[0] is not line
        assert others[0].is_closed
        assert used(connection) is line


def test_without_keeping_each_request_opens_one():
    connection = KeptConnection()
    lines = [used(connection), used(connection)]
    assert lines[0] is not lines[1]
    assert all(line.is_closed for line in lines)


def fail(connection: KeptConnection, lines: list[Line]) -> None:
    with connection.lent(Line) as line:
        lines.append(line)
        raise ValueError


def test_a_connection_that_failed_is_not_kept_and_is_told_of_once_if_it_was():
    connection, lines = KeptConnection(), list[Line]()
    with connection.keep():
        for is_kept in (False, True):
            if is_kept:
                used(connection)
            with pytest.raises(ValueError, match=r"^$"):
                fail(connection, lines)
            assert lines[-1].is_closed
            assert connection.failed_when_kept() is is_kept
            assert not connection.failed_when_kept()
        assert used(connection) not in lines


def test_it_is_opened_anew_at_times(monkeypatch):
    connection = KeptConnection()
    with connection.keep():
        line = used(connection)
        monkeypatch.setattr(kept, "_LONGEST_S", -1.0)
        assert used(connection) is not line
        assert line.is_closed


def test_it_stays_where_it_is():
    connection = KeptConnection()
    with connection.keep():
        line = used(connection)
        sent = pickle.loads(pickle.dumps(connection))  # noqa: S301 - our own bytes
        assert used(sent) is not line
        assert used(connection) is line


def test_a_sink_without_such_connections_keeps_none():
    with kept_of(object()).keep():
        assert not kept_of(object()).failed_when_kept()
