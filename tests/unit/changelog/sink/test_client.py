"""Errors of librdkafka, told apart by what the reader has to do."""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
)
from changelog.sink.client import make_client

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("kind", [Producer, AdminClient])
def test_an_unknown_option_is_a_configuration_error(kind):
    kafka = KafkaConnection(brokers=NOWHERE, options={"sasl.pasword": "canary"})
    with pytest.raises(ConfigurationError, match=r"sasl\.pasword") as caught:
        make_client(kind, kafka.client_config())
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("kind", [Producer, Consumer, AdminClient])
def test_a_client_says_nothing_on_standard_error(capfd, kind):
    """Nor do those of tests, whose brokers end before they do."""
    client = kind(KafkaConnection(brokers=NOWHERE).client_config(group_id="g"))
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    assert capfd.readouterr().err == ""
