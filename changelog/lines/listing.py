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

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    metadata = _metadata(kafka, topic)
    if as_json:
        return json.dumps(_as_object(metadata, topic), ensure_ascii=False, separators=(",", ":"))
    return "\n".join(_lines(metadata, topic))


def _metadata(kafka: KafkaConnection, topic: str | None) -> ClusterMetadata:
    with explained("cannot list the topics"), _asker(kafka) as consumer:
        metadata: ClusterMetadata = consumer.list_topics(topic, timeout=REQUEST_S)
    return metadata


def _asker(kafka: KafkaConnection) -> closing[Consumer]:
    """Return a consumer, since a producer's question would make a topic on some clusters."""
    Cluster(kafka).meet()
    return closing(reading_consumer(kafka))


def _lines(metadata: ClusterMetadata, topic: str | None) -> Iterator[str]:
    origin = f"broker {metadata.orig_broker_id}: {metadata.orig_broker_name}"
    yield f"Metadata for {topic or 'all topics'} (from {origin}):"
    yield f" {len(metadata.brokers)} brokers:"
    for broker in metadata.brokers.values():
        own = " (controller)" if broker.id == metadata.controller_id else ""
        yield f"  broker {broker.id} at {broker.host}:{broker.port}{own}"
    yield f" {len(metadata.topics)} topics:"
    for entry in metadata.topics.values():
        wrong = "" if entry.error is None else f" {entry.error.str()}"
        yield f'  topic "{entry.topic}" with {len(entry.partitions)} partitions:{wrong}'
        for partition in entry.partitions.values():
            yield _line(partition)


def _line(partition: PartitionMetadata) -> str:
    replicas, isrs = (
        ",".join(map(str, brokers)) for brokers in (partition.replicas, partition.isrs)
    )
    wrong = "" if partition.error is None else f", {partition.error.str()}"
    return (
        f"    partition {partition.id}, leader {partition.leader}, replicas: {replicas}, "
        f"isrs: {isrs}{wrong}"
    )


def _as_object(metadata: ClusterMetadata, topic: str | None) -> dict[str, Any]:
    return {
        "originating_broker": {"id": metadata.orig_broker_id, "name": metadata.orig_broker_name},
        "query": {"topic": topic or "*"},
        "controllerid": metadata.controller_id,
        "brokers": [
            {"id": broker.id, "name": f"{broker.host}:{broker.port}"}
            for broker in metadata.brokers.values()
        ],
        "topics": [_topic_object(entry) for entry in metadata.topics.values()],
    }


def _topic_object(entry: TopicMetadata) -> dict[str, Any]:
    partitions = [
        {
            "partition": partition.id,
            **({} if partition.error is None else {"error": partition.error.str()}),
            "leader": partition.leader,
            "replicas": [{"id": broker} for broker in partition.replicas],
            "isrs": [{"id": broker} for broker in partition.isrs],
        }
        for partition in entry.partitions.values()
    ]
    wrong = {} if entry.error is None else {"error": entry.error.str()}
    return {"topic": entry.topic, **wrong, "partitions": partitions}


def parse_moment(text: str) -> TopicPartition:
    """Read `TOPIC:PARTITION:MS`; raises ConfigurationError if it is none."""
    try:
        topic, partition, ms = text.split(":")
        return TopicPartition(topic, int(partition), int(ms))
    except ValueError:
        raise ConfigurationError(
            f'-t "{text}" is no TOPIC:PARTITION:MS', hint="such as -t orders:0:1769860800000"
        ) from None


def offsets_text(kafka: KafkaConnection, times: Sequence[TopicPartition], *, as_json: bool) -> str:
    """Return the first offset since a time of each partition that is asked for; -1 for none.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse, or do not know the
    topic.
    """
    with explained("cannot find a time"), _asker(kafka) as consumer:
        answers = consumer.offsets_for_times(sorted(times), timeout=REQUEST_S)
    for answer in answers:
        if answer.error is not None:
            raise log_error(answer.error, f'cannot find a time in topic "{answer.topic}"')
    if not as_json:
        return "\n".join(
            f"{answer.topic} [{answer.partition}] offset {answer.offset}" for answer in answers
        )
    topics: dict[str, dict[str, Any]] = {}
    for answer in answers:
        of_topic = topics.setdefault(answer.topic, {"topic": answer.topic})
        of_topic[str(answer.partition)] = {"partition": answer.partition, "offset": answer.offset}
    return json.dumps(topics, separators=(",", ":"))
