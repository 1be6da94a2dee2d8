"""Why no broker answers: told apart by what its connections say."""

import socket
import threading
import time
from contextlib import closing, suppress

from confluent_kafka import KafkaError

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.access import ClientErrors, refusal

ALL_DOWN = KafkaError._ALL_BROKERS_DOWN


def heard(*codes, said="x"):
    found = ClientErrors()
    for code in codes:
        found(KafkaError(code, "all are down" if code == ALL_DOWN else said))
    return found


def test_a_refusal_counts_when_no_broker_is_left_that_may_let_us_in():
    assert heard(KafkaError._AUTHENTICATION).refusal() == ""
    assert heard(KafkaError._AUTHENTICATION, ALL_DOWN, said="no").refusal() == "no"
    assert heard(KafkaError._TRANSPORT, ALL_DOWN, said="SSL alert 42").refusal() == "SSL alert 42"


def test_a_broker_that_is_away_is_no_refusal(monkeypatch):
    monkeypatch.setattr("changelog.kafka.access._UNTOLD_S", -1.0)
    assert heard(KafkaError._TRANSPORT, ALL_DOWN).refusal() == ""
    assert heard().refusal() == ""
    assert "without a word" in heard(ALL_DOWN).refusal()


def test_a_server_that_says_nothing_is_away_and_refuses_nobody(monkeypatch):
    """Such as a network that swallows packets: librdkafka's own patience ends the connection."""
    monkeypatch.setattr("changelog.kafka.access._UNTOLD_S", -1.0)
    monkeypatch.setattr("changelog.kafka.access._SILENT_S", -1.0)
    found = heard(ALL_DOWN)
    assert (found.refusal(), found.absence()) == ("", "it takes connections and says nothing")


def test_where_nobody_is_nobody_refuses_and_that_is_known_soon():
    begun = time.monotonic()
    assert refusal(KafkaConnection(brokers="127.0.0.1:1")) == ""
    assert time.monotonic() - begun < 3


def test_a_server_that_ends_connections_without_a_word_lets_nobody_in():
    """As a broker does that wants TLS."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(0.2)
        kafka = KafkaConnection(brokers=f"127.0.0.1:{server.getsockname()[1]}")
        listener = threading.Thread(target=_hang_up, args=(server, done := threading.Event()))
        listener.start()
        try:
            assert "without a word" in refusal(kafka, 10.0)
        finally:
            done.set()
            listener.join()


def _hang_up(server, done):
    while not done.is_set():
        with suppress(TimeoutError):
            server.accept()[0].close()
