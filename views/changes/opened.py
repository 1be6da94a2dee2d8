"""A project's view to the feed of its changes."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx import HTTPError

from changelog.config import Project
from changelog.contract.base.errors import ConfigurationError, UnavailableError, ViewError
from changelog.kafka.clients import REQUEST_S
from replay.base.sections import warehouse_of
from views.changes.documents import Documents
from views.changes.feed import Feed
from views.generations.history import History
from views.generations.served import topic_prefix_of
from views.project.catalog import catalog_of
from views.sinks.topic.server import TopicServer


def opened_feed(project: Project, view: str) -> Feed:
    """Return the feed of a view's changes; it is closed by whoever asks for it.

    Raises:
        ViewError: there is no such view, or it has no topic that changes.
        SinkError: the brokers refuse, or do not answer.
    """
    spec = catalog_of(project).load(view)
    if "topic" not in spec.sinks:
        raise ViewError(
            f'view "{view}" has no topic, whose records its changes are',
            hint=f"add topic to its sinks, then rebuild-view {view}",
        )
    registry = project.registry if project.registry.url else None
    server = TopicServer(project.kafka, registry, REQUEST_S, REQUEST_S)
    is_json = spec.options.get("topic", {}).get("value") == "json"
    history = History(warehouse_of(project))

    def schema_of(schema_id: int) -> str:
        if registry is None:
            raise ConfigurationError("records in Avro need a registry: registry.url")
        try:
            with closing(SchemaRegistryClient.new_client(registry.client_config())) as client:
                return client.get_schema(schema_id).schema_str or ""
        except (SchemaRegistryError, HTTPError, OSError) as error:
            raise UnavailableError(f"the registry {registry} does not answer") from error

    def lsn_of(generation: int) -> str | None:
        rows = history.rows([view], generation=generation)
        return next((row.lsn for row in reversed(rows) if row.lsn is not None), None)

    return Feed(
        server,
        f"{topic_prefix_of(project)}.{view}",
        Documents(None if is_json else schema_of),
        lsn_of,
    )
