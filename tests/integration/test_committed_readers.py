"""Every reader sees committed records alone, whatever a crash has left before a frontier's ends."""

import uuid
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import Producer

from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.kafka.clients import reading_config
from replay.broker.topics import inspect, require_stable
from replay.scan import range as fetch
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.frontiers import frontiers_of
from tests.support.log_readers import by_model, by_tasks, by_verifier
from tests.support.matrix import first
from tests.support.switched_log import ATLEAST, ONCE, SwitchedLog, changes
from tests.support.wait import wait_until
from views.verify.records import read, topic

pytestmark = [pytest.mark.services, pytest.mark.slow]


capture = capture_with(CrashingCapture)


@pytest.fixture
def make(capture):
    return partial(SwitchedLog, capture)


POINTS = ["transaction produced:30", "frontier written:1:transaction produced:20"]


@pytest.mark.parametrize("point", first(1, POINTS))
def test_each_frontier_gives_each_reader_what_is_committed(make, point):
    log = make(ONCE)
    log.crash(point)
    log.capture.finish()
    log.check()


@pytest.mark.matrix
@pytest.mark.parametrize(("before", "after"), [(ONCE, ATLEAST), (ATLEAST, ONCE)])
def test_a_log_may_be_switched_in_the_middle_of_a_crash(make, before, after):
    log = make(before)
    log.crash("transaction produced:30")
    log.capture.crash("transaction produced:20", defect="deliver_each")
    log.use(after)
    log.capture.finish()
    log.check()
    log.use(before)
    log.crash("transaction produced:30")
    log.use(after)
    log.capture.finish()
    log.check()


@pytest.mark.matrix
def test_twin_readers_that_do_not_know_transactions_are_found_out(make, monkeypatch):
    log = make(ONCE)
    log.crash("transaction produced:30")
    capture, key_id = log.capture, log.key_id
    capture.finish()
    uncommitted = partial(reading_config, committed=False)
    monkeypatch.setattr(
        fetch, "reading_config", lambda kafka, **more: uncommitted(kafka, **more | {"committed": 0})
    )
    found = [
        by_tasks(capture, each, log.topic, key_id) == by_model(capture, each, log.topic)
        for each in frontiers_of(capture)
    ]
    assert not all(found)
    made = read.consumer_settings
    for place in (read, topic):
        monkeypatch.setattr(
            place, "consumer_settings", lambda kafka, **_: made(kafka, committed=False)
        )
    with pytest.raises(LogError, match="after the frontier"):
        _ = [by_verifier(capture, each, log.topic, key_id) for each in frontiers_of(capture)]


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["chunk copied:2", "segment written:1"])
@pytest.mark.parametrize("after", [ONCE, ATLEAST])
def test_a_copy_that_was_cut_off_leaves_no_transaction_open(make, point, after):
    """A worker that died has one of its own, behind which nobody would read for a minute."""
    log = make(ONCE)
    log.capture.command("resnapshot", "notes")
    log.capture.crash(point, small=True)
    log.use(after)
    log.capture.sql(*changes(1, 41))
    log.capture.finish(small=True)
    log.check()


# --- transactions of others ------------------------------------------------------------------


@contextmanager
def open_transaction(kafka, topic):
    """Have another program leave a transaction open."""
    with closing(Producer(kafka.client_config(**{"transactional.id": uuid.uuid4().hex}))) as other:
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(topic, b"key", b"value", partition=0)
        other.flush(30)
        yield
        other.abort_transaction(30)


@pytest.mark.matrix
def test_a_transaction_that_hangs_is_named_and_nobody_stalls(make, monkeypatch):
    log = make("")
    capture, topic, frontier = log.capture, log.topic, log.capture.frontier()
    key_id = log.key_id
    monkeypatch.setattr(read, "_STABLE_SECONDS", 0.2)

    def readers():
        require_stable(capture.kafka, behind, inspect(capture.kafka, [topic]), patience_s=0.2)
        return by_verifier(capture, behind, topic, key_id)

    with open_transaction(capture.kafka, topic):
        (ends,) = (each.ends for each in inspect(capture.kafka, [topic]).values())
        behind = replace(frontier, ends={topic: ends})
        with pytest.raises(UnavailableLogError, match="a transaction is open since offset"):
            readers()
        with pytest.raises(UnavailableLogError, match="a transaction is open since offset"):
            by_verifier(capture, behind, topic, key_id)
        assert by_verifier(capture, frontier, topic, key_id)  # what lies before it can be read
        capture.begin(until="now")
        said = "a transaction of another program is open"
        wait_until(lambda: said in capture.said(), 60, "capture says so")
    assert readers() == by_model(capture, behind, topic)
    wait_until(lambda: capture.running.poll() == 0, 60, "capture goes on when it is over")
    capture.running = None
    capture.check()
