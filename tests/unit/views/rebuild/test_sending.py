"""Each sink of a followed view gets deltas by a worker of its own, and waits for no other."""

import threading
import time
import weakref
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from tests.support.wait import wait_until
from views.rebuild.one_view.delta import KEY, Delta
from views.rebuild.result.report import ViewResult, results_table
from views.rebuild.sending import sender as waits
from views.rebuild.sending import sender as workers
from views.rebuild.sending import sending as sends
from views.rebuild.sending.sending import Sending
from views.sinks.base import GONE, UnavailableSinkError
from views.sinks.kept import KeptConnection

SOON_S = 20.0


class FakeConnection:
    """A connection whose server may have become a standby."""

    is_stale = is_closed = False

    def close(self):
        self.is_closed = True


class FakeSink:
    """A sink that fails and waits as it is told."""

    def __init__(self):
        self.rows_held: dict[str, int] = {}
        self.applied: list[int] = []
        self.serves = 1
        self.error: Exception | None = None
        self.asked = 0
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.kept = KeptConnection()
        self.connections: list[FakeConnection] = []

    def connected(self):
        self.connections.append(FakeConnection())
        return self.connections[-1]

    def published(self):
        self.asked += 1
        if isinstance(self.error, UnavailableSinkError):
            raise self.error
        return self.serves

    def apply(self, generation, _schema, delta, position):
        assert generation == 1
        self.entered.set()
        assert self.open.wait(SOON_S)
        with self.kept.lent(self.connected) as connection:
            if self.error is not None or connection.is_stale:
                raise self.error or SinkError("cannot execute INSERT in a read-only transaction")
        for line in delta.to_pylist():
            self.rows_held.pop(line[KEY], None)
            if not line[GONE]:
                self.rows_held[line[KEY]] = line["value"]
        self.applied.append(int(position.commit_lsn))
        return len(self.rows_held)


def delta(**values):
    table = pa.table(
        {
            "value": pa.array(list(values.values()), pa.int64()),
            GONE: pa.array([value is None for value in values.values()], pa.bool_()),
            KEY: pa.array(list(values), pa.string()),
        }
    )
    return Delta(table=table, schema=StructType(), key=("id",))


def at(lsn):
    return Position(1, Lsn(lsn), 0)


@pytest.fixture
def sinks():
    return {"documents": FakeSink(), "entries": FakeSink()}


@pytest.fixture
def sending(sinks, monkeypatch):
    monkeypatch.setattr(workers, "PAUSES_S", (0.01,))
    monkeypatch.setattr(sends, "PATIENCE_S", 0.05)
    made = Sending()
    for view, sink in sinks.items():
        like_a_sink: Any = sink
        made.begin(view, 1, {"any": like_a_sink}, {"any": at(1)})
    yield made
    for sink in sinks.values():
        sink.open.set()
    assert made.end(SOON_S)


def send(sending, deltas, position, **how):
    for view in ("documents", "entries"):
        sending.send(view, deltas.get(view), position)
    sending.wait(**how)


def both(**values):
    return {"documents": delta(**values), "entries": delta(**values)}


def test_a_sink_that_is_held_delays_no_other_and_gets_all_of_it_in_one_step(sinks, sending):
    sinks["documents"].open.clear()
    send(sending, both(a=1), at(10))
    assert sinks["documents"].entered.wait(SOON_S), "it is held in its first step"
    send(sending, both(a=2, b=2), at(20))
    send(sending, both(b=None, c=3), at(30))
    wait_until(lambda: sinks["entries"].applied[-1:] == [30], SOON_S, "the other one is there")
    reach = sending.reach("documents")["any"]
    assert reach.is_behind
    assert reach.position == at(1)
    assert not sending.reach("entries")["any"].is_behind
    assert sending.reach("entries")["any"].position == at(30)
    assert sending.is_busy
    sinks["documents"].open.set()
    sending.drain(SOON_S)
    assert sinks["documents"].applied == [10, 30], "what waited came in one step"
    assert sinks["documents"].rows_held == sinks["entries"].rows_held == {"a": 2, "c": 3}
    assert not sending.is_busy
    assert sending.rows("documents") == 2


def test_rows_that_were_sent_leave_memory_before_the_next_ones_come(sinks, sending):
    made = both(a=1)
    tables = [weakref.ref(one.table) for one in made.values()]
    send(sending, made, at(10))
    made.clear()
    wait_until(lambda: all(table() is None for table in tables), SOON_S, "sent rows go")
    assert all(sink.applied == [10] for sink in sinks.values())


