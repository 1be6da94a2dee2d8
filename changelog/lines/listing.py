"""Lists brokers, topics and offsets by time, as kcat's `-L` and `-Q` print them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.kafka.clients import REQUEST_S, reading_consumer
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import explained, log_error


def metadata_text(kafka: KafkaConnection, topic: str | None, *, as_json: bool) -> str:
    """Return the brokers and topics of a cluster, or one topic of it.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    found = _metadata(kafka, topic)
    if as_json:
        return json.dumps(_as_object(found, topic), ensure_ascii=False, separators=(",", ":"))
    return "\n".join(_lines(found, topic))


def _metadata(kafka: KafkaConnection, topic: str | None) -> ClusterMetadata:
    with explained("cannot list the topics"), _asker(kafka) as consumer:
        found: ClusterMetadata = consumer.list_topics(topic, timeout=REQUEST_S)
    return found


def _asker(kafka: KafkaConnection) -> closing[Consumer]:
    """Return a consumer, since a producer's question would make a topic on some clusters."""
    Cluster(kafka).meet()
    return closing(reading_consumer(kafka))


def _lines(found: ClusterMetadata, topic: str | None) -> Iterator[str]:
    origin = f"broker {found.orig_broker_id}: {found.orig_broker_name}"
    yield f"Metadata for {topic or 'all topics'} (from {origin}):"
    yield f" {len(found.brokers)} brokers:"
    for broker in found.brokers.values():
        own = " (controller)" if broker.id == found.controller_id else ""
        yield f"  broker {broker.id} at {broker.host}:{broker.port}{own}"
    yield f" {len(found.topics)} topics:"
    for each in found.topics.values():
        wrong = "" if each.error is None else f" {each.error.str()}"
        yield f'  topic "{each.topic}" with {len(each.partitions)} partitions:{wrong}'
        for partition in each.partitions.values():
            yield _line(partition)


def _line(partition: PartitionMetadata) -> str:
    replicas, isrs = (",".join(map(str, each)) for each in (partition.replicas, partition.isrs))
    wrong = "" if partition.error is None else f", {partition.error.str()}"
    return (
        f"    partition {partition.id}, leader {partition.leader}, replicas: {replicas}, "
        f"isrs: {isrs}{wrong}"
    )


def _as_object(found: ClusterMetadata, topic: str | None) -> dict[str, Any]:
    return {
        "originating_broker": {"id": found.orig_broker_id, "name": found.orig_broker_name},
        "query": {"topic": topic or "*"},
        "controllerid": found.controller_id,
        "brokers": [
            {"id": each.id, "name": f"{each.host}:{each.port}"} for each in found.brokers.values()
        ],
        "topics": [_topic_object(each) for each in found.topics.values()],
    }


def _topic_object(found: TopicMetadata) -> dict[str, Any]:
    partitions = [
        {
            "partition": each.id,
            **({} if each.error is None else {"error": each.error.str()}),
            "leader": each.leader,
            "replicas": [{"id": broker} for broker in each.replicas],
            "isrs": [{"id": broker} for broker in each.isrs],
        }
        for each in found.partitions.values()
    ]
    wrong = {} if found.error is None else {"error": found.error.str()}
    return {"topic": found.topic, **wrong, "partitions": partitions}


def parse_moment(text: str) -> TopicPartition:
    """Read `TOPIC:PARTITION:MS`.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        topic, partition, ms = text.split(":")
        return TopicPartition(topic, int(partition), int(ms))
    except ValueError:
        raise ConfigurationError(
            f'-t "{text}" is no TOPIC:PARTITION:MS', hint="such as -t orders:0:1769860800000"
        ) from None


def offsets_text(kafka: KafkaConnection, asked: Sequence[TopicPartition], *, as_json: bool) -> str:
    """Return the first offset since a time of each partition that is asked for; -1 for none.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse, or do not know the topic.
    """
    with explained("cannot find a time"), _asker(kafka) as consumer:
        found = consumer.offsets_for_times(sorted(asked), timeout=REQUEST_S)
    for each in found:
        if each.error is not None:
            raise log_error(each.error, f'cannot find a time in topic "{each.topic}"')
    if not as_json:
        return "\n".join(f"{each.topic} [{each.partition}] offset {each.offset}" for each in found)
    topics: dict[str, dict[str, Any]] = {}
    for each in found:
        of_topic = topics.setdefault(each.topic, {"topic": each.topic})
        of_topic[str(each.partition)] = {"partition": each.partition, "offset": each.offset}
    return json.dumps(topics, separators=(",", ":"))
