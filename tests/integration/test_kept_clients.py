"""Clients that are kept between questions find what new ones find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import key_schema
from changelog.kafka.clients import KeptKafka
from replay.broker.topics import inspect
from tests.support.builders import make_relation
from tests.support.handmade_log import HandmadeLog
from tests.support.log_readers import by_tasks, by_verifier
from tests.support.services import own_broker

THINGS = make_relation(name=TableName("public", "things"))


class Asked:
    """A log that is written on, and asked by clients that are kept and by others."""

    def __init__(self, log: HandmadeLog, kept: KeptKafka) -> None:
        self.log, self.kept = log, kept
        self.topic = log.topics[THINGS.name]
        self.key_id = log.register(f"{self.topic}-key", key_schema(THINGS))
        self.frontiers: list[Any] = []

    def write(self, first: int) -> None:
        for number in range(first, first + 50):
            self.log.put(THINGS, (str(number), f"row {number}"))
            self.log.put(THINGS, (str(number // 2), f"again {number}"))
        self.log.delete(THINGS, (str(first + 7),))
        self.frontiers.append(self.log.frontier())

    def require_alike(self) -> None:
        """Compare at each frontier so far: behind the older ones there are more records."""
        for frontier in self.frontiers:
            at = frontier, self.topic, self.key_id
            for read in (by_tasks, by_verifier):
                kept, new = SimpleNamespace(kafka=self.kept), SimpleNamespace(kafka=self.log.kafka)
                assert read(kept, *at) == read(new, *at)
        assert inspect(self.kept, [self.topic]) == inspect(self.log.kafka, [self.topic])


@contextmanager
def asked(kafka: KafkaConnection, registry, prefix: str) -> Iterator[Asked]:
    with closing(KeptKafka.of(kafka)) as kept:
        yield Asked(HandmadeLog(kafka, registry, [THINGS], prefix=prefix, partitions=3), kept)


def test_what_is_kept_reads_range_after_range(kafka, registry, prefix):
    with asked(kafka, registry, prefix) as made:
        for first in (0, 30, 60):
            made.write(first)
            made.require_alike()


@pytest.mark.matrix
def test_what_is_kept_goes_on_when_the_broker_comes_back(registry, prefix):
    with own_broker() as server:
        kafka = KafkaConnection(brokers=f"127.0.0.1:{server.port}")
        with asked(kafka, registry, prefix) as made:
            made.write(0)
            made.require_alike()
            for end in (server.stop, server.kill):
                end()
                server.start()
                made.write(40)
                made.require_alike()
