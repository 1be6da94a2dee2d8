"""The schemas of a topic's records, from the registry or the topic of the schemas.

Records under every version of the topic's value subject may be on the log; rows are read as the
newest one. The key's subject must have one version only: the cleaner compares key bytes, which
contain the schema id. Documents have no id, so only their newest version counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import (
    CorruptRecordError,
    LogError,
    SchemaConflictError,
    UnavailableLogError,
)
from changelog.contract.forms.event_record import event_row_schema, read_value_schema
from changelog.contract.log.form import PLAIN, Form, Output
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import Scope
from changelog.contract.log.topic import schema_topic_of
from changelog.contract.rows.choices import ColumnChoice, ValueChoice, as_viewed, chosen
from changelog.contract.rows.harmless_schema import check_tame
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedSchema, SchemaPin
from changelog.protobuf.compile import compiled
from changelog.runtime.bounded_answers import bound
from changelog.runtime.http_modules import NO_ANSWER
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.broker.topics import read_schema_topic

_T = TypeVar("_T")
_NOT_FOUND = 404
AVRO, PROTOBUF = "AVRO", "PROTOBUF"  # kinds of schemas, as the registry names them


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """The schemas of a topic."""

    topic: str  # its name
    # the pinned schema id of its keys; None where keys are documents, or not there
    key_id: int | None
    # each version of the value's schema, by its id; of documents by its number
    writers: Mapping[int, str]
    reader_id: int  # id of the newest version
    form: Form = PLAIN  # of the records
    key: str = ""  # the schema of its keys; empty where they are documents
    choices: tuple[tuple[str, str], ...] = ()  # as in its pin

    def of_keys(self) -> TopicSchemas:
        """Return the schemas under which keys are read as if they were values.

        Keys that are documents hold the key columns under their names, as a row's document does.
        """
        if self.key_id is None:
            return replace(self, form=Form(self.form.output))
        writers = {self.key_id: self.key}
        return TopicSchemas(self.topic, self.key_id, writers, self.key_id, choices=self.choices)

    def with_choices(self, choices: Iterable[ColumnChoice]) -> TopicSchemas:
        """Return the same with the choices for values that have no form.

        Raises ConfigurationError: two choices for one column contradict each other.
        """
        choice_of = chosen(choices, self.logged(self.reader_id))
        return replace(
            self, choices=tuple((name, choice.value) for name, choice in choice_of.items())
        )

    @property
    def chosen(self) -> dict[str, ValueChoice]:
        """Return the choice for each column that is not to be refused."""
        return {name: ValueChoice(choice) for name, choice in self.choices}

    @property
    def viewed(self) -> LoggedSchema:
        """Return the columns that views have of the table."""
        return as_viewed(self.logged(self.reader_id), self.chosen)

    @property
    def reader(self) -> str:
        """Return the schema that values are read as: of an event, the part with the row."""
        return event_row_schema(self.writers[self.reader_id])

    @property
    def pin(self) -> SchemaPin:
        """Return the schema versions by which the topic is read."""
        return SchemaPin(self.key_id, self.reader_id, self.choices)

    def logged(self, schema_id: int) -> LoggedSchema:
        """Parse one version: the columns of the row in a value, or in its event."""
        return read_value_schema(self.writers[schema_id])


def schemas_of(
    registry: RegistryConnection,
    kafka: KafkaConnection,
    frontier: Frontier,
    topics: Mapping[TableName, str],
    steps: Steps = UNSEEN,
) -> dict[TableName, TopicSchemas]:
    """Return the schemas of some tables' topics, as they are now.

    `frontier`: has the form of the records. `topics`: by table, whose name may differ from the
    frontier's.

    Raises:
        SchemaConflictError: a topic's key has several schemas.
        LogError: a schema is not there, or has columns that Spark cannot tell apart.
        UnavailableLogError: the registry or the brokers do not answer.
    """
    steps.more(len(topics))
    schemas = {}
    with closing(SchemaReader(registry, kafka)) as reader:
        for table, topic in topics.items():
            steps.begin(f"schemas of {topic}")
            own = frontier.tables.get(topic, table)
            schemas[table] = reader.of_table(topic, own, frontier.scope_of(topic))
            steps.done()
    return schemas


class _MissingSubjectError(LogError):
    """The registry does not have the subject."""


class SchemaReader:
    """Reads the schemas of topics from where capture stored them, each once."""

    def __init__(self, registry: RegistryConnection, kafka: KafkaConnection) -> None:
        self._registry = registry
        self._kafka = kafka
        self._opened: SchemaRegistryClient | None = None
        self._noted: dict[str, dict[str, list[str]]] = {}

    def close(self) -> None:
        """Close the connection to the registry."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _client(self) -> SchemaRegistryClient:
        if self._opened is None:  # a log of documents has no registry
            self._opened = SchemaRegistryClient.new_client(self._registry.client_config())
            bound(self._opened._rest_client.session)
        return self._opened

    def of_table(self, topic: str, table: TableName, scope: Scope) -> TopicSchemas:
        """Return the schemas of a table's topic; without a primary key there is none of keys.

        Raises:
            SchemaConflictError: the key's subject has more than one version.
            LogError: a subject is not there, or the registry refuses.
            CorruptRecordError: a schema is not one that capture writes.
            UnavailableLogError: the registry or the brokers do not answer.
        """
        form = scope.form
        if form.output is Output.AVRO:
            return self._registered(topic, form, keyed=scope.keyed)
        noted = schema_topic_of(topic, table)
        if noted not in self._noted:
            self._noted[noted] = read_schema_topic(self._kafka, noted)
        values = self._noted[noted].get(f"{topic}-value")
        if not values:
            raise LogError(
                f'the topic "{noted}" has no schema "{topic}-value"',
                hint="check that nobody deletes its records; capture writes it once",
            )
        schemas = TopicSchemas(topic, None, dict(enumerate(values)), len(values) - 1, form)
        check_columns(schemas, keyed=scope.keyed)
        return schemas

    def versions_of(self, topic: str, kind: str = AVRO) -> tuple[dict[int, str], dict[int, str]]:
        """Return each version of the key's and the value's schema by its id, the oldest first.

        For a log of another program, whose keys may have no schema of the `kind`. One of Protobuf
        is compiled: `changelog.protobuf.compile`.

        Raises LogError: the value's subject is not there, or the registry refuses;
        UnavailableLogError: the registry does not answer.
        """
        try:
            keys = self._versions(f"{topic}-key", kind)
        except (_MissingSubjectError, CorruptRecordError):
            keys = {}
        return keys, self._versions(f"{topic}-value", kind)

    def _registered(self, topic: str, form: Form, *, keyed: bool) -> TopicSchemas:
        """Return the schemas of a topic that the registry has.

        Raises:
            SchemaConflictError: the key's subject has more than one version.
            LogError: a subject is not there, or the registry refuses.
            CorruptRecordError: a schema is not one that capture writes.
            UnavailableLogError: the registry does not answer.
        """
        keys = self._versions(f"{topic}-key") if keyed else {}
        if len(keys) > 1:
            raise SchemaConflictError(
                f'subject "{topic}-key" has {len(keys)} schemas; a key\'s schema is pinned for '
                "the life of its topic",
                hint="find out what registers them; a new key needs a new topic",
            )
        values = self._versions(f"{topic}-value")
        key_id, key = next(iter(keys.items()), (None, ""))
        schemas = TopicSchemas(topic, key_id, values, list(values)[-1], form, key)
        check_columns(schemas, keyed=keyed)
        return schemas

    def _versions(self, subject: str, kind: str = AVRO) -> dict[int, str]:
        """Return each version of a subject by its id, the oldest first."""
        numbers = self._answer(partial(self._client.get_versions, subject), subject)
        versions: dict[int, str] = {}
        for number in sorted(numbers):
            version = self._answer(partial(self._client.get_version, subject, number), subject)
            text, place = version.schema.schema_str, f'subject "{subject}", version {number}'
            if version.schema_id is None or not text:
                raise CorruptRecordError(f"{place}: no Avro schema")
            if (version.schema.schema_type or AVRO) != kind:
                raise CorruptRecordError(
                    f"{place}: it is {version.schema.schema_type or AVRO}, not {kind}",
                    hint="correct `form` of the log in changelog.toml",
                )
            if kind == PROTOBUF:
                text = compiled(text, place)
            else:
                check_tame(text, place)
            versions.pop(version.schema_id, None)  # a schema registered again is the newest again
            versions[version.schema_id] = text
        if not versions:
            raise self._missing(subject)
        return versions

    def _answer(self, question: Callable[[], _T], subject: str) -> _T:
        """Return the registry's answer about a subject; its errors become errors of the log."""
        try:
            return question()
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                raise self._missing(subject) from error
            raise LogError(
                f"the schema registry at {self._registry} refuses: {error.error_message}"
            ) from error
        except NO_ANSWER as error:
            raise UnavailableLogError(
                f"the schema registry at {self._registry} does not answer",
                hint="start it, or correct its address",
            ) from error

    def _missing(self, subject: str) -> _MissingSubjectError:
        return _MissingSubjectError(
            f'the schema registry at {self._registry} has no subject "{subject}"',
            hint="check that it is the registry that capture uses",
        )


def check_columns(schemas: TopicSchemas, *, keyed: bool = True) -> None:
    """Refuse a table whose columns Spark cannot tell apart."""
    schema = schemas.logged(schemas.reader_id)
    seen: dict[str, str] = {}
    for column in schema.columns:
        twin = seen.setdefault(column.column.lower(), column.column)
        if twin != column.column:
            raise LogError(
                f'table "{schema.table}" has columns "{twin}" and "{column.column}", which Spark '
                "does not tell apart",
                hint="exclude one of the two columns, or the table, or rename one",
            )
    if keyed and not set(schema.key):
        raise CorruptRecordError(f'the schema of topic "{schemas.topic}" names no key')
    if not {column.lower() for column in schema.key} <= set(seen):
        raise CorruptRecordError(f'the schema of topic "{schemas.topic}" names no key of its own')
