"""The topics that capture writes, with their settings, and the store of their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from changelog.capture.write.messages import KEPT_FOR_EVER
from changelog.config import Project
from changelog.contract.log.form import Output
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.topic import (
    ddl_topic,
    frontier_topic,
    messages_topic,
    schema_topic,
    sequences_topic,
)
from changelog.contract.rows.relation import Relation, TableName
from changelog.sink.frontier import FrontierLog
from changelog.sink.topics import FRONTIER_SETTINGS, TopicPlan, plan_topics, say_unlike

if TYPE_CHECKING:
    from changelog.sink.registry import SchemaRegistry
    from changelog.sink.schema_topic import SchemaTopic


def topic_plans(
    settings: Project,
    relations: Mapping[TableName, Relation],
    names: Mapping[TableName, str],
    last: Frontier | None = None,
) -> tuple[TopicPlan, TopicPlan]:
    """Return the plans of the compacted topics (tables, frontiers, schemas) and of the log topics.

    Topics of the last frontier whose settings were changed since do not stop a start, as they do
    not stop a running capture. Readers refuse them, and `changelog status` names them.

    Raises TopicSettingsError: other topics have wrong settings; LogError: the brokers would not
    create the missing topics.
    """
    capture, topics = settings.capture, names.values()
    own = [frontier_topic(capture.topic_prefix)]
    if capture.form.output is Output.JSON:
        own.append(schema_topic(capture.topic_prefix))
    if capture.sequences:
        own.append(sequences_topic(capture.topic_prefix))
    logs: dict[str, dict[str, str]] = {}
    if capture.messages:
        logs[messages_topic(capture.topic_prefix)] = {}
    if capture.ddl:
        logs[ddl_topic(capture.topic_prefix)] = KEPT_FOR_EVER
    tables = plan_topics(
        settings.kafka,
        {**dict.fromkeys(topics, capture.partitions), **dict.fromkeys(own, 1)},
        replication=capture.replication_factor,
        settings=capture.topics,
        fix=capture.fix_topics,
        extra={
            **dict.fromkeys(topics, capture.topic),
            **{name: {**capture.topic, **FRONTIER_SETTINGS} for name in own},
        },
        unkeyed={names[name] for name, relation in relations.items() if not relation.key},
        known_ids=last.topic_ids if last is not None else {},
    )
    say_unlike({name: tables.there[name] for name in topics if name in tables.there}, capture.topic)
    # One partition each, so that their order is that of the WAL.
    return tables, plan_topics(
        settings.kafka,
        dict.fromkeys(logs, 1),
        replication=capture.replication_factor,
        settings=replace(capture.topics, compacted=False),
        fix=capture.fix_topics,
        unkeyed=logs,
        extra={name: {**capture.topic, **own} for name, own in logs.items()},
        known_ids=last.topic_ids if last is not None else {},
    )


def schemas_of(settings: Project, frontiers: FrontierLog) -> SchemaRegistry | SchemaTopic:
    """Return the store of schemas: documents have no schema id, so they need no registry."""
    if settings.capture.form.output is Output.AVRO:
        # Loaded late: it is a third of all imports of a start, and needed only here.
        from changelog.sink.registry import SchemaRegistry  # noqa: PLC0415

        return SchemaRegistry(settings.registry)
    from changelog.sink.schema_topic import SchemaTopic  # noqa: PLC0415

    topic = schema_topic(settings.capture.topic_prefix)
    return SchemaTopic(settings.kafka, topic, frontiers)
