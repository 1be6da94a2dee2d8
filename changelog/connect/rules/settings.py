"""Turns a sink's configuration into its settings, or into its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from changelog.connect.rules.addresses import address_of
from changelog.connect.rules.keys import ParsedConfig, class_named
from changelog.connect.rules.sink_keys import ADB_CLASS, CONVERTERS, SINK_INSTEAD, SINK_KEYS
from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import ConfigurationError

TYPE = re.compile(r"[A-Za-z][\w ]*(?:\(\d+(?:,\s*\d+)?\))?[\w ]*(?:\[\])?")
_TOPIC = re.compile(r"[\w.-]{1,249}", re.ASCII)
_URL = re.compile(r"(?:jdbc:)?(?P<url>postgres(?:ql)?://.+)", re.ASCII)
_GROUP, _PREFIX = "consumer.override.group.id", "connect-"
_DEAD_REPLICAS = "errors.deadletterqueue.topic.replication.factor"
_CONVERTER_KEYS = ("key.converter", "value.converter")


class WriteMode(Enum):
    """The way in which rows are written."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"


class PkMode(Enum):
    """The part of a record that has the key of its row."""

    NONE = "none"
    RECORD_KEY = "record_key"
    RECORD_VALUE = "record_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConnectorSettings:
    """Settings of a sink connector."""

    name: str
    topics: tuple[str, ...]
    tasks_max: int
    url: str = field(repr=False)  # the database's address; empty if it was not given
    user: str
    password: str = field(repr=False)
    # the table's name: `${topic}` is the topic's name, `${table}` the last part of that
    table: str
    columns: tuple[str, ...]  # fields that are written; empty for all
    types: tuple[str, ...]  # types of `columns` for a new table; empty if records declare them
    # columns of the key; empty without one, or for all fields of the record's key
    keys: tuple[str, ...]
    pk_mode: PkMode
    mode: WriteMode
    # whether deletes are executed; False if they are left out, None if they are errors
    deletes: bool | None
    batch_size: int
    create: bool  # whether a missing table is created
    evolve: bool  # whether missing columns are added
    latest: bool  # whether new partitions are read from their end
    group: str  # the consumer group to which offsets are committed for monitors
    error_limit: int | None  # most bad records that are left out; None for any number
    dead_letters: str  # the topic of dead letters; empty for none
    dead_replicas: int  # its replication factor when it is created; -1 for the brokers' default
    # `AvroConverter`, `JsonConverter`, `StringConverter`, or empty to recognise the form
    key_form: str
    value_form: str
    registry: RegistryConnection | None = field(repr=False)  # None for the worker's

    @property
    def keyed(self) -> bool:
        """Return whether rows are written by their keys."""
        return self.mode is not WriteMode.INSERT

    def table_of(self, topic: str) -> str:
        """Return the name of a topic's table."""
        return _filled(self.table, topic)


def sink_given(config: Mapping[str, Any]) -> ParsedConfig:
    """Parse a sink's configuration and collect its errors."""
    parsed = ParsedConfig(SINK_KEYS, config, "sink", SINK_INSTEAD)
    if not parsed.errors:
        _check_together(parsed)
    return parsed


def parse_settings(config: Mapping[str, Any]) -> SinkConnectorSettings:
    """Return the settings of a sink from its configuration.

    Raises ConfigurationError: the configuration has errors; the message names keys but no values.
    """
    parsed = sink_given(config)
    parsed.check("PostgresSink")
    pk_mode, deletes = _pk_mode(parsed), parsed.flag("delete.enabled")
    url = _URL.fullmatch(parsed.text("connection.url"))
    assert url is not None  # noqa: S101 - `_check_names` has checked it
    is_basic = parsed.text("schema.evolution").lower() == "basic"
    return SinkConnectorSettings(
        name=parsed.text("name"),
        topics=parsed.list("topics"),
        tasks_max=parsed.number("tasks.max"),
        url=url["url"],
        user=parsed.text("connection.user"),
        password=parsed.text("connection.password"),
        table=_table(parsed),
        columns=parsed.list("col.names"),
        types=parsed.list("col.types"),
        keys=parsed.list("pk.fields"),
        pk_mode=pk_mode,
        mode=_mode(parsed),
        deletes=True if pk_mode is not PkMode.NONE and deletes is None else deletes,
        batch_size=parsed.number("batch.size"),
        create=parsed.flag("auto.create") is True or is_basic,
        evolve=parsed.flag("auto.evolve") is True or is_basic,
        latest=parsed.text("auto.offset.reset").lower() == "latest",
        group=parsed.text(_GROUP) or f"{_PREFIX}{parsed.text('name')}",
        error_limit=_error_limit(parsed),
        dead_letters=parsed.text("errors.deadletterqueue.topic.name"),
        dead_replicas=parsed.number(_DEAD_REPLICAS) if parsed.text(_DEAD_REPLICAS) else -1,
        key_form=parsed.text("key.converter").rpartition(".")[2],
        value_form=parsed.text("value.converter").rpartition(".")[2],
        registry=parsed.registry(),
    )


def _mode(parsed: ParsedConfig) -> WriteMode:
    return WriteMode(parsed.text("writeMode").lower())


def _pk_mode(parsed: ParsedConfig) -> PkMode:
    if parsed.list("pk.fields"):
        default = "record_value"
    else:
        default = "record_key" if _is_adb(parsed) else "none"
    return PkMode(parsed.text("pk.mode").lower() or default)


def _is_adb(parsed: ParsedConfig) -> bool:
    return class_named(parsed.text("connector.class"), [ADB_CLASS]) is not None


