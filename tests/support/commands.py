"""Fixtures of commands that go between topics and tables: both of them, and a command in here."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ChangelogError
from changelog.kafka.cluster import describe
from changelog.runtime.edge import one_line
from tests.support import sql
from tests.support.wait import wait_until

_TOPIC_S = 120


@pytest.fixture
def make_topic(kafka: KafkaConnection, prefix: str) -> Callable[..., str]:
    """Make a topic that keeps its records; returns its name."""

    def make(name: str = "t", partitions: int = 1) -> str:
        topic = f"{prefix}.{name}"
        admin = AdminClient({**kafka.client_config(), "log_level": 0})
        # Records of these tests may be years old, which others would be removed for.
        kept = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
        admin.create_topics([kept])[topic].result(_TOPIC_S)
        wait_until(
            lambda: topic in (found := describe(kafka, [topic])) and found[topic].led,
            _TOPIC_S,
            f"topic {topic}",
        )
        return topic

    return make


@pytest.fixture
def send(kafka: KafkaConnection) -> Callable[..., None]:
    """Write records: values, or pairs of a key and a value; what is no bytes becomes JSON."""

    def send(topic: str, *records: Any, headers: Any = None, timestamp: int = 0) -> None:
        producer = Producer({**kafka.client_config(), "log_level": 0})
        for each in records:
            key, value = each if isinstance(each, tuple) else (None, each)
            raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
            producer.produce(topic, key=key, value=raw, headers=headers, timestamp=timestamp)
        assert producer.flush(_TOPIC_S) == 0

    return send


@pytest.fixture
def execute(dsn: str) -> Callable[[str], list[tuple[Any, ...]]]:
    """Run a statement in a transaction of its own; returns its rows."""
    return partial(sql.execute, dsn)


Outcome = tuple[int, dict[str, Any], str]


@pytest.fixture
def run_command() -> Iterator[Callable[..., Outcome]]:
    """Run a command to its end: its code, its result and what it says went wrong."""
    from changelog.cli import app

    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def run(words: Sequence[str], env: Mapping[str, str] | None = None) -> Outcome:
        ran = CliRunner().invoke(app, [*words], env=env)
        if isinstance(ran.exception, ChangelogError):
            return ran.exception.exit_code, {}, one_line(ran.exception)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return ran.exit_code, json.loads(ran.stdout or "{}"), ran.stderr

    yield run
    for each, handler in handlers.items():
        signal.signal(each, handler)
