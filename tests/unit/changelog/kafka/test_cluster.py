"""Questions to the brokers: what is asked again, and what an answer that does not come is."""

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.kafka import clients, cluster
from changelog.kafka.cluster import Cluster, OffsetBounds, until_led
from changelog.kafka.errors import explained

NOWHERE = KafkaConnection(brokers="127.0.0.1:1")


class Brokers:
    """Brokers that refuse some questions before they answer."""

    def __init__(self, *codes: int) -> None:
        self.codes = [*codes]
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.codes:
            with explained("asked"):
                raise KafkaException(KafkaError(self.codes.pop(0)))
        return "answer"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_brokers_are_asked_again_while_a_partition_has_no_leader(code):
    brokers, waits = Brokers(code, code), []
    assert until_led(brokers, on_wait=lambda: waits.append(1)) == "answer"
    assert (brokers.asked, len(waits)) == (3, 2)


def test_what_does_not_pass_is_asked_once():
    brokers = Brokers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(LogError, match="does not allow"):
        until_led(brokers)
    assert brokers.asked == 1


def test_what_does_not_pass_in_time_is_raised():
    brokers = Brokers(*[KafkaError.LEADER_NOT_AVAILABLE] * 99)
    with pytest.raises(UnavailableLogError, match="cannot do it now"):
        until_led(brokers, patience_s=0.1)
    assert 1 < brokers.asked < 9


class Offsets:
    """Answers with errors first, then that partitions begin at 7 and end at 9."""

    def __init__(self, *codes: int) -> None:
        self.codes = [*codes]

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def offsets_for_times(self, asked, timeout):
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        ends = {OFFSET_BEGINNING: 7, OFFSET_END: 9}
        return [TopicPartition(at.topic, at.partition, ends[at.offset]) for at in asked]


def bounds(monkeypatch, *codes):
    made: list[Offsets] = []
    answers = Offsets(*codes)

    def make(*_):
        made.append(answers)
        return answers

    monkeypatch.setattr(clients, "make_client", make)
    return Cluster(NOWHERE, answer_s=0.3).bounds([("t", 0)]), len(made)


def test_a_leader_that_does_not_know_it_yet_is_asked_again_by_a_new_client(monkeypatch):
    """A client goes on asking under the epoch of the leader that it knows."""
    busy = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE
    assert bounds(monkeypatch, *busy) == ({("t", 0): OffsetBounds(7, 9, -1)}, 3)


def test_it_is_not_asked_for_ever(monkeypatch):
    with pytest.raises(UnavailableLogError, match="Not leader"):
        bounds(monkeypatch, *[KafkaError.NOT_LEADER_FOR_PARTITION] * 99)


def test_a_refusal_is_told_at_once(monkeypatch):
    with pytest.raises(LogError, match=r'the offsets of topic "t": .* does not allow it'):
        bounds(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    "ask",
    [
        lambda brokers: brokers.describe(["orders"]),
        lambda brokers: brokers.bounds([("orders", 0)]),
        lambda brokers: brokers.since({("orders", 0): 1}),
        lambda brokers: brokers.names(),
        lambda brokers: brokers.id(),
        lambda brokers: brokers.meet(),
    ],
)
def test_no_broker_at_the_address_is_unavailable(ask):
    with pytest.raises(UnavailableLogError, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        ask(Cluster(NOWHERE, answer_s=0.3))


def test_who_waits_beside_is_called_while_nobody_answers(monkeypatch):
    """Nor are brokers asked why then: it would take seconds."""
    monkeypatch.setattr(cluster, "WAIT_S", 0.02)
    calls = []
    with pytest.raises(UnavailableLogError):
        Cluster(NOWHERE, answer_s=0.3, on_wait=lambda: calls.append(1)).topics(["orders"])
    assert len(calls) > 3


def test_nothing_is_asked_of_no_topic():
    nobody = Cluster(NOWHERE, answer_s=0.01)
    assert not nobody.describe([])
    assert not nobody.bounds([])
    assert not nobody.standing([])
