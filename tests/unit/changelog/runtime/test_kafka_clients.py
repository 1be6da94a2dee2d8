"""Clients of the brokers that are kept, and those that are not."""

from __future__ import annotations

from contextlib import closing

import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.runtime.kafka_clients import KeptKafka, admin_client, lent

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
