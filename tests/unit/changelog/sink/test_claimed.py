"""A user who may not see the frontiers of captures writes to topics of their own as before."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import explained
from changelog.sink.claimed import check_unclaimed

KAFKA = KafkaConnection(brokers="localhost:1")


def refusing(code):
    def topics(_cluster, names):
        with explained(f"cannot describe {names}"):
            raise KafkaException(KafkaError(code))

    return topics


def test_frontiers_that_the_user_may_not_see_keep_nobody_from_writing(monkeypatch):
    monkeypatch.setattr(Cluster, "topics", refusing(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    check_unclaimed(KAFKA, "shop.orders")


def test_another_refusal_is_told(monkeypatch):
    monkeypatch.setattr(Cluster, "topics", refusing(KafkaError.INVALID_REQUEST))
    with pytest.raises(LogError):
        check_unclaimed(KAFKA, "shop.orders")
