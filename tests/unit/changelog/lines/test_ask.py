"""Where partitions begin and end, of brokers that have just become their leaders."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.lines import ask
from changelog.lines.place import Bounds

NOWHERE = KafkaConnection(brokers="127.0.0.1:1")


class Admin:
    """Answers with errors first, then that partitions begin and end at 7."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def list_offsets(self, asked, **_):
        futures: dict[object, Future[SimpleNamespace]] = {place: Future() for place in asked}
        for future in futures.values():
            if self.errors:
                future.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
            else:
                future.set_result(SimpleNamespace(offset=7))
        return futures


def bounds(monkeypatch, *errors):
    admin = Admin(*errors)
    monkeypatch.setattr(ask, "admin_client", lambda _: admin)
    monkeypatch.setattr(ask, "_AGAIN_S", 0)
    return ask.bounds_of(NOWHERE, "t", [0])


def test_a_leader_that_does_not_know_it_yet_is_asked_again(monkeypatch):
    busy = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE
    assert bounds(monkeypatch, *busy) == {0: Bounds(7, 7)}


def test_it_is_not_asked_for_ever(monkeypatch):
    monkeypatch.setattr(ask, "REQUEST_S", 0)
    with pytest.raises(UnavailableLogError, match="Not leader"):
        bounds(monkeypatch, *[KafkaError.NOT_LEADER_FOR_PARTITION] * 9)


def test_a_refusal_is_told_at_once(monkeypatch):
    with pytest.raises(LogError, match="begins and ends"):
        bounds(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)
