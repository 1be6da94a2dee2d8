"""The schema registry: key schemas pinned for the life of a topic, value schemas by version."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import httpx
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.contract.connection import RegistryConnection
from changelog.contract.errors import (
    ConfigurationError,
    LogError,
    RefusedAccessError,
    SchemaConflictError,
    UnavailableLogError,
)
from changelog.contract.secret import redacted

_NOT_FOUND = 404
_REFUSED = {409, 422}
_NOT_LET_IN = {401, 403}
_TOO_MANY = 429
_FORBIDDEN = "the registry's compatibility setting forbids the new version"
_SERVER_ERROR = 500
_TIMEOUT_S = 15
_RETRIES = 2
_RETRY_WAIT_MS = 200
T = TypeVar("T")


class Registry:
    """Registers the schemas of topics."""

    def __init__(self, connection: RegistryConnection) -> None:
        """Make the client; it connects at the first request.

        Raises:
            ConfigurationError: the URL or an option cannot be used.
        """
        self._where = str(connection)
        try:
            self._client = SchemaRegistryClient(
                {
                    **connection.client_config(),
                    "timeout": _TIMEOUT_S,
                    "max.retries": _RETRIES,
                    "retries.wait.ms": _RETRY_WAIT_MS,
                }
            )
        except (ValueError, TypeError, OSError) as error:
            raise ConfigurationError(
                redacted(f"the schema registry {self._where} cannot be used: {error}"),
                hint="its URL starts with http:// or https://; options are confluent-kafka's",
            ) from None
        self._ids: dict[tuple[str, str], int] = {}

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

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
        pinned = self._pinned(subject, schema)
        if pinned is None:
            return self._register(subject, schema)
        self._ids[subject, schema] = pinned
        return pinned

    def register_value(self, topic: str, schema: str) -> int:
        """Give the id of a topic's value schema, registering it when it is new.

        Raises:
            SchemaConflictError: the registry refuses the schema as incompatible.
            UnavailableLogError: the registry does not answer.
        """
        return self._register(f"{topic}-value", schema)

    def check(self, topic: str, key: str | None, value: str) -> None:
        """Check that the schemas of a topic would be taken; registers nothing.

        Raises:
            SchemaConflictError: the topic has another key schema, or the registry would refuse
                the value's.
            UnavailableLogError: the registry does not answer.
        """
        if key is not None:
            self._pinned(f"{topic}-key", key)
        subject, wanted = f"{topic}-value", Schema(value, "AVRO")
        if self.has_value(topic, value) or self.latest_value(topic) is None:
            return
        fits = self._asked(
            subject, lambda: self._client.test_compatibility_all_versions(subject, wanted)
        )
        if not fits:
            raise SchemaConflictError(
                f'subject "{subject}": its new version cannot be read beside the older ones',
                hint=_FORBIDDEN,
            )

    def latest_value(self, topic: str) -> str | None:
        """Give the newest value schema of a topic, None when it has none.

        Raises:
            UnavailableLogError: the registry does not answer.
        """

        def ask() -> str:
            return str(self._client.get_latest_version(f"{topic}-value").schema.schema_str)

        return self._asked(f"{topic}-value", lambda: _or_none(ask))

    def has_value(self, topic: str, schema: str) -> bool:
        """Tell whether some version of a topic's value schema is this one.

        Raises:
            UnavailableLogError: the registry does not answer.
        """
        subject, wanted = f"{topic}-value", Schema(schema, "AVRO")
        if (subject, schema) in self._ids:
            return True
        found = self._asked(
            subject, lambda: _or_none(lambda: self._client.lookup_schema(subject, wanted))
        )
        return found is not None

    def _pinned(self, subject: str, schema: str) -> int | None:
        """Give the id of the first schema of keys, None when there is none; it must be this one."""
        pinned = self._first(subject)
        if pinned is None:
            return None
        number, text = pinned
        if not same_schema(text, schema):
            raise SchemaConflictError(
                f'subject "{subject}": the primary key is now {described(schema)}, '
                f"the topic's keys are {described(text)}",
                hint="capture the table under another --topic-prefix, or delete topic and subject",
            )
        return number

    def _first(self, subject: str) -> tuple[int, str] | None:
        def ask() -> tuple[int, str]:
            versions = self._client.get_versions(subject)
            found = self._client.get_version(subject, min(versions))
            assert found.schema_id is not None and found.schema is not None  # noqa: PT018, S101
            return found.schema_id, str(found.schema.schema_str)

        return self._asked(subject, lambda: _or_none(ask))

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
            said = redacted(f'subject "{subject}": {error.error_message}')
            if error.http_status_code in _REFUSED:
                raise SchemaConflictError(said, hint=_FORBIDDEN) from error
            if error.http_status_code in _NOT_LET_IN:
                raise RefusedAccessError(
                    f"the schema registry {self._where} does not let us in: {said}",
                    hint="look at basic.auth.user.info, or the token, in [registry.options]",
                ) from error
            if error.http_status_code == _TOO_MANY or error.http_status_code >= _SERVER_ERROR:
                raise UnavailableLogError(f"the schema registry fails: {said}") from error
            raise LogError(f"the schema registry refuses: {said}") from error
        except (httpx.HTTPError, OSError) as error:
            said = redacted(str(error))
            if "SSL" in said:
                raise RefusedAccessError(
                    f"no TLS with the schema registry {self._where}: {said}",
                    hint="ssl.ca.location in [registry.options] has to hold the authority of its "
                    "certificate, and that has to name the host of the URL",
                ) from error
            raise UnavailableLogError(
                f"no schema registry answers at {self._where}: {said}",
                hint="is it running, and the URL right, with https:// where it wants TLS?",
            ) from error


def _or_none(ask: Callable[[], T]) -> T | None:
    """Ask; None when the subject or the schema does not exist."""
    try:
        return ask()
    except SchemaRegistryError as error:
        if error.http_status_code == _NOT_FOUND:
            return None
        raise


def same_schema(one: str, other: str) -> bool:
    """Tell whether two schemas are the same JSON; a registry may lay it out anew.

    Nothing is left out of the comparison: attributes and their values carry meaning here.
    """
    return _canonical(one) == _canonical(other)


def _canonical(schema: str) -> str:
    try:
        # Compared as text, since for Python `1 == True == 1.0`.
        return json.dumps(json.loads(schema), sort_keys=True)
    except ValueError:
        return schema


def described(schema: str) -> str:
    """Give a key schema's columns with their types, for people; whole when it is not ours."""
    try:
        raw = json.loads(schema)
        fields = [f"{field['column']} {field['pg_type']}" for field in raw["fields"]]
        return f"({', '.join(fields)}) of {'.'.join(raw['relation'])}"
    except (ValueError, KeyError, TypeError):
        return schema
