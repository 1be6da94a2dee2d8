"""Where a group stands: `changelog.lines.group`."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.lines.group import GroupPlaces
from changelog.lines.place import Bounds
from changelog.lines.progress import ReadProgress


class Coordinator:
    """Keeps a group's places as the client is told them."""

    def __init__(self, **places):
        self.places = {int(name[1:]): place for name, place in places.items()}

    def committed(self, asked, timeout):
        return [
            TopicPartition("t", p.partition, self.places.get(p.partition, -1001)) for p in asked
        ]

    def commit(self, offsets, asynchronous):
        self.places |= {each.partition: each.offset for each in offsets}
        return offsets


def group(**places) -> Any:
    progress = ReadProgress()
    progress.take(dict.fromkeys(range(3), 0), dict.fromkeys(range(3)))
    return GroupPlaces("g", "t", progress), progress, Coordinator(**places)


def test_a_place_is_stored_once_it_has_moved():
    places, progress, coordinator = group(_0=0, _1=0, _2=0)
    assert places.find(coordinator, [0, 1, 2]) == {0: 0, 1: 0, 2: 0}
    coordinator.places.clear()
    progress.places[1] = 5
    places.store(coordinator)
    assert coordinator.places == {1: 5}
    coordinator.places.clear()
    places.store(coordinator)
    assert coordinator.places == {}


def test_what_was_lost_and_comes_back_goes_on_where_it_was_shown():
    places, progress, coordinator = group(_0=3)
    progress.places |= {0: 7, 1: 4}
    places.lose([0, 1, 2])
    progress.forget([0, 1, 2])
    places.forget([0, 1, 2])
    assert places.find(coordinator, [0, 1]) == {0: 7, 1: 4}
    coordinator.places = {0: 9}
    assert places.find(coordinator, [0]) == {0: 9}, "another member was further"


def test_an_answer_says_whether_to_ask_again():
    places, progress, coordinator = group()
    progress.places[0] = 2
    places.answered(KafkaError(KafkaError.REBALANCE_IN_PROGRESS), [])
    places.answered(KafkaError(KafkaError._TRANSPORT), [])
    assert places.refusal is None
    places.answered(None, [TopicPartition("t", 0, 2), TopicPartition("t", 1, 0)])
    places.store(coordinator)
    assert coordinator.places == {2: 0}
    places.answered(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), [])
    assert isinstance(places.refusal, LogError)


def test_brokers_that_are_away_are_not_asked():
    places, _, coordinator = group()
    places.is_away = True
    places.store_aside(coordinator)
    with pytest.raises(UnavailableLogError, match="the last lines will be shown once more"):
        places.store(coordinator)
    assert coordinator.places == {}


def test_a_place_that_is_gone_is_named():
    places, *_ = group()
    bounds = {0: Bounds(4, 6), 1: Bounds(0, 6)}
    assert places.gone({0: 4, 1: 6}, bounds) is None
    assert "2 of partition 0, which has 4 to 6" in str(places.gone({0: 2, 1: 3}, bounds))


def test_without_a_group_nothing_is_asked():
    _, _, coordinator = group(_0=1)
    places = GroupPlaces("", "t", ReadProgress())
    assert places.find(coordinator, [0]) == {}
    places.store(coordinator)