def test_a_round_behind_which_changes_wait_does_not_wait_for_sinks(sinks, sending, monkeypatch):
    monkeypatch.setattr(sends, "PATIENCE_S", SOON_S)
    sinks["documents"].open.clear()
    began = time.monotonic()
    send(sending, both(a=1), at(10), is_pressed=True)
    assert time.monotonic() - began < SOON_S / 2
    assert sending.reach("documents")["any"].is_behind


def test_the_sinks_that_take_longest_are_sent_to_first(sinks, sending):
    assert sending.longest_first(["documents", "entries"]) == ["documents", "entries"]
    sinks["entries"].open.clear()
    send(sending, both(a=1), at(10))
    wait_until(lambda: sinks["documents"].applied, SOON_S, "the other one")
    sinks["entries"].open.set()
    sending.drain(SOON_S)
    assert sending.longest_first(["documents", "entries"]) == ["entries", "documents"]


def test_what_a_kept_connection_refuses_is_tried_on_a_new_one(sinks, sending):
    send(sending, both(a=1), at(10))
    send(sending, both(a=2), at(20))
    (connection,) = sinks["documents"].connections
    connection.is_stale = True
    send(sending, both(a=3), at(30))
    wait_until(lambda: sinks["documents"].applied == [10, 20, 30], SOON_S, "by a new connection")
    assert connection.is_closed
    sinks["documents"].error = refused = SinkError("refused")
    send(sending, both(a=4), at(40))
    wait_until(lambda: sending.failed("documents") is refused, SOON_S, "the new one refuses it too")
    assert len(sinks["documents"].connections) == 3, "it is tried once"


def test_what_a_new_connection_refuses_is_not_tried_again(sinks, sending):
    sinks["documents"].error = refused = SinkError("refused")
    send(sending, both(a=1), at(10))
    wait_until(lambda: sending.failed("documents") is refused, SOON_S, "told")
    assert len(sinks["documents"].connections) == 1


def test_a_sink_that_gets_nothing_has_no_connection(sinks, sending, monkeypatch):
    monkeypatch.setattr(workers, "_IDLE_S", 0.01)
    for lsn in (10, 20):
        send(sending, both(a=lsn), at(lsn))
        wait_until(lambda: sinks["documents"].connections[-1].is_closed, SOON_S, "it is closed")
    assert len(sinks["documents"].connections) == 2


def test_a_view_without_changed_keys_is_where_the_round_is(sending):
    send(sending, {"entries": delta(a=1)}, at(10))
    assert sending.reach("documents")["any"].position == at(10)


def test_a_sink_that_is_away_is_asked_again_and_told_of(sinks, sending, caplog):
    sinks["documents"].error = UnavailableSinkError("the server does not answer")
    send(sending, both(a=1), at(10))
    wait_until(lambda: sinks["documents"].asked > 2, SOON_S, "asked again")
    send(sending, both(a=2), at(20))
    reach = sending.reach("documents")["any"]
    assert reach.is_behind
    assert reach.why == "the server does not answer"
    assert sending.failed("documents") is None, "no failure: it is waited for"
    assert caplog.text.count("is tried again, the others go on") == 1
    sinks["documents"].error = None
    wait_until(lambda: sinks["documents"].applied == [20], SOON_S, "it has both")
    assert sinks["documents"].rows_held == {"a": 2}
    assert sending.calls_for_spark is None


def test_pauses_between_attempts_grow(sinks, sending, monkeypatch):
    monkeypatch.setattr(workers, "PAUSES_S", (0.0, 0.0, 1000.0))
    sinks["documents"].error = UnavailableSinkError("away")
    send(sending, both(a=1), at(10))
    wait_until(lambda: sinks["documents"].asked == 3, SOON_S, "asked three times")
    sending.drain(0.1)
    assert sinks["documents"].asked == 3


def test_a_sink_that_refuses_a_row_is_its_views_failure(sinks, sending):
    sinks["documents"].error = refused = SinkError("refused")
    send(sending, both(a=1), at(10))
    wait_until(lambda: sending.failed("documents") is refused, SOON_S, "told")
    assert sending.failed("entries") is None
    assert sending.calls_for_spark is None
    assert not sending.is_busy, "nothing more is sent"


