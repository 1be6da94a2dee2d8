"""The keys of a sink's configuration, defined as Kafka Connect's clients expect definitions.

Names that the JDBC sinks of Confluent and Debezium have for the same thing are synonyms. What is
given is kept as it was given: clients compare it with what they sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SINK_CLASS = "changelog.PostgresSink"
CLASSES = (
    SINK_CLASS,
    "io.confluent.connect.jdbc.JdbcSinkConnector",
    "io.debezium.connector.jdbc.JdbcSinkConnector",
)
MASK = "********"
"""What stands for a secret in each answer; given back, it means the one that is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    Attributes:
        name: the first name.
        also: further names.
        kind: STRING, INT, BOOLEAN, LIST or PASSWORD.
        default: where nothing is given; None where there is none.
        required: whether it has to be given.
        choices: the only values, in small letters; empty for any.
        least: of a number.
        text: what it is for.
    """

    name: str
    text: str
    also: tuple[str, ...] = ()
    kind: str = "STRING"
    default: str | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    least: int = 0

    def definition(self, order: int) -> dict[str, Any]:
        """Return the definition as `GET /connector-plugins/{plugin}/config` has it."""
        return {
            "name": self.name,
            "type": self.kind,
            "required": self.required,
            "default_value": self.default,
            "importance": "HIGH" if self.required else "MEDIUM",
            "documentation": self.text,
            "group": "Sink",
            "width": "MEDIUM",
            "display_name": self.name,
            "dependents": [],
            "order": order,
        }


_CONVERTERS = "JsonConverter or StringConverter over JSON; the value is read as JSON."
KEYS = (
    Key(name="name", required=True, text="Name of the connector, unique among all."),
    Key(
        name="connector.class",
        default=SINK_CLASS,
        choices=tuple(each.lower() for each in CLASSES),
        text=f"One of {', '.join(CLASSES)}; all are this sink.",
    ),
    Key(name="topics", kind="LIST", required=True, text="Topics, separated by commas."),
    Key(
        name="tasks.max",
        kind="INT",
        default="1",
        least=1,
        text="Most tasks; partitions are shared.",
    ),
    Key(
        name="connection.url",
        kind="PASSWORD",
        required=True,
        text="postgresql://host:port/database, also with jdbc: before it.",
    ),
    Key(name="connection.user", also=("connection.username",), text="User at the database."),
    Key(name="connection.password", kind="PASSWORD", text="The user's password."),
    Key(
        name="target.tablename",
        also=("table.name.format", "collection.name.format"),
        default="${topic}",
        text="Table, with its schema before a dot; ${topic} is the topic's name.",
    ),
    Key(
        name="col.names",
        also=("fields.whitelist",),
        kind="LIST",
        text="Fields that are written; all by default, and then each must be a column.",
    ),
    Key(name="col.types", kind="LIST", text="Types of col.names, for auto.create."),
    Key(
        name="pk.fields",
        also=("primary.key.fields",),
        kind="LIST",
        text="Columns of the key.",
    ),
    Key(
        name="pk.mode",
        also=("primary.key.mode",),
        choices=("none", "record_key", "record_value"),
        text="Where the key is: record_value by default where pk.fields is given.",
    ),
    Key(
        name="writeMode",
        also=("insert.mode",),
        default="insert",
        choices=("insert", "upsert"),
        text="Rows are appended, or written by key.",
    ),
    Key(
        name="delete.enabled",
        kind="BOOLEAN",
        text="Whether tombstones and deletes delete (true by default with upsert) or are left out.",
    ),
    Key(
        name="batch.size",
        kind="INT",
        default="3000",
        least=1,
        text="Most records of one transaction.",
    ),
    Key(name="auto.create", kind="BOOLEAN", default="false", text="Make a table that is missing."),
    Key(
        name="auto.offset.reset",
        also=("consumer.override.auto.offset.reset",),
        default="earliest",
        choices=("earliest", "latest"),
        text="Where a partition begins of which the target has no place.",
    ),
    Key(
        name="errors.tolerance",
        default="none",
        choices=("none", "all"),
        text="Whether a bad record fails the task or is left out, and told.",
    ),
    Key(
        name="errors.deadletterqueue.topic.name",
        text="Topic that takes bad records, with the reason in headers.",
    ),
    Key(
        name="errorLimit",
        kind="INT",
        least=0,
        text="Bad records that a task leaves out before it fails; without it, any number.",
    ),
    Key(name="key.converter", text=_CONVERTERS),
    Key(name="value.converter", text=_CONVERTERS),
    Key(name="key.converter.schemas.enable", kind="BOOLEAN", text="Both forms are recognised."),
    Key(name="value.converter.schemas.enable", kind="BOOLEAN", text="Both forms are recognised."),
)
BY_NAME: Mapping[str, Key] = {name: key for key in KEYS for name in (key.name, *key.also)}
_SECRET_WORDS = ("password", "secret", "token")


def is_secret(name: str) -> bool:
    """Tell whether the value of a key is never shown; a key that nobody defined may be."""
    key = BY_NAME.get(name)
    return key.kind == "PASSWORD" if key else any(word in name.lower() for word in _SECRET_WORDS)


def masked(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration without its secrets.

    The address of the database is shown where it holds no password.

    >>> masked({"connection.password": "x", "connection.url": "postgresql://db/app"})
    {'connection.password': '********', 'connection.url': 'postgresql://db/app'}
    """
    return {name: _shown(name, value) for name, value in config.items()}


def _shown(name: str, value: str) -> str:
    if name == "connection.url":
        return value if "@" not in value and "password" not in value.lower() else MASK
    return MASK if value and is_secret(name) else value
