"""Clients of the brokers: how they are made, those that are kept, and those that are not."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.kafka.clients import KeptKafka, admin_client, lent, make_client, reading_config

NOWHERE = "127.0.0.1:1"
PLAIN = KafkaConnection(brokers="127.0.0.1:9", options={"client.id": "test"})


class Made:
    """Clients that know how many of them are open."""

    def __init__(self) -> None:
        self.open: list[object] = []

    def __call__(self) -> Made.Client:
        client = self.Client(self)
        self.open.append(client)
        return client

    class Client:
        def __init__(self, made: Made) -> None:
            self._made = made

        def close(self) -> None:
            self._made.open.remove(self)


@pytest.fixture
def make() -> Made:
    return Made()


def test_what_is_kept_is_lent_again_under_its_name(make):
    with closing(KeptKafka.of(PLAIN)) as kafka:
        with lent(kafka, "one", make) as first:
            pass
        with lent(kafka, "one", make) as again, lent(kafka, "two", make) as other:
            assert first is again is not other
        assert make.open == [first, other]
    assert make.open == []


def test_behind_an_error_a_new_one_begins(make):
    with closing(KeptKafka.of(PLAIN)) as kafka:
        with pytest.raises(ValueError, match="away"), lent(kafka, "one", make) as first:
            raise ValueError("away")
        assert make.open == []
        with lent(kafka, "one", make) as second:
            assert second is not first


def test_of_a_plain_connection_nothing_is_kept(make):
    with lent(PLAIN, "one", make) as first:
        assert make.open == [first]
    assert make.open == []
    with admin_client(PLAIN) as one, admin_client(PLAIN) as two:
        assert one is not two


def test_questions_about_the_cluster_have_one_client():
    with closing(KeptKafka.of(PLAIN)) as kafka:
        with admin_client(kafka) as first, admin_client(kafka) as second:
            assert first is second
        with pytest.raises(ValueError, match="away"), admin_client(kafka):
            raise ValueError("away")
        with admin_client(kafka) as third:
            assert third is not first


def test_it_is_the_connection_that_it_was_made_of():
    kafka = KeptKafka.of(PLAIN)
    assert kafka.client_config(group_id="g") == PLAIN.client_config(group_id="g")


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


def test_a_reading_client_commits_nothing_whatever_options_say():
    kafka = KafkaConnection(brokers=NOWHERE, options={"enable.auto.commit": "true"})
    config = reading_config(kafka, committed=False, fetch_wait_max_ms=100)
    assert config["enable.auto.commit"] is False
    assert config["isolation.level"] == "read_uncommitted"
    assert config["fetch.wait.max.ms"] == 100


def test_brokers_with_access_lists_may_name_the_group():
    kafka = KafkaConnection(brokers=NOWHERE, options={"group.id": "theirs"})
    assert reading_config(kafka)["group.id"] == "theirs"