def _table(parsed: ParsedConfig) -> str:
    default = "${table}" if _is_adb(parsed) else parsed.text("target.tablename")
    return parsed.values.get("target.tablename") or default


def _filled(table: str, topic: str) -> str:
    return table.replace("${table}", topic.rpartition(".")[2]).replace("${topic}", topic)


def name_parts(table: str) -> list[str]:
    """Return the schema and name of a table, or its name; an empty list if it is not a name.

    >>> name_parts("public.t"), name_parts("server1.db.t")
    (['public', 't'], [])
    """
    parts = table.split(".")
    return parts if all(parts) and len(parts) <= 2 else []  # noqa: PLR2004 - schema and table


def _error_limit(parsed: ParsedConfig) -> int | None:
    if parsed.text("errors.tolerance").lower() == "none":
        return 0
    return parsed.number("errorLimit") if parsed.text("errorLimit") else None


def _check_together(parsed: ParsedConfig) -> None:
    """Add errors of values that do not fit together."""
    _check_names(parsed)
    _check_key(parsed)
    _check_table(parsed)
    _check_targets(parsed)
    for name in ("errors.deadletterqueue.topic.name", "errorLimit"):
        if parsed.text(name) and parsed.text("errors.tolerance").lower() != "all":
            parsed.fail(name, f"{name} needs errors.tolerance all")


def _check_key(parsed: ParsedConfig) -> None:
    keys, mode = parsed.list("pk.fields"), _pk_mode(parsed)
    if mode is PkMode.NONE and keys:
        parsed.fail("pk.fields", "pk.fields needs another pk.mode than none")
    if mode is PkMode.RECORD_VALUE and not keys:
        parsed.fail("pk.fields", "pk.mode record_value needs pk.fields")
    if _mode(parsed) is not WriteMode.INSERT:
        if mode is PkMode.NONE:
            parsed.fail("pk.fields", f"{_mode(parsed).value} needs pk.fields or pk.mode record_key")
    elif parsed.flag("delete.enabled") and mode is PkMode.NONE:
        parsed.fail("delete.enabled", "delete.enabled needs pk.fields or pk.mode record_key")


def _check_table(parsed: ParsedConfig) -> None:
    keys, columns, types = (parsed.list(name) for name in ("pk.fields", "col.names", "col.types"))
    if columns and set(keys) - set(columns):
        parsed.fail("col.names", "col.names leaves out columns of pk.fields")
    if types and len(types) != len(columns):
        parsed.fail("col.types", "col.types must have one type for each of col.names")
    if types and not keys and _pk_mode(parsed) is PkMode.RECORD_KEY:
        parsed.fail("pk.fields", "with col.types pk.fields is needed too")
    if any(not TYPE.fullmatch(type_name) for type_name in types):
        parsed.fail("col.types", "a type must be a name such as numeric(10,2) or text[]")
    makes = parsed.flag("auto.create") or parsed.flag("auto.evolve")
    json_only = parsed.text("value.converter").endswith(("JsonConverter", "StringConverter"))
    if makes and json_only and not types:
        parsed.fail("auto.create", "auto.create with JSON needs col.names and col.types")
    for name in ("auto.create", "auto.evolve"):
        if parsed.text("schema.evolution").lower() == "none" and parsed.flag(name):
            parsed.fail(name, f"{name} and schema.evolution contradict each other")


def _check_targets(parsed: ParsedConfig) -> None:
    """Check that topics have valid tables, and with `${table}` a table of their own."""
    table, topic_of = _table(parsed), dict[str, str]()
    for topic in parsed.list("topics"):
        name = _filled(table, topic)
        if not name_parts(name):
            parsed.fail(
                "target.tablename",
                f'topic "{topic}" would go to "{name}", which is not the name of a table: set '
                "target.tablename to table or schema.table, where ${table} is the last part of the "
                "topic's name",
            )
        elif "${table}" in table and topic_of.setdefault(name, topic) != topic:
            parsed.fail(
                "target.tablename",
                f'topics "{topic_of[name]}" and "{topic}" would both go to table "{name}": set '
                "target.tablename, in a connector for each",
            )


def _check_names(parsed: ParsedConfig) -> None:
    dead = parsed.text("errors.deadletterqueue.topic.name")
    for key, topics in (
        ("topics", parsed.list("topics")),
        ("errors.deadletterqueue.topic.name", (dead,) if dead else ()),
    ):
        if any(not _TOPIC.fullmatch(topic) for topic in topics):
            parsed.fail(key, f"{key} has a name that no topic can have")
    if dead in parsed.list("topics"):
        parsed.fail("topics", "topics has the topic of dead letters")
    group = parsed.text(_GROUP)
    if group and not group.startswith(_PREFIX):  # offsets of other programs stay as they are
        parsed.fail(_GROUP, f"{_GROUP} must begin with {_PREFIX}")
    if not _URL.fullmatch(parsed.text("connection.url")):
        parsed.fail(
            "connection.url", "connection.url must begin with postgresql:// or jdbc:postgresql://"
        )
    else:
        try:
            address_of(parsed.text("connection.url").removeprefix("jdbc:"), "connection.url")
        except ConfigurationError as error:
            parsed.fail("connection.url", str(error))
    parsed.check_registry()
    for key_name in _CONVERTER_KEYS:
        converter = parsed.text(key_name)
        if converter and converter.rpartition(".")[2] not in CONVERTERS:
            parsed.fail(key_name, f"{key_name} must be one of {', '.join(CONVERTERS)}")
