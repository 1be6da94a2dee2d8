"""Turns a capture's configuration into the environment of `changelog capture`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg2.extensions import make_dsn

from changelog.config import validated
from changelog.connect.rules.addresses import address_of, check_parts, without_defaults
from changelog.connect.rules.capture_keys import (
    CAPTURE_KEYS,
    DEBEZIUM_CLASS,
    PRODUCER_ALLOWED,
    PRODUCER_ALLOWED_TEXT,
    SETTINGS,
)
from changelog.connect.rules.keys import ParsedConfig
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.setting import variable_of
from changelog.sections import CaptureSettings

_PATTERN = re.compile(r"(?:[\w$]|\\\.|\.\*|\.)+")
_DATABASE = {
    "host": "database.hostname",
    "port": "database.port",
    "user": "database.user",
    "password": "database.password",
    "dbname": "database.dbname",
    "sslmode": "database.sslmode",
}
_LISTS = {
    "table.include.list": "capture.tables",
    "table.exclude.list": "capture.exclude",
    "column.exclude.list": "capture.drop_columns",
}
_FORMS = {"AvroConverter": "avro", "JsonConverter": "json"}
_FOR_EVER_S = "31536000"
"""A worker's capture also waits at its start, for servers that do not answer and for its slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureJob:
    """The settings of a capture that a worker runs."""

    name: str  # the connector's
    slots: tuple[str, ...]  # its replication slot, and those of its groups of tables
    prefix: str  # the prefix of its topics
    dsn: str = field(repr=False)  # the connection string of its source
    # settings of `[capture]` by their dotted names, written as in environment variables
    settings: Mapping[str, str] = field(repr=False)
    registry: RegistryConnection | None = field(repr=False)  # None for the worker's

    def variables(
        self, kafka: KafkaConnection, registry: RegistryConnection | None
    ) -> dict[str, str]:
        """Return the environment variables with which `changelog capture` runs this job."""
        settings = {**self.settings, "postgres.dsn": self.dsn, "kafka.brokers": kafka.brokers}
        schemas = self.registry or registry
        if schemas is not None and schemas.url:
            settings["registry.url"] = schemas.url
            settings["registry.options"] = json.dumps(dict(schemas.options))
        settings["kafka.options"] = json.dumps(dict(kafka.options))
        return {variable_of(name): text for name, text in settings.items()}


def capture_given(config: Mapping[str, Any]) -> ParsedConfig:
    """Parse a capture's configuration and collect its errors."""
    parsed = ParsedConfig(CAPTURE_KEYS, config, "capture")
    if parsed.errors:
        return parsed
    _check_source(parsed)
    parsed.check_registry()
    for name, setting in _LISTS.items():
        if parsed.text(name) and parsed.text(setting):
            parsed.fail(name, f"{name} and {setting} are the same: give one of them")
        if any(not _PATTERN.fullmatch(pattern) for pattern in parsed.list(name)):
            parsed.fail(name, rf"{name} must have names like schema\.table, with .* for any text")
    forms = {
        parsed.text(converter).rpartition(".")[2]
        for converter in ("key.converter", "value.converter")
    }
    if not forms <= {"", *_FORMS} or len(forms - {""}) > 1:
        parsed.fail(
            "value.converter", "both converters must be AvroConverter, or both JsonConverter"
        )
    if not parsed.errors:
        _check_settings(parsed)
    if not parsed.errors:
        _check_producer(parsed)
    return parsed


def _check_source(parsed: ParsedConfig) -> None:
    parts = [name for name in _DATABASE.values() if parsed.text(name)]
    if parsed.text("postgres.dsn") and parts:
        parsed.fail(parts[0], f"{parts[0]} and postgres.dsn contradict each other")
    if not parsed.text("postgres.dsn") and not parsed.text("database.hostname"):
        parsed.fail("database.hostname", "database.hostname or postgres.dsn is required")
    elif not parts or not parsed.errors:
        try:
            _address(parsed)
        except ConfigurationError as error:
            parsed.fail("postgres.dsn" if not parts else "database.hostname", str(error))


def _address(parsed: ParsedConfig) -> dict[str, str]:
    """Return the parts of the source's address."""
    if parsed.text("postgres.dsn"):
        return address_of(parsed.text("postgres.dsn"), "postgres.dsn")
    parts = {part: parsed.text(name) for part, name in _DATABASE.items() if parsed.text(name)}
    check_parts(parts, "database.hostname")
    return parts


def _check_settings(parsed: ParsedConfig) -> None:
    """Check the settings by the rules of `changelog.toml`."""
    raw = {}
    for name, text in settings_given(parsed).items():
        try:
            raw[name.partition(".")[2]] = SETTINGS[name].from_variable(text)
            validated({"capture": raw})
        except ConfigurationError as error:
            raw.pop(name.partition(".")[2], None)
            parsed.fail(name if name in parsed.values else "name", f"{name}: {error}")


def _check_producer(parsed: ParsedConfig) -> None:
    """Refuse producer settings that load code, read files or choose servers."""
    name = "capture.producer"
    if not parsed.text(name):
        return
    properties = SETTINGS[name].from_variable(parsed.text(name))
    forbidden = sorted(set(properties) - PRODUCER_ALLOWED) if isinstance(properties, dict) else []
    if forbidden:
        parsed.fail(
            name, f"{name} has {', '.join(forbidden)}: by REST it may have {PRODUCER_ALLOWED_TEXT}"
        )


def settings_given(parsed: ParsedConfig) -> dict[str, str]:
    """Return the settings of `[capture]` that a configuration gives, by their whole names."""
    settings = {"capture.wait_s": _FOR_EVER_S}
    if parsed.text("connector.class").lower() == DEBEZIUM_CLASS.lower():
        settings["capture.envelope"] = "nested"
    form = _FORMS.get(parsed.text("value.converter").rpartition(".")[2])
    if form:
        settings["capture.output_format"] = form
    if parsed.text("publication.autocreate.mode").lower() == "disabled":
        settings["capture.create_publication"] = "false"
    if parsed.text("snapshot.mode").lower() in {"no_data", "never"}:
        settings["capture.skip_snapshot"] = "true"
    for name, setting in _LISTS.items():
        if parsed.text(name):
            settings[setting] = ",".join(_our_pattern(pattern) for pattern in parsed.list(name))
    return settings | {
        name: text for name, text in parsed.values.items() if name in SETTINGS and text
    }


def _our_pattern(pattern: str) -> str:
    r"""Translate a Debezium pattern into a pattern of `changelog.toml`.

    >>> _our_pattern(r"public\.order.*")
    'public.order*'
    """
    return pattern.replace("\\.", ".").replace(".*", "*")


def parse_capture(config: Mapping[str, Any]) -> CaptureJob:
    """Return the settings of a capture from its configuration.

    Raises ConfigurationError: the configuration has errors; the message names keys but no values.
    """
    parsed = capture_given(config)
    parsed.check("PostgresSource")
    settings = settings_given(parsed)
    raw = {
        name.partition(".")[2]: SETTINGS[name].from_variable(settings[name]) for name in settings
    }
    capture = validated({"capture": raw})["capture"]
    assert isinstance(capture, CaptureSettings)  # noqa: S101 - the section's model
    return CaptureJob(
        name=parsed.text("name"),
        slots=tuple(capture.slots),
        prefix=parsed.text("capture.topic_prefix"),
        dsn=make_dsn(**without_defaults(_address(parsed))),
        settings=settings,
        registry=parsed.registry(),
    )
