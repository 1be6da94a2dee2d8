"""The schema registry: key schemas pinned for the life of a topic, value schemas by version."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import httpx
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.contract.connection import RegistryConnection
from changelog.contract.errors import LogError, SchemaConflictError, UnavailableLogError

_NOT_FOUND = 404
_CONFLICT = 409
_SERVER_ERROR = 500
_TIMEOUT_S = 15
_RETRIES = 2
T = TypeVar("T")


class Registry:
    """Registers the schemas of topics."""

    def __init__(self, connection: RegistryConnection) -> None:
        self._where = str(connection)
        self._client = SchemaRegistryClient(
            {
                **connection.client_config(),
                "timeout": _TIMEOUT_S,
                "max.retries": _RETRIES,
            }
        )
        self._ids: dict[tuple[str, str], int] = {}

    def register_key(self, topic: str, schema: str) -> int:
        """Give the id of a topic's key schema; the first one stays for the topic's life.

        The cleaner compares key bytes, and they hold the id: under another id the same row would
        be another key.

        Raises:
            SchemaConflictError: the topic has another key schema.
            UnavailableLogError: the registry does not answer.
        """
        subject = f"{topic}-key"
        if (subject, schema) in self._ids:
            return self._ids[subject, schema]
        pinned = self._first(subject)
        if pinned is None:
            return self._register(subject, schema)
        number, text = pinned
        if json.loads(text) != json.loads(schema):
            raise SchemaConflictError(
                f'subject "{subject}": the primary key is now {_fields(schema)}, '
                f"the topic's keys are {_fields(text)}",
                hint="capture the table under another --topic-prefix, or delete topic and subject",
            )
        self._ids[subject, schema] = number
        return number

    def register_value(self, topic: str, schema: str) -> int:
        """Give the id of a topic's value schema, registering it when it is new.

        Raises:
            SchemaConflictError: the registry refuses the schema as incompatible.
            UnavailableLogError: the registry does not answer.
        """
        return self._register(f"{topic}-value", schema)

    def _first(self, subject: str) -> tuple[int, str] | None:
        def ask() -> tuple[int, str] | None:
            try:
                versions = self._client.get_versions(subject)
                found = self._client.get_version(subject, min(versions))
            except SchemaRegistryError as error:
                if error.http_status_code == _NOT_FOUND:
                    return None
                raise
            assert found.schema_id is not None and found.schema is not None  # noqa: PT018, S101
            return found.schema_id, str(found.schema.schema_str)

        return self._asked(subject, ask)

    def _register(self, subject: str, schema: str) -> int:
        if (subject, schema) not in self._ids:
            wanted = Schema(schema, "AVRO")
            self._ids[subject, schema] = self._asked(
                subject, lambda: self._client.register_schema(subject, wanted)
            )
        return self._ids[subject, schema]

    def _asked(self, subject: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except SchemaRegistryError as error:
            said = f'subject "{subject}": {error.error_message}'
            if error.http_status_code == _CONFLICT:
                raise SchemaConflictError(
                    f"{said}", hint="the registry's compatibility setting forbids the new version"
                ) from error
            if error.http_status_code >= _SERVER_ERROR:
                raise UnavailableLogError(f"the schema registry fails: {said}") from error
            raise LogError(f"the schema registry refuses: {said}") from error
        except (httpx.HTTPError, OSError) as error:
            raise UnavailableLogError(
                f"no schema registry answers at {self._where}: {error}",
                hint="is it running, and the URL right?",
            ) from error


def _fields(schema: str) -> str:
    fields = json.loads(schema).get("fields", [])
    return "(" + ", ".join(str(field.get("column", field["name"])) for field in fields) + ")"
