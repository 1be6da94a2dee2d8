"""The producer without a broker: what it does while none answers."""

import gc
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    LogError,
    RecordRefusedError,
    UnavailableLogError,
)
from changelog.contract.log.properties import RECORD_BYTES
from changelog.kafka.cluster import Cluster, TopicEnds
from changelog.native import Records
from changelog.native.records import Record
from changelog.sink import producer as producer_module
from changelog.sink.producer import LogProducer
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("native_way")

NOWHERE = KafkaConnection(brokers="127.0.0.1:1")


class InterruptedWaitError(Exception):
    pass


def produce_all(producer, count, value):
    for number in range(count):
        producer.produce("t", b"%d" % number, value, [])


@pytest.fixture
def make():
    made = []

    def make(**options):
        made.append(LogProducer.open(NOWHERE, options))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def test_a_full_queue_waits_and_the_caller_can_end_the_wait(make):
    producer = make(**{"queue.buffering.max.messages": 100})
    calls = []

    def on_wait():
        calls.append(producer.queued)
        if len(calls) == 5:
            raise InterruptedWaitError

    producer.on_wait = on_wait
    with pytest.raises(InterruptedWaitError):
        produce_all(producer, 1000, b"v")
    assert calls == [100] * 5
    assert producer.records == 100


def test_a_full_queue_counts_bytes_too(make):
    producer = make(**{"queue.buffering.max.kbytes": 1024})

    def on_wait():
        raise InterruptedWaitError

    producer.on_wait = on_wait
    with pytest.raises(InterruptedWaitError):
        produce_all(producer, 100, bytes(100_000))
    assert producer.bytes <= 1024 * 1024


def test_what_the_client_has_to_tell_is_no_record(make):
    producer = make()
    assert producer.queued == 0
    producer.produce("t", b"k", None, [])
    wait_until(lambda: len(producer._producer) > 1, 30, "the client tells that no broker is there")
    assert producer.queued == 1


def many(count, value=b"v"):
    records = Records(epoch=1)
    for number in range(count):
        records.add(Record(b"%d" % number, value, 5, number, 6, b"c"))
    return records


def test_many_records_at_once_wait_for_room_and_are_counted(make):
    producer = make(**{"queue.buffering.max.messages": 100})
    calls = []

    def on_wait():
        calls.append(producer.queued)
        if len(calls) == 5:
            raise InterruptedWaitError

    producer.on_wait = on_wait
    records = many(1000)
    records.leave_out(3)
    with pytest.raises(InterruptedWaitError):
        producer.produce_records("t", records, 0, len(records))
    assert calls == [100] * 5
    assert (producer.records, producer.sent) == (100, {"t": 100})
    assert producer.bytes == 9 + 2 * 90 + 3 + 100  # the digits of 0 to 100 but for 3, and values


def test_of_many_records_one_that_can_never_be_queued_is_refused(make):
    producer, records = make(), many(3)
    records.add(Record(b"k", bytes(RECORD_BYTES + 1), 5, 6, 7, b"u"))
    with pytest.raises(RecordRefusedError) as caught:
        producer.produce_records("orders", records, 0, len(records))
    assert caught.value.topic == "orders"
    assert producer.records == 3


def test_a_setting_that_librdkafka_does_not_know_is_named(make):
    with pytest.raises(ConfigurationError, match=r'"linger\.mss"'):
        make(**{"linger.mss": 3})
    with pytest.raises(ConfigurationError, match="Invalid value"):
        make(**{"linger.ms": "long"})


def test_a_flush_past_its_deadline_says_how_much_is_missing(make):
    producer = make()
    producer.produce("t", b"k", None, [])
    with pytest.raises(UnavailableLogError, match="1 records are not acknowledged"):
        producer.flush(0.1)


def test_a_record_that_can_never_be_queued_is_refused_at_once(make):
    producer = make()
    with pytest.raises(LogError, match='"orders"') as caught:
        producer.produce("orders", b"k", bytes(RECORD_BYTES + 1), [])
    assert "max.message.bytes" in caught.value.hint


def test_after_a_failure_every_call_raises_it(make):
    producer = make()
    with pytest.raises(LogError):
        producer.produce("t", b"k", bytes(RECORD_BYTES + 1), [])
    for call in (producer.poll, producer.flush):
        with pytest.raises(LogError, match="too large"):
            call()


def test_a_fatal_error_asks_for_a_new_producer(make):
    producer = make()
    error = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap in the sequence", fatal=True)
    producer._producer.failure = lambda: (error, "")
    with pytest.raises(UnavailableLogError, match="gap in the sequence"):
        producer.poll()


def test_close_does_not_wait_for_a_broker_that_is_away():
    producer = LogProducer.open(NOWHERE)
    produce_all(producer, 1000, b"v")
    started = time.monotonic()
    producer.close()
    assert time.monotonic() - started < 10  # a flush would wait for minutes
    assert producer.queued == 0


def test_a_closed_producer_goes_with_its_owner_and_waits_for_no_search_for_cycles():
    class Owner:
        def __init__(self):
            self.producer = LogProducer.open(NOWHERE, on_wait=self.wait)

        def wait(self):
            pass

    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    def opened_and_closed():
        Owner().producer.close()

    gc.collect()
    gc.disable()
    try:
        opened_and_closed()
        before = open_files()
        for _ in range(5):
            opened_and_closed()
        assert open_files() <= before
    finally:
        gc.enable()


class LateMarks:
    """A cluster whose readers see a commit some questions later."""

    def __init__(self, late):
        self.late, self.asked = late, 0

    def standing(self, topics, *, committed=False):
        self.asked += committed
        seen = not committed or self.asked > self.late
        return {topic: TopicEnds("id", (7, 9 if seen else 8), (0, 0), (0, 0)) for topic in topics}


@pytest.mark.parametrize(("late", "warns"), [(3, False), (10**9, True)])
def test_readers_of_a_commit_are_awaited(late, warns, monkeypatch, caplog):
    cluster = LateMarks(late)
    monkeypatch.setattr(producer_module, "Cluster", lambda *_, **__: cluster)
    monkeypatch.setattr(producer_module, "READERS_S", 0.1 if warns else 60)
    producer = LogProducer.open(NOWHERE, transactional_id="t")
    producer.sent["t"] = 1
    producer.await_readers()
    producer.close()
    assert ("a transaction of somebody else is open in t" in caplog.text) is warns
    assert cluster.asked > 3


def test_readers_are_not_awaited_where_brokers_do_not_answer(monkeypatch, caplog):
    def away(*_, **__):
        raise UnavailableLogError("away")

    monkeypatch.setattr(Cluster, "standing", away)
    producer = LogProducer.open(NOWHERE, transactional_id="t")
    producer.sent["t"] = 1
    producer.await_readers()
    producer.close()
    assert "whether readers see it yet is not known: away" in caplog.text
