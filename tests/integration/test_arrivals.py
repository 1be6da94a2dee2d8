"""A follower hears of new records at once, and asks seldom while there are none."""

import threading
import time

import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.arrivals import Arrivals

pytestmark = pytest.mark.services

SOON_S = 20.0


@pytest.fixture
def topic(make_topic):
    return make_topic()


def test_a_wait_ends_with_a_record_and_not_without(kafka, topic, send):
    arrivals = Arrivals(kafka, topic)
    began = time.monotonic()
    arrivals.wait(began + 10 * SOON_S, lambda: False)
    assert time.monotonic() - began < SOON_S, "what came while it connected is not told"
    began = time.monotonic()
    arrivals.wait(began + 1.5, lambda: False)
    assert time.monotonic() - began >= 1.5, "nothing came"
    ended = threading.Event()

    def wait():
        arrivals.wait(time.monotonic() + 10 * SOON_S, lambda: False)
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not ended.wait(0.5)
    send(topic, (b"k", b"v"))
    assert ended.wait(SOON_S)
    waiting.join()
    began = time.monotonic()
    arrivals.wait(began + 1.5, lambda: False)
    assert time.monotonic() - began >= 1.5, "that record is not told of again"
    arrivals.close()


def test_a_stop_ends_it(kafka, topic):
    arrivals = Arrivals(kafka, topic)
    began = time.monotonic()
    arrivals.wait(began + 10 * SOON_S, lambda: time.monotonic() > began + 1)
    assert time.monotonic() - began < SOON_S
    arrivals.close()


def test_brokers_that_are_away_are_waited_for(topic):
    arrivals = Arrivals(KafkaConnection(brokers="127.0.0.1:1"), topic)
    began = time.monotonic()
    arrivals.wait(began + 1, lambda: False)
    assert time.monotonic() - began >= 1
    arrivals.close()
