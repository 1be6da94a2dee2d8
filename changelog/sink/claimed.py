"""Topics that captures and rebuilds write: a record of anybody else there is none of theirs.

A rebuild refuses a topic with one, and a frontier or a lock that is none stops what reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, LogError
from changelog.contract.log.topic import check_not_kept, frontier_topic, locks_topic, own_topics
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import is_forbidden
from changelog.sink.frontier import FrontierLog

_HINT = "choose a topic of another name; `changelog topics --create TOPIC` makes one"


def check_unclaimed(kafka: KafkaConnection, topic: str) -> None:
    """Check that neither a capture nor a rebuild, a worker or the brokers write to a topic.

    A capture tells by its last frontier which topics are its own. Its frontiers are looked for
    under each prefix that the topic's name can have; where the user may not read them, nobody says.

    Raises:
        ConfigurationError: one does.
        UnavailableLogError: no broker answers.
        LogError: they refuse.
    """
    with _passing_over_what_is_forbidden():
        check_not_kept([topic], Cluster(kafka).topics)
    parts = topic.split(".")
    for prefix in (".".join(parts[:count]) for count in range(len(parts))):
        with _passing_over_what_is_forbidden():
            _check_prefix(kafka, prefix, topic)


@contextmanager
def _passing_over_what_is_forbidden() -> Iterator[None]:
    try:
        yield
    except LogError as error:
        if not is_forbidden(error.__cause__):
            raise


def _check_prefix(kafka: KafkaConnection, prefix: str, topic: str) -> None:
    frontiers, name = frontier_topic(prefix), own_topics(prefix).get(topic)
    is_reserved = topic in {frontiers, locks_topic(prefix)}
    is_there = is_reserved or frontiers in Cluster(kafka).topics([frontiers])
    if name is not None and is_there:
        raise ConfigurationError(
            f'topic "{topic}" is where captures and rebuilds keep {name}', hint=_HINT
        )
    if not is_there:
        return
    with FrontierLog(kafka, frontiers) as log:
        for slot in log.slots():
            record, backfill = log.last(slot), log.backfill(slot)
            tables = {} if record is None else dict(record.frontier.tables)
            if backfill is not None:
                tables |= {name: copy.table for name, copy in backfill.tables.items()}
            if topic in tables:
                raise ConfigurationError(
                    f'topic "{topic}" is where the capture of slot "{slot}" writes the table '
                    f"{tables[topic].said}",
                    hint=_HINT,
                )
