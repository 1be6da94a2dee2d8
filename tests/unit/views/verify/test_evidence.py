"""States that are read ahead, in a thread, while something else is done."""

import threading

import duckdb
import pytest

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import LogError, VerdictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from tests.support.ended_database import end
from views.verify.compare.evidence import Evidence
from views.verify.kept.keeper import Keeper
from views.verify.kept.resident import ResidentStates
from views.verify.log.states import Taken

ORDERS, ITEMS, OTHERS = (TableName("public", name) for name in ("orders", "items", "others"))
DEADLINE_S = 10


class Reading:
    """In place of the reading of a topic: waits, tells, fails."""

    def __init__(self):
        self.may_go_on = threading.Event()
        self.begun = threading.Event()
        self.threads = {}
        self.fails = set()

    def __call__(self, keeper, table):
        self.threads[table] = threading.current_thread().name
        self.begun.set()
        while not self.may_go_on.wait(0.01):
            keeper._log._tell("reading")
        if table in self.fails:
            raise LogError(f"{table} cannot be read")
        return Taken(state=table, records=1)


@pytest.fixture
def reading(monkeypatch):
    made = Reading()

    def take(keeper, table):
        return made(keeper, table)

    monkeypatch.setattr(Keeper, "take", take)
    return made


@pytest.fixture
def evidence():
    frontier = Frontier(slot="s", epoch=1, lsn=Lsn(1), ts_us=0)
    nowhere = KafkaConnection(brokers="127.0.0.1:1"), RegistryConnection(url="http://127.0.0.1:1")
    return Evidence(*nowhere, frontier)


def test_states_are_read_in_a_thread_and_waited_for(evidence, reading):
    with evidence:
        evidence.read_ahead([ORDERS, ITEMS])
        assert reading.begun.wait(DEADLINE_S)
        threading.Timer(0.05, reading.may_go_on.set).start()
        assert evidence.state(ITEMS) == ITEMS
        assert evidence.taken(ITEMS).records == 1
        # What nobody asked to be read ahead is read by whoever wants it.
        assert evidence.state(OTHERS) == OTHERS
        assert evidence.state(ORDERS) == ORDERS
    assert all(reading.threads[table].startswith("verify-ahead") for table in (ORDERS, ITEMS))
    assert reading.threads[OTHERS] == threading.current_thread().name


def test_what_fails_fails_whoever_asks_for_that_table(evidence, reading):
    reading.may_go_on.set()
    reading.fails.add(ORDERS)
    with evidence:
        evidence.read_ahead([ORDERS, ITEMS])
        assert evidence.state(ITEMS) == ITEMS
        for _ in range(2):
            with pytest.raises(LogError, match="orders cannot be read"):
                evidence.state(ORDERS)


def test_the_end_stops_what_nobody_waits_for(evidence, reading):
    with evidence:
        evidence.read_ahead([ORDERS, ITEMS])
        assert reading.begun.wait(DEADLINE_S)
    # The first one was told to end at its next word, the second one never began.
    assert not reading.may_go_on.is_set()
    assert ITEMS not in reading.threads


def test_nothing_is_kept_beside_the_thread_that_reads(evidence, reading, monkeypatch):
    kept = []
    monkeypatch.setattr(Keeper, "keep", lambda keeper: kept.append(len(reading.threads)))
    with evidence:
        evidence.read_ahead([ORDERS, ITEMS])
        assert reading.begun.wait(DEADLINE_S)
        evidence.keep()  # every view failed before its proof
        assert kept == []
        reading.may_go_on.set()
        evidence.state(ORDERS)
        evidence.keep()
        assert kept == [2]


def test_what_the_thread_took_is_let_go_of_at_the_end(evidence, reading, monkeypatch):
    order: list[str] = []
    sound = Keeper.__exit__

    def take(keeper, table):
        try:
            return reading(keeper, table)
        finally:
            keeper._held.callback(order.append, "let go")

    def left(keeper, *told):
        order.append("keeper ends")
        sound(keeper, *told)

    monkeypatch.setattr(Keeper, "take", take)
    monkeypatch.setattr(Keeper, "__exit__", left)
    with evidence:
        evidence.read_ahead([ORDERS])
        assert reading.begun.wait(DEADLINE_S)
    assert order == ["keeper ends", "let go"]


def test_an_error_inside_duckdb_has_the_states_read_again_into_another_database(evidence, reading):
    reading.may_go_on.set()
    with evidence:
        evidence.read_ahead([ORDERS])
        assert evidence.state(ORDERS) == ORDERS
        evidence.restore()
        assert evidence.taken(ORDERS) is not None  # nothing was wrong
        with pytest.raises(duckdb.InternalException):
            end(evidence.database)
        with pytest.raises(duckdb.FatalException):
            evidence.database.execute("SELECT 1")
        evidence.restore()
        assert evidence.taken(ORDERS) is None
        assert evidence.database.execute("SELECT 1").fetchall() == [(1,)]
        assert evidence.state(ORDERS) == ORDERS
    assert reading.threads[ORDERS] == threading.current_thread().name


def test_the_states_of_a_follower_that_were_lost_with_their_database_are_asked_for_in_vain():
    nowhere = KafkaConnection(brokers="127.0.0.1:1"), RegistryConnection(url="http://127.0.0.1:1")
    with ResidentStates(*nowhere, pins={}) as states:
        with pytest.raises(duckdb.InternalException):
            end(states.database)
        states.restore()
        with pytest.raises(VerdictError, match="an error inside DuckDB"):
            states.state(ORDERS)
