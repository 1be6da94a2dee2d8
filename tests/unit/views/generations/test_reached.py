"""A wait for an LSN: positions of sinks, rows of the history and equal frontiers decide it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    SinkError,
    UnavailableError,
    UnavailableSourceError,
    ViewError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.broker import topics
from tests.unit.views.fakes import FakeSink
from views.generations import reached
from views.generations.history import (
    FAILED,
    PUBLISHED,
    REFUTED,
    SEALED,
    UNCHANGED,
    HistoryRow,
    all_proved_at,
    position_on_record,
    unchanged_at,
)
from views.generations.lock import building, following, is_attended
from views.generations.place import LockPlace
from views.generations.reached import CaptureFrontiers, NotReachedError, Wait, own_tables
from views.leases.decide import Tenure
from views.leases.record import Owner

ORDERS = TableName("public", "orders")
OTHERS = TableName("public", "others")
KAFKA = KafkaConnection(brokers="nowhere:1")


def at(lsn, epoch=1):
    return Position(epoch, Lsn(lsn), 0)


def frontier(lsn, epoch=1, ends=(10,), others=(5,)):
    return Frontier(
        slot="s",
        epoch=epoch,
        lsn=Lsn(lsn),
        ts_us=1_000_000,
        tables={"orders": ORDERS, "others": OTHERS},
        ends={"orders": ends, "others": others},
    )


class Sink(FakeSink):
    """Says where it is, as one that goes forward does."""

    def __init__(self, *positions, published=1):
        super().__init__(published, [1])
        self.positions = list(positions)

    def position(self, generation):
        position = self.positions.pop(0) if len(self.positions) > 1 else self.positions[0]
        if isinstance(position, Exception):
            raise position
        return position

    def holds_back(self, generation):
        return None

    delta_columns = delta_values = apply = holds_back


class Log:
    """Frontiers that come one after the other."""

    def __init__(self, *frontiers, rests=False):
        self.frontiers, self.is_resting, self.asked = list(frontiers), rests, 0

    def newest(self):
        one = self.frontiers.pop(0) if len(self.frontiers) > 1 else self.frontiers[0]
        return FrontierRecord(one, 0, 0)

    def rests(self, position, record):
        self.asked += 1
        return self.is_resting


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def waiting(sinks, log, *, rows=(), attended=True, source=None):
    clock = Clock()
    return Wait(
        "v",
        sinks,
        log=log,
        history=lambda views, *, generation: [r for r in rows if r.generation == generation],
        is_attended=attended if callable(attended) else lambda: attended,
        source=source,
        clock=clock,
        sleep=clock.sleep,
    )


def row(lsn, state=PUBLISHED, generation=1, **more):
    return HistoryRow(view="v", generation=generation, state=state, epoch=1, lsn=lsn, **more)


def test_all_sinks_have_to_show_it():
    wait = waiting({"cache": Sink(at(7)), "postgres": Sink(at(3), at(3), at(5))}, Log(frontier(9)))
    assert wait.until(Lsn(5), 10).sinks == {"cache": 7, "postgres": 5}
    assert waiting({"cache": Sink(at(7))}, Log(frontier(9))).until(Lsn(5), 0).sinks == {"cache": 7}


def test_a_sink_that_was_put_back_shows_what_it_has():
    rows = [row("0/2", SEALED), row("0/8", origin="forward: 3 changed keys")]
    resting = row("0/9", origin=UNCHANGED)
    wait = waiting({"postgres": Sink(at(8))}, Log(frontier(9)), rows=[*rows, resting])
    assert wait.until(Lsn(9), 0).sinks == {"postgres": 9}, "nothing has changed since 8"
    wait = waiting({"postgres": Sink(at(5))}, Log(frontier(9)), rows=[*rows, resting])
    with pytest.raises(NotReachedError, match="postgres is at 0/5, the log is at 0/9"):
        wait.until(Lsn(9), 3)


def test_an_lsn_of_another_epoch_says_nothing():
    places = "cache is at 0/7 of epoch 1, the log is at 0/9 of epoch 2"
    with pytest.raises(NotReachedError, match=places):
        waiting({"cache": Sink(at(7))}, Log(frontier(9, epoch=2), rests=True)).until(Lsn(5), 3)


def test_rows_that_rest_are_true_later_too():
    sink, log = Sink(at(3)), Log(frontier(4), frontier(9), rests=True)
    assert waiting({"cache": sink}, log).until(Lsn(5), 10).sinks == {"cache": 3}
    assert log.asked == 1, "a frontier before the LSN tells nothing of it"


def test_what_only_the_history_knows_counts():
    rows = [row("0/3", SEALED), row("0/6"), row("0/9", FAILED), row("0/9", generation=2)]
    for sink in (FakeSink(1, [1]), Sink(None), Sink(at(6))):
        assert waiting({"delta": sink}, Log(frontier(9)), rows=rows).until(Lsn(5), 1).sinks == {
            "delta": 6
        }
    assert position_on_record([*rows, row("0/8", REFUTED)], 1) == at(6)
    with pytest.raises(ViewError, match="does not say what generation 1 in delta was made of"):
        waiting({"delta": FakeSink(1, [1])}, Log(frontier(9))).until(Lsn(5), 1)
    with pytest.raises(ViewError, match='of view "v" nothing serves yet in delta'):
        waiting({"delta": FakeSink(None, [])}, Log(frontier(9))).until(Lsn(5), 1)


def test_who_is_away_is_asked_again_and_told_at_the_end():
    away = UnavailableError("the cache does not answer", hint="see that it runs")
    wait = waiting({"cache": Sink(away, away, at(5))}, Log(frontier(9)))
    assert wait.until(Lsn(5), 10).sinks == {"cache": 5}
    with pytest.raises(NotReachedError, match="after 2 s: the cache does not answer") as raised:
        waiting({"cache": Sink(away)}, Log(frontier(9))).until(Lsn(5), 2)
    assert raised.value.hint == "see that it runs"
    with pytest.raises(SinkError, match="broken"):
        waiting({"cache": Sink(SinkError("broken"))}, Log(frontier(9))).until(Lsn(5), 2)


def test_readers_that_are_moved_between_two_questions_are_asked_anew():
    class Moved(Sink):
        def position(self, generation):
            if generation == 1:
                self.current = 2
                raise SinkError("there is no generation 1")
            return at(6)

    assert waiting({"cache": Moved(at(0))}, Log(frontier(9))).until(Lsn(5), 1).sinks == {"cache": 6}


def test_nobody_is_waited_for_who_is_not_there():
    alone = waiting({"cache": Sink(at(3))}, Log(frontier(9)), attended=False)
    with pytest.raises(NotReachedError, match="nobody follows or rebuilds it: cache is at 0/3"):
        alone.until(Lsn(5), 600)
    assert alone.clock() < 10
    # A follower that is started anew meanwhile is not missed.
    words = iter([True, False, True, *[False] * 9])
    short = waiting({"cache": Sink(at(3))}, Log(frontier(9)), attended=lambda: next(words))
    with pytest.raises(NotReachedError, match="nobody follows"):
        short.until(Lsn(5), 600)
    assert short.clock() > 9
    with pytest.raises(NotReachedError, match="nobody follows"):
        waiting({"cache": Sink(at(3))}, Log(frontier(9)), attended=False).until(Lsn(5), 0)
    with pytest.raises(NotReachedError, match="after 0 s"):
        waiting({"cache": Sink(at(3))}, Log(frontier(9))).until(Lsn(5), 0)


def test_the_hint_tells_who_is_late():
    with pytest.raises(NotReachedError) as raised:
        waiting({"cache": Sink(at(3))}, Log(frontier(4))).until(Lsn(5), 1)
    assert "whether capture runs" in raised.value.hint
    with pytest.raises(NotReachedError) as raised:
        waiting({"cache": Sink(at(3))}, Log(frontier(9))).until(Lsn(5), 1)
    assert "its follower is behind" in raised.value.hint


def test_the_source_says_what_can_come():
    def wait(source):
        return waiting({"cache": Sink(at(7))}, Log(frontier(7)), source=source)

    assert wait(lambda: Lsn(7)).until(None, 1).lsn == 7
    with pytest.raises(ConfigurationError, match="LSN 0/9 lies ahead of the source, which ends at"):
        wait(lambda: Lsn(8)).until(Lsn(9), 1)
    with pytest.raises(ConfigurationError, match="the source ends at 0/6, before the log"):
        wait(lambda: Lsn(6)).until(None, 1)
    with pytest.raises(ConfigurationError, match="the source ends at 0/6, before the log"):
        wait(lambda: Lsn(6)).until(Lsn(9), 1)
    with pytest.raises(ConfigurationError, match="the end of the source's WAL is not known"):
        wait(None).until(None, 1)
    assert wait(None).until(Lsn(7), 1).lsn == 7
    # A standby does not know what its primary has.
    with pytest.raises(ConfigurationError, match="the source is a standby"):
        wait(lambda: None).until(None, 1)
    with pytest.raises(NotReachedError, match="the log is at 0/7"):
        wait(lambda: None).until(Lsn(9), 1)

    def away():
        raise UnavailableSourceError("PostgreSQL does not let us in")

    with pytest.raises(UnavailableSourceError):
        wait(away).until(None, 1)
    with pytest.raises(NotReachedError, match="the log is at 0/7"):
        wait(away).until(Lsn(9), 1)
    # What the log has is no question to the source.
    assert wait(away).until(Lsn(7), 1).lsn == 7


@pytest.mark.parametrize(
    ("older", "rests"),
    [
        ([frontier(8), frontier(6), frontier(3)], True),
        ([frontier(8), frontier(5)], True),
        ([frontier(8), frontier(6)], False),  # nothing so old is there any more
        ([frontier(8), frontier(6, ends=(9,)), frontier(5, ends=(9,))], False),
        ([frontier(8), frontier(6, others=(1,)), frontier(5, others=(1,))], True),
        ([frontier(8), frontier(5, epoch=0)], False),
        ([replace(frontier(8), since={"orders": at(7)}), frontier(5)], False),
    ],
)
def test_tables_rest_between_equal_frontiers(monkeypatch, older, rests):
    read = []

    def back(kafka, topic, slot, *, before):
        for one in [frontier(9), *older]:
            read.append(one)
            yield one

    monkeypatch.setattr(reached, "frontiers_back", back)
    log = CaptureFrontiers(KAFKA, "_frontier", "s", [ORDERS])
    record = FrontierRecord(frontier(9), 7, 0)
    assert log.rests(at(5), record) is rests
    times = len(read)
    assert log.rests(at(5), record) is rests
    assert len(read) == times, "the same is not read again"


def test_a_table_that_is_not_captured_does_not_rest(monkeypatch):
    monkeypatch.setattr(reached, "frontiers_back", lambda *_, before: iter([frontier(5)]))
    log = CaptureFrontiers(KAFKA, "_frontier", "s", [TableName("public", "strange")])
    assert not log.rests(at(5), FrontierRecord(frontier(9), 7, 0))


class Message:
    def __init__(self, key, value):
        self._key, self._value = key, value

    def key(self):
        return self._key

    def value(self):
        return self._value


def test_frontiers_are_read_from_the_end_until_the_log_was_given_up(monkeypatch):
    records = [
        Message(b"s", frontier(1).to_json().encode()),
        Message(b"s", None),
        *(Message(b"s", frontier(n).to_json().encode()) for n in range(2, 1500)),
        Message(b"other", replace(frontier(3), slot="other").to_json().encode()),
        Message(b"s", b"strange"),
    ]

    class State:
        log_starts = (0,)

    asked = []

    def scan(kafka, places):
        ((_, _, start, end),) = places
        asked.append(end - start)
        return iter(records[start:end])

    monkeypatch.setattr(topics, "_frontier_topic", lambda *_: State())
    monkeypatch.setattr(topics, "scan", scan)
    back = topics.frontiers_back(KAFKA, "t", "s", before=len(records))
    assert next(back).lsn == 1499
    assert asked == [1000], "no more than is asked for"
    assert [one.lsn for one in back] == list(range(1498, 1, -1))


def test_rows_that_stay_are_on_record_at_a_later_frontier():
    proof = {"cache": {"verified": True}}
    built = row("0/3", SEALED, verified=True, certificate=proof, sinks=("cache",), rows=4)
    later = unchanged_at([built], 1, frontier(9), "run")
    assert later is not None
    assert (later.state, later.lsn, later.origin) == (PUBLISHED, "0/9", UNCHANGED)
    assert (later.verified, later.certificate, later.rows) == (True, proof, 4)
    # Nothing was compared again for it.
    assert all_proved_at([built, later], 1) == built.at
    assert unchanged_at([built, row("0/4", REFUTED)], 1, frontier(9), "run") is None
    assert unchanged_at([], 1, frontier(9), "run") is None


def test_who_works_on_a_view_is_known_by_its_locks(tmp_path):
    place = LockPlace(tmp_path)
    assert not is_attended(place, "v", 0)
    assert not list(tmp_path.iterdir()), "a reader makes nothing"
    for work in (following, building):
        with work(place, ["v"]):
            assert is_attended(place, "v", 0)
            assert not is_attended(place, "w", 0)
        assert not is_attended(place, "v", 0)


@pytest.mark.parametrize(
    ("changes", "attended"),
    [
        ({}, True),
        ({"until_ms": 99}, False),  # a dead one on another machine
        ({"is_over": True}, False),
        ({"place": "here"}, False),  # of this machine, where nobody has the lock
        (None, False),
    ],
)
def test_who_works_elsewhere_is_known_by_a_lease(tmp_path, changes, attended):
    owner = Owner.this_process()
    tenure = Tenure(
        id="i", token=1, offset=1, until_ms=100, is_over=False, owner=owner, place="x"
    )  # fmt: skip

    class Leases:
        def tenure(self, lock):
            assert lock.startswith("house/v/")
            return None if changes is None else replace(tenure, **changes)

        def is_mine(self, tenure):
            return tenure.place == "here"

    leases: Any = Leases()
    place = LockPlace(tmp_path, leases, lambda: "house")
    assert is_attended(place, "v", 100) is attended


def test_an_lsn_says_something_of_own_tables_alone():
    settings: Any = SimpleNamespace(logs=[SimpleNamespace(table=OTHERS)])
    both: Any = SimpleNamespace(name="v", tables=(ORDERS, OTHERS))
    foreign: Any = SimpleNamespace(name="v", tables=(OTHERS,))
    assert own_tables(both, settings) == [ORDERS]
    with pytest.raises(ViewError, match="reads only logs of other programs"):
        own_tables(foreign, settings)
