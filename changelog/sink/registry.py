"""The schema registry: key schemas pinned for the life of a topic, value schemas by version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    CorruptRecordError,
    KeyConflictError,
    LogError,
    RefusedAccessError,
    SchemaConflictError,
    UnavailableLogError,
)
from changelog.contract.base.secret import redacted
from changelog.contract.rows.evolution import SchemaVersion
from changelog.runtime.bounded_answers import bound
from changelog.runtime.http_modules import NO_ANSWER

_NOT_FOUND = 404
_REFUSED = {409, 422}
_NOT_LET_IN = {401, 403}
_TOO_MANY = 429
_FORBIDDEN = "the subject's compatibility setting forbids the new version"
_SERVER_ERROR = 500
_RETRIES = 2
_RETRY_WAIT_MS = 200
VALUE_LEVEL = "BACKWARD"  # what a value's new version must read: see docs/decisions/0016

KEY_LEVEL = "FULL"
"""For the subject of a key, which never has a second version: as much as there is."""

_OURS = {None, "NONE", VALUE_LEVEL}
T = TypeVar("T")


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it."""

    kind: str  # AVRO, JSON or PROTOBUF
    text: str  # the schema


class SchemaRegistry:
    """Registers the schemas of topics; UnavailableLogError: the registry does not answer."""

    def __init__(self, connection: RegistryConnection) -> None:
        """Make the client; it connects at the first request.

        Raises ConfigurationError: the URL or an option cannot be used.
        """
        self._where = str(connection)
        try:
            self._client = SchemaRegistryClient(
                {
                    **connection.client_config(),
                    "max.retries": _RETRIES,
                    "retries.wait.ms": _RETRY_WAIT_MS,
                }
            )
            bound(self._client._rest_client.session)
        except (ValueError, TypeError, OSError) as error:
            raise ConfigurationError(
                redacted(f"the schema registry {self._where} cannot be used: {error}"),
                hint="its URL starts with http:// or https://; options are confluent-kafka's",
            ) from None
        self._ids: dict[tuple[str, str], int] = {}
        self._values: dict[str, list[SchemaVersion]] = {}

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def forget(self) -> None:
        """Forget the client's answers, so that the registry itself is asked."""
        self._client.clear_caches()  # type: ignore[no-untyped-call]

    def register_key(self, topic: str, schema: str) -> int:
        """Return the id of a topic's key schema; the first one stays for the topic's life.

        The cleaner compares key bytes, and they hold the id: under another id the same row would
        be another key.

        Raises SchemaConflictError: the topic has another key schema.
        """
        subject = f"{topic}-key"
        if (subject, schema) in self._ids:
            return self._ids[subject, schema]
        pinned = self._pinned(subject, schema)
        if pinned is None:
            pinned = self._register(subject, schema)
            self._guard(subject, KEY_LEVEL, is_new=True)
        self._ids[subject, schema] = pinned
        return pinned

    def key_id(self, topic: str) -> int | None:
        """Return the id of a topic's key schema, or None where none is registered."""
        pinned = self._first(f"{topic}-key")
        return None if pinned is None else pinned[0]

    def register_value(self, topic: str, schema: str, *, fresh: bool = False) -> int:
        """Return the id of a topic's value schema, registering it when it is new.

        With `fresh` all rows are written anew under it, so that it need not be compatible with
        those before it.

        Raises SchemaConflictError: the registry refuses the schema as incompatible.
        """
        subject = f"{topic}-value"
        if (subject, schema) not in self._ids:
            versions = self.values(topic)
            is_first = not versions
            if not is_first:
                self._guard(subject, VALUE_LEVEL)
            try:
                number = self._register(subject, schema)
            except SchemaConflictError:
                if not fresh or self._level(subject) not in _OURS:
                    raise
                number = self._register_unguarded(subject, schema)
            if is_first:
                self._guard(subject, VALUE_LEVEL, is_new=True)
            versions.append(SchemaVersion.of(schema, number))
        return self._ids[subject, schema]

    def check_key(self, topic: str, schema: str) -> None:
        """Check that a topic's keys have this schema, or none yet; registers nothing.

        Raises SchemaConflictError: they have another.
        """
        self._pinned(f"{topic}-key", schema)

    def check_value(self, topic: str, schema: str, *, fresh: bool = False) -> None:
        """Check that `register_value` would be taken; registers nothing.

        Raises SchemaConflictError: the registry would refuse the schema as incompatible.
        """
        subject, registered = f"{topic}-value", Schema(schema, "AVRO")
        if not self.values(topic) or (fresh and self._level(subject) in _OURS):
            return
        fits = self._ask_about(
            subject, lambda: self._client.test_compatibility_all_versions(subject, registered)
        )
        if not fits:
            raise SchemaConflictError(
                f'subject "{subject}": its new version cannot be read beside the older ones',
                hint=_FORBIDDEN,
            )

    def values(self, topic: str) -> list[SchemaVersion]:
        """Return the versions of a topic's value schema, the oldest first.

        Raises CorruptRecordError: one is not ours.
        """
        subject = f"{topic}-value"
        if topic not in self._values:
            self._values[topic] = self._ask_about(
                subject, lambda: _or_none(lambda: self._read(subject)) or []
            )
        return self._values[topic]

    def schema(self, number: int) -> RegisteredSchema:
        """Return the schema of an id, whatever its subject.

        Raises CorruptRecordError: the registry does not know it, or it needs others.
        """
        name = f"schema {number}"
        schema = self._ask(name, lambda: _or_none(lambda: self._client.get_schema(number)))
        if schema is None:
            raise CorruptRecordError(
                f"the schema registry {self._where} does not know {name}",
                hint="is it the registry of those who write the topic?",
            )
        if schema.references:
            raise CorruptRecordError(f"{name} of the registry refers to other schemas")
        return RegisteredSchema(schema.schema_type or "AVRO", str(schema.schema_str))

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject, whoever wrote it, or None without one."""
        schema = self._ask_about(
            subject, lambda: _or_none(lambda: self._client.get_latest_version(subject).schema)
        )
        if schema is None:
            return None
        return RegisteredSchema(schema.schema_type or "AVRO", str(schema.schema_str))

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of another program's schema under a subject, registering it when it is new.

        Raises SchemaConflictError: the registry refuses it.
        """
        registered = Schema(schema.text, schema.kind)
        return self._ask_about(subject, lambda: self._client.register_schema(subject, registered))

    def is_version(self, subject: str, schema: RegisteredSchema) -> bool:
        """Return whether a schema is registered under a subject."""
        registered = Schema(schema.text, schema.kind)
        return (
            self._ask_about(
                subject, lambda: _or_none(lambda: self._client.lookup_schema(subject, registered))
            )
            is not None
        )

    def present(self, subjects: Iterable[str]) -> list[str]:
        """Return the existing ones of some subjects, in order."""
        there = set(self._ask("subjects", self._client.get_subjects))
        return sorted(there & set(subjects))

    def lost(self, topics: Mapping[str, int | None]) -> list[str]:
        """Return the topics that lack a subject, or whose keys have another id there.

        One question where all is well. A registry may keep names from us: each that is missing is
        asked for by itself. Each topic has the id of its keys' schema, None without one.
        """
        subjects = [f"{topic}-value" for topic in topics]
        subjects += [f"{topic}-key" for topic, number in topics.items() if number is not None]
        missing = {*subjects} - {*self.present(subjects)}
        return sorted(
            topic
            for topic, number in topics.items()
            if (f"{topic}-value" in missing and self._first(f"{topic}-value") is None)
            or (f"{topic}-key" in missing and self.key_id(topic) != number)
        )

    def remove(self, subject: str) -> None:
        """Remove a subject with all its versions, for good; none there is no error.

        Raises LogError: the registry refuses, such as one that is read-only.
        """
        for permanent in (False, True):  # a registry removes for good what is marked as removed
            self._ask_about(
                subject,
                lambda permanent=permanent: _or_none(  # type: ignore[misc]
                    lambda: self._client.delete_subject(subject, permanent=permanent)
                ),
            )

    def _read(self, subject: str) -> list[SchemaVersion]:
        versions = [
            self._client.get_version(subject, number)
            for number in sorted(self._client.get_versions(subject))
        ]
        return [
            SchemaVersion.of(str(version.schema.schema_str), version.schema_id or 0)
            for version in versions
        ]

    def _guard(self, subject: str, level: str, *, is_new: bool = False) -> None:
        """Set what a subject must be compatible with, where nobody has.

        Some registries do not tell a subject without a setting from one that is set to NONE; then
        a subject that we have just made is without.
        """
        current = self._level(subject)
        if current is None or (is_new and current == "NONE"):
            self._ask_about(subject, lambda: self._client.set_compatibility(subject, level))

    def _level(self, subject: str) -> str | None:
        level = self._ask_about(
            subject, lambda: _or_none(lambda: self._client.get_compatibility(subject))
        )
        return None if level is None else str(level)

    def _register_unguarded(self, subject: str, schema: str) -> int:
        self._ask_about(subject, lambda: self._client.set_compatibility(subject, "NONE"))
        try:
            return self._register(subject, schema)
        finally:
            self._ask_about(subject, lambda: self._client.set_compatibility(subject, VALUE_LEVEL))

    def _pinned(self, subject: str, schema: str) -> int | None:
        """Return the id of the first key schema, or None; it must be this schema."""
        pinned = self._first(subject)
        if pinned is None:
            return None
        number, text = pinned
        if not same_schema(text, schema):
            raise KeyConflictError(
                f'subject "{subject}": the primary key is now {described(schema)}, '
                f"the topic's keys are {described(text)}",
                hint="stop capture, delete the topic and its subjects, -key and -value, and start "
                "with `--on-incompatible resnapshot`; or give the table its old key again",
            )
        return number

    def _first(self, subject: str) -> tuple[int, str] | None:
        def ask() -> tuple[int, str]:
            versions = self._client.get_versions(subject)
            version = self._client.get_version(subject, min(versions))
            assert version.schema_id is not None and version.schema is not None  # noqa: PT018, S101
            return version.schema_id, str(version.schema.schema_str)

        return self._ask_about(subject, lambda: _or_none(ask))

    def _register(self, subject: str, schema: str) -> int:
        if (subject, schema) not in self._ids:
            registered = Schema(schema, "AVRO")
            self._ids[subject, schema] = self._ask_about(
                subject, lambda: self._client.register_schema(subject, registered)
            )
        return self._ids[subject, schema]

    def _ask_about(self, subject: str, ask: Callable[[], T]) -> T:
        return self._ask(f'subject "{subject}"', ask)

    def _ask(self, subject: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except SchemaRegistryError as error:
            message = redacted(f"{subject}: {error.error_message}")
            if error.http_status_code in _REFUSED:
                raise SchemaConflictError(message, hint=_FORBIDDEN) from error
            if error.http_status_code in _NOT_LET_IN:
                raise RefusedAccessError(
                    f"the schema registry {self._where} does not let us in: {message}",
                    hint="look at basic.auth.user.info, or the token, in [registry.options]",
                ) from error
            if error.http_status_code == _TOO_MANY or error.http_status_code >= _SERVER_ERROR:
                raise UnavailableLogError(f"the schema registry fails: {message}") from error
            raise LogError(f"the schema registry refuses: {message}") from error
        except NO_ANSWER as error:
            message = redacted(str(error))
            if "SSL" in message:
                raise RefusedAccessError(
                    f"no TLS with the schema registry {self._where}: {message}",
                    hint="ssl.ca.location in [registry.options] has to hold the authority of its "
                    "certificate, and that has to name the host of the URL",
                ) from error
            raise UnavailableLogError(
                f"no schema registry answers at {self._where}: {message}",
                hint="is it running, and the URL right, with https:// where it wants TLS?",
            ) from error


class Schemas:
    """A registry's schemas, asked for when a record needs them; one thread at a time uses it."""

    def __init__(self, connection: RegistryConnection | None, *, more: str = "") -> None:
        """Take the registry, or None; the hint where there is none ends with `more`."""
        self._connection = connection if connection and connection.url else None
        self._more = more
        self._client: SchemaRegistry | None = None

    @property
    def is_there(self) -> bool:
        """Tell whether there is a registry."""
        return self._connection is not None

    def schema(self, number: int) -> RegisteredSchema:
        """Return the schema of an id.

        Raises ConfigurationError: there is no registry; LogError: it refuses, does not know it, or
        does not answer.
        """
        return self._opened().schema(number)

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject, or None without one, or without a registry."""
        return self._opened().latest(subject) if self.is_there else None

    def _opened(self) -> SchemaRegistry:
        if self._connection is None:
            raise ConfigurationError(
                "records are framed as a schema registry's are, and no registry is set",
                hint=f"--schema-registry URL{self._more}",
            )
        if self._client is None:
            self._client = SchemaRegistry(self._connection)
        return self._client

    def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            self._client.close()


def _or_none(ask: Callable[[], T]) -> T | None:
    """Ask the registry; return None if the subject or the schema does not exist."""
    try:
        return ask()
    except SchemaRegistryError as error:
        if error.http_status_code == _NOT_FOUND:
            return None
        raise


def same_schema(one: str, other: str) -> bool:
    """Tell whether two schemas are the same JSON; a registry may change its layout.

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
    """Return a key schema's columns with their types, for people; whole when it is not ours."""
    try:
        raw = json.loads(schema)
        fields = [f"{field['column']} {field['pg_type']}" for field in raw["fields"]]
        return f"({', '.join(fields)}) of {'.'.join(raw['relation'])}"
    except (ValueError, KeyError, TypeError):
        return schema
