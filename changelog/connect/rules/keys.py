"""Keys of configurations as Kafka Connect's clients know them, and errors of their values.

Values are kept exactly as they were given, because clients compare them with what they sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import ConfigurationError

GROUP = "Connector"
MOST_TASKS = 256  # of a connector: each task has a thread, a database connection and a client
MASK = "********"
"""Replaces a secret in answers; in a request it stands for the stored secret."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a connector's configuration."""

    name: str
    text: str  # its documentation
    also: tuple[str, ...] = ()  # synonyms
    kind: str = "STRING"  # or INT, BOOLEAN, LIST, PASSWORD
    default: str | None = None  # None if there is none
    required: bool = False
    choices: tuple[str, ...] = ()  # the allowed values in lower case; empty for any
    least: int = 0  # the least number that is allowed
    most: int = 2**31 - 1  # the largest number that is allowed

    def definition(self, order: int) -> dict[str, Any]:
        """Return the definition for `GET /connector-plugins/{plugin}/config`."""
        return {
            "name": self.name,
            "type": self.kind,
            "required": self.required,
            "default_value": self.default,
            "importance": "HIGH" if self.required else "MEDIUM",
            "documentation": self.text,
            "group": GROUP,
            "width": "MEDIUM",
            "display_name": self.name,
            "dependents": [],
            "order": order,
        }


def class_named(named: str, classes: Iterable[str]) -> str | None:
    """Return the class with a name: its full name, short name, or that without `Connector`.

    A class without a package is found with any package before its name.

    >>> class_named("io.x.Sink", ["Sink"]), class_named("JdbcSink", ["a.JdbcSinkConnector"])
    ('Sink', 'a.JdbcSinkConnector')
    """
    name = named.lower()
    for candidate in classes:
        whole = candidate.lower()
        short = whole.rpartition(".")[2]
        names = {whole, short, short.removesuffix("connector")}
        if name in names or name.rpartition(".")[2] == whole:
            return candidate
    return None


REGISTRY_KEYS = (
    Key(
        "schema.registry.url",
        "Registry of Avro's schemas; the worker's by default.",
        also=("value.converter.schema.registry.url", "key.converter.schema.registry.url"),
    ),
    Key(
        "basic.auth.user.info",
        "user:password at the registry.",
        also=("value.converter.basic.auth.user.info", "key.converter.basic.auth.user.info"),
        kind="PASSWORD",
    ),
)
"""The keys of sinks and captures that say where the registry of Avro schemas is."""


_MOST_NAME = 200
_REGISTRY = re.compile(r"https?://[!-~]+", re.ASCII)
_PROVIDER_REFERENCE = re.compile(r"\$\{[\w.-]+:[^}]*\}")


class ParsedConfig:
    """The values of a configuration by their keys' main names, and its errors."""

    def __init__(
        self,
        keys: Sequence[Key],
        config: Mapping[str, Any],
        kind: str,
        instead: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Parse a configuration; `instead` has advice about unknown keys, by their prefix."""
        self._keys = {name: key for key in keys for name in (key.name, *key.also)}
        self._kind, self._instead = kind, instead
        self.values: dict[str, str] = {}
        self.errors: dict[str, list[str]] = {}
        for name, value in config.items():
            self._take(name, value)
        for key in keys:
            if key.required and not self.values.get(key.name):
                self.fail(key.name, f"{key.name} is required and has no value")
        self._check_name()

    def _take(self, name: str, value: object) -> None:
        key = self._keys.get(name)
        if not isinstance(value, str):
            self.fail(name, f"the value of {name} is not a text")
        elif "\0" in value:
            self.fail(name, f"the value of {name} has a character of code 0")
        elif _PROVIDER_REFERENCE.search(value):
            self.fail(
                name,
                f"the value of {name} refers to a config provider, ${{…:…}}, and there is none: "
                "give the value itself",
            )
        elif key is None:
            advice = next(
                (self._instead[prefix] for prefix in self._instead if name.startswith(prefix)), ""
            )
            self.fail(
                name, f"{name} is not a key of this {self._kind}" + (advice and f": {advice}")
            )
        elif self.values.get(key.name, value) != value:
            self.fail(name, f"{name} and {key.name} mean the same and have different values")
        else:
            self.values[key.name] = value
            self._check(key, name, value)

    def _check(self, key: Key, name: str, value: str) -> None:
        is_class = key.name == "connector.class" and class_named(value, key.choices)
        if key.choices and value.lower() not in key.choices and not is_class:
            self.fail(name, f"{name} must be one of {', '.join(key.choices)}")
        if key.kind == "BOOLEAN" and value.lower() not in {"true", "false"}:
            self.fail(name, f"{name} must be true or false")
        if key.kind == "INT" and not (
            re.fullmatch(r"\d{1,10}", value, re.ASCII) and key.least <= int(value) <= key.most
        ):
            self.fail(name, f"{name} must be a whole number from {key.least} to {key.most}")

    def _check_name(self) -> None:
        name = self.values.get("name", "")
        if len(name) > _MOST_NAME or not name.isprintable() or "/" in name or name != name.strip():
            self.fail(
                "name", "name must have at most 200 characters, printable and without a slash"
            )

    def check_registry(self) -> None:
        """Add an error if the registry's address is not an HTTP URL."""
        url = self.text("schema.registry.url")
        if url and not _REGISTRY.fullmatch(url):
            self.fail(
                "schema.registry.url", "schema.registry.url must begin with http:// or https://"
            )

    def fail(self, name: str, reason: str) -> None:
        """Add an error of a key."""
        self.errors.setdefault(name, []).append(reason)

    def check(self, plugin: str) -> None:
        """Raise an error if the configuration has errors.

        Raises ConfigurationError: it has; the message names keys but no values.
        """
        if self.errors:
            reasons_text = "; ".join(
                reason for reasons in self.errors.values() for reason in reasons
            )
            raise ConfigurationError(
                f"the configuration cannot be used: {reasons_text}",
                hint=f"PUT /connector-plugins/{plugin}/config/validate lists the errors",
            )

    def text(self, name: str) -> str:
        """Return a value, the key's default, or an empty text."""
        return self.values.get(name, self._keys[name].default or "")

    def number(self, name: str) -> int:
        """Return a whole number."""
        return int(self.text(name))

    def list(self, name: str) -> tuple[str, ...]:
        """Return the parts of a value between its commas."""
        return tuple(part.strip() for part in split(self.text(name)) if part.strip())

    def flag(self, name: str) -> bool | None:
        """Return a boolean, or None if it has no value."""
        text = self.text(name).lower()
        return None if not text else text == "true"

    def registry(self) -> RegistryConnection | None:
        """Return the connection of the schema registry, or None if it has no value."""
        url = self.text("schema.registry.url").rstrip("/")
        if not url:
            return None
        user = self.text("basic.auth.user.info")
        return RegistryConnection(url=url, options={"basic.auth.user.info": user} if user else {})


def split(text: str) -> list[str]:
    """Split a text at its commas, except inside brackets, as in `numeric(10,2)`."""
    return re.split(r",(?![^()]*\))", text)
