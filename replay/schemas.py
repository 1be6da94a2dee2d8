"""Which schemas a topic's records bear, from the registry.

Every version of the topic's value subject may stand on the log; the newest one is what rows are
read as. The key's subject must have one version only: the cleaner compares key bytes, which hold
the schema id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import httpx
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.contract.connection import RegistryConnection
from changelog.contract.errors import (
    CorruptRecordError,
    LogError,
    SchemaConflictError,
    UnavailableLogError,
)
from changelog.contract.schema import LoggedSchema, read_schema

_T = TypeVar("_T")
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """The schemas of a topic.

    Attributes:
        topic: its name.
        key_id: the pinned schema id of its keys.
        writers: each version of the value's schema, by its id.
        reader_id: id of the newest version.
        key: the schema of its keys.
    """

    topic: str
    key_id: int
    writers: Mapping[int, str]
    reader_id: int
    key: str = ""

    def of_keys(self) -> TopicSchemas:
        """Give the schemas under which keys are read as if they were values."""
        return TopicSchemas(self.topic, self.key_id, {self.key_id: self.key}, self.key_id, self.key)

    @property
    def reader(self) -> str:
        """Give the schema that rows are read as."""
        return self.writers[self.reader_id]

    def logged(self, schema_id: int) -> LoggedSchema:
        """Read one version."""
        return read_schema(self.writers[schema_id])


class SchemaReader:
    """Reads the schemas of topics from the registry, each once."""

    def __init__(self, registry: RegistryConnection) -> None:
        self._registry = registry
        self._client = SchemaRegistryClient.new_client(registry.client_config())

    def close(self) -> None:
        """Close the connection to the registry."""
        self._client.close()

    def of_topic(self, topic: str) -> TopicSchemas:
        """Give the schemas of a topic.

        Raises:
            SchemaConflictError: the key's subject has more than one version.
            LogError: a subject is not there, or the registry refuses.
            CorruptRecordError: a schema is not one that capture writes.
            UnavailableLogError: the registry does not answer.
        """
        keys = self._versions(f"{topic}-key")
        if len(keys) > 1:
            raise SchemaConflictError(
                f'subject "{topic}-key" has {len(keys)} schemas; a key\'s schema is pinned for '
                "the life of its topic",
                hint="find out what registers them; a new key needs a new topic",
            )
        values = self._versions(f"{topic}-value")
        (key_id, key), *_ = keys.items()
        schemas = TopicSchemas(topic, key_id, values, list(values)[-1], key)
        check_columns(schemas)
        return schemas

    def _versions(self, subject: str) -> dict[int, str]:
        """Give each version of a subject by its id, the oldest first."""
        numbers = self._ask(partial(self._client.get_versions, subject), subject)
        versions: dict[int, str] = {}
        for number in sorted(numbers):
            found = self._ask(partial(self._client.get_version, subject, number), subject)
            if found.schema_id is None or not found.schema.schema_str:
                raise CorruptRecordError(f'subject "{subject}", version {number}: no Avro schema')
            versions.pop(found.schema_id, None)  # a schema registered again is the newest again
            versions[found.schema_id] = found.schema.schema_str
        if not versions:
            raise self._missing(subject)
        return versions

    def _ask(self, question: Callable[[], _T], subject: str) -> _T:
        try:
            return question()
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                raise self._missing(subject) from error
            raise LogError(
                f"the schema registry at {self._registry} refuses: {error.error_message}"
            ) from error
        except (httpx.HTTPError, OSError) as error:
            raise UnavailableLogError(
                f"the schema registry at {self._registry} does not answer",
                hint="start it, or correct its address",
            ) from error

    def _missing(self, subject: str) -> LogError:
        return LogError(
            f'the schema registry at {self._registry} has no subject "{subject}"',
            hint="check that it is the registry that capture uses",
        )


def check_columns(schemas: TopicSchemas) -> None:
    """Refuse a table whose columns Spark cannot tell apart.

    Raises:
        LogError: two columns differ in the case of their letters alone.
        CorruptRecordError: the schema names no key.
    """
    schema = schemas.logged(schemas.reader_id)
    seen: dict[str, str] = {}
    for column in schema.columns:
        twin = seen.setdefault(column.column.lower(), column.column)
        if twin != column.column:
            raise LogError(
                f'table "{schema.table}" has columns "{twin}" and "{column.column}", which Spark '
                "does not tell apart",
                hint="exclude the table or rename one of the two",
            )
    if not set(schema.key) or not {each.lower() for each in schema.key} <= set(seen):
        raise CorruptRecordError(f'the schema of topic "{schemas.topic}" names no key of its own')
