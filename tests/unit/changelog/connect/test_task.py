"""Which partitions a task reads, and from where, while topics come and go."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from changelog.connect import task
from changelog.connect.rules.settings import parse_settings
from changelog.connect.task import TaskShare, _check_exists, _partitions, _places
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.kafka.cluster import OffsetBounds

SINK = {"name": "s", "topics": "a", "connection.url": "postgresql://db/app"}


class Broker:
    """What a consumer is told: topics with their partitions or an error, and 3 to 9 of each."""

    def __init__(self, **topics):
        self._topics = topics

    def list_topics(self, topic, timeout):
        found = self._topics.get(topic, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        error = found if isinstance(found, KafkaError) else None
        partitions = {} if error else dict.fromkeys(range(found))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})

    def bounds(self, partitions, committed):
        return dict.fromkeys(partitions, OffsetBounds(3, 9))


class Places:
    def __init__(self, stored=()):
        self._stored, self.begun = dict(stored), {}

    def places(self):
        return self._stored

    def begin(self, places):
        self.begun |= places


def test_a_topic_that_is_not_there_is_left_to_wait_for():
    broker: Any = Broker(a=3, b=1)
    assert _partitions(broker, ["a", "no", "b"], TaskShare(0, 2)) == ([("a", 0), ("a", 2)], ["no"])


def test_a_topic_that_has_no_leader_yet_is_waited_for_as_a_server_is():
    broker: Any = Broker(a=KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    with pytest.raises(UnavailableLogError):
        _partitions(broker, ["a"], TaskShare(0, 1))


def test_one_that_is_gone_with_places_in_it_is_an_error():
    settings = parse_settings(SINK)
    target: Any = Places({("a", 1): 5})
    _check_exists(target, settings, ["b"])
    with pytest.raises(LogError, match='topic "a" no longer exists'):
        _check_exists(target, settings, ["b", "a"])


@pytest.mark.parametrize(("reset", "known"), [("latest", 9), ("earliest", 3)])
def test_one_that_was_waited_for_is_read_from_its_start(reset, known):
    settings = parse_settings({**SINK, "auto.offset.reset": reset})
    target: Any = Places()
    broker: Any = Broker()
    found = _places(broker, target, settings, [("a", 0), ("late", 0)], {"late"})
    assert found == target.begun == {("a", 0): known, ("late", 0): 3}


def test_a_reason_to_wait_is_told_once_while_it_is_the_same(monkeypatch, caplog):
    reasons = ["no server"] * 3 + ["no leader", "no server"]
    stop = threading.Event()
    waited: list[str] = []

    def attempt(*_, **__):
        if not reasons:
            stop.set()
            return
        raise UnavailableLogError(reasons.pop(0))

    monkeypatch.setattr(task, "_attempt", attempt)
    monkeypatch.setattr(task, "_AGAIN_S", 0.0)
    kafka, settings = KafkaConnection(brokers="127.0.0.1:1"), parse_settings(SINK)
    task.run_task(
        kafka,
        settings,
        TaskShare(0, 1),
        stop,
        registry=None,
        started=lambda: None,
        waits=waited.append,
    )
    told = [each.message for each in caplog.records if "waiting" in each.message]
    assert told == ["s: waiting: no server", "s: waiting: no leader", "s: waiting: no server"]
    assert len(waited) == 5