def test_where_readers_were_moved_nothing_is_sent(sinks, sending):
    sinks["documents"].serves = 2
    send(sending, both(a=1), at(10))
    wait_until(lambda: sending.calls_for_spark, SOON_S, "told")
    assert "somebody else has moved readers" in str(sending.calls_for_spark)
    assert sinks["documents"].applied == []


@pytest.mark.parametrize("bound", ["MOST_KEYS", "MOST_BYTES"])
def test_where_too_much_waits_the_sink_is_left_behind_until_it_answers(
    sinks, sending, monkeypatch, bound
):
    sinks["documents"].error = UnavailableSinkError("away")
    send(sending, both(a=1), at(10))
    monkeypatch.setattr(waits, bound, 1 if bound == "MOST_KEYS" else 30)
    send(sending, {"documents": delta(b=1, c=2)}, at(20))
    send(sending, both(d=1), at(30))
    reach = sending.reach("documents")["any"]
    assert reach.is_left
    assert reach.position == at(1)
    assert sending.calls_for_spark is None, "it does not answer yet"
    sinks["documents"].error = None
    wait_until(lambda: sending.calls_for_spark, SOON_S, "it answers again")
    assert "left behind, answers again" in str(sending.calls_for_spark)
    assert sinks["documents"].applied == [], "what it lacks is not known here any more"
    assert sinks["entries"].applied[-1] == 30


def test_a_sink_that_was_just_busy_when_it_was_left_is_known_to_answer(sinks, sending, monkeypatch):
    sinks["documents"].open.clear()
    send(sending, both(a=1), at(10))
    assert sinks["documents"].entered.wait(SOON_S), "it is held in its first step"
    monkeypatch.setattr(waits, "MOST_KEYS", 1)
    send(sending, {"documents": delta(b=1, c=2)}, at(20))
    assert sending.calls_for_spark is None
    sinks["documents"].open.set()
    wait_until(lambda: sending.calls_for_spark, SOON_S, "it answers")
    assert sinks["documents"].applied == [10]
    assert sending.reach("documents")["any"].position == at(10)


def test_who_moves_readers_has_nothing_written_beside_it(sinks, sending):
    sinks["documents"].open.clear()
    send(sending, both(a=1), at(10))
    assert sinks["documents"].entered.wait(SOON_S), "it is held in its first step"
    send(sending, both(a=2), at(20))
    assert not sending.pause(lambda: True), "one is under way, and it does not wait"
    sinks["documents"].open.set()
    assert sending.pause(lambda: False)
    assert sinks["documents"].applied == [10]
    send(sending, both(a=3), at(30))
    assert sinks["documents"].applied == [10], "nothing begins"
    sending.resume()
    sending.drain(SOON_S)
    assert sinks["documents"].applied == [10, 30]


def test_at_the_end_what_waits_is_dropped_and_what_is_under_way_is_waited_for(sinks, sending):
    sinks["documents"].open.clear()
    send(sending, both(a=1), at(10))
    assert sinks["documents"].entered.wait(SOON_S), "it is held in its first step"
    send(sending, both(a=2), at(20))
    assert not sending.end(0.05), "it is still under way"
    assert not sending.is_busy, "and is no matter of this one any more"
    sinks["documents"].open.set()
    wait_until(lambda: sinks["documents"].applied == [10], SOON_S, "what was under way is whole")


def test_a_result_says_how_far_each_sink_is(sinks, sending):
    sinks["documents"].open.clear()
    send(sending, both(a=1), at(10))
    assert sinks["documents"].entered.wait(SOON_S), "it is held in its first step"
    wait_until(lambda: sinks["entries"].applied, SOON_S, "the other one")
    late = ViewResult(view="documents", reach=sending.reach("documents"))
    told = late.to_json()["reached"]["any"]
    assert told["seconds_behind"] > 0
    assert (told["epoch"], told["lsn"]) == (1, "0/1")
    fresh = ViewResult(view="entries", published=True, reach=sending.reach("entries"))
    assert fresh.to_json()["reached"] == {"any": {"epoch": 1, "lsn": "0/A", "seconds_behind": 0.0}}
    (cells,) = [list(c.cells) for c in results_table([late, fresh]).columns][-1:]
    assert "any 0 s behind, at 0/1" in str(cells[0])
    assert cells[1] == "[green]yes[/]"
