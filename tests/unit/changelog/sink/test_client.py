"""Errors of librdkafka, told apart by what the reader has to do."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    LogError,
    RefusedAccessError,
    UnavailableLogError,
)
from changelog.sink.client import _Heard, admin_client, log_error, make_client

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._NOENT,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ],
)
def test_what_may_pass_is_unavailable(code):
    assert isinstance(log_error(KafkaException(KafkaError(code)), "x"), UnavailableLogError)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
    ],
)
def test_what_stays_is_not_waited_for(code):
    error = log_error(KafkaError(code), "cannot write")
    assert isinstance(error, LogError)
    assert not isinstance(error, UnavailableLogError)
    assert "cannot write" in str(error)


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_who_is_not_let_in_ends_with_2_at_the_start_and_waits_later(code):
    error = log_error(KafkaError(code), "cannot write")
    assert isinstance(error, RefusedAccessError)
    assert isinstance(error, UnavailableLogError)
    assert error.exit_code == 2
    assert "[kafka.options]" in error.hint


ALL_DOWN = KafkaError._ALL_BROKERS_DOWN


def heard(*codes, said="x"):
    found = _Heard()
    for code in codes:
        found(KafkaError(code, "all are down" if code == ALL_DOWN else said))
    return found


def test_a_refusal_counts_when_no_broker_is_left_that_may_let_us_in():
    assert heard(KafkaError._AUTHENTICATION).refusal() == ""
    assert heard(KafkaError._AUTHENTICATION, ALL_DOWN, said="no").refusal() == "no"
    assert heard(KafkaError._TRANSPORT, ALL_DOWN, said="SSL alert 42").refusal() == "SSL alert 42"


def test_a_broker_that_is_away_is_no_refusal(monkeypatch):
    monkeypatch.setattr("changelog.sink.client._UNTOLD_S", -1.0)
    assert heard(KafkaError._TRANSPORT, ALL_DOWN).refusal() == ""
    assert heard().refusal() == ""
    assert "without a word" in heard(ALL_DOWN).refusal()


def test_a_server_that_says_nothing_is_away_and_refuses_nobody(monkeypatch):
    """Such as a network that swallows packets: librdkafka's own patience ends the connection."""
    monkeypatch.setattr("changelog.sink.client._UNTOLD_S", -1.0)
    monkeypatch.setattr("changelog.sink.client._SILENT_S", -1.0)
    found = heard(ALL_DOWN)
    assert (found.refusal(), found.absence()) == ("", "it takes connections and says nothing")


def test_an_error_never_holds_a_password():
    error = log_error(KafkaError(KafkaError._AUTHENTICATION, "sasl.password=canary refused"), "x")
    assert "canary" not in str(error)


@pytest.mark.parametrize("kind", [Producer, AdminClient])
def test_an_unknown_option_is_a_configuration_error(kind):
    kafka = KafkaConnection(brokers=NOWHERE, options={"sasl.pasword": "canary"})
    with pytest.raises(ConfigurationError, match=r"sasl\.pasword") as caught:
        make_client(kind, kafka.client_config())
    assert "canary" not in str(caught.value)


def test_a_client_says_nothing_on_standard_error(capfd):
    client = admin_client(KafkaConnection(brokers=NOWHERE))
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    assert capfd.readouterr().err == ""
