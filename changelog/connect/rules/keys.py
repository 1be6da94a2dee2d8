"""Keys of configurations as Kafka Connect's clients know them, and what is wrong with a value.

What is given is kept as it was given: clients compare it with what they sent.
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
MOST_TASKS = 256  # of one connector: a task has a thread, a connection and a client of its own
MASK = "********"
"""What stands for a secret in each answer; given back, it means the one that is kept."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a connector's configuration."""

    name: str  # the first one
    text: str  # what it is for
    also: tuple[str, ...] = ()  # further names
    kind: str = "STRING"  # or INT, BOOLEAN, LIST, PASSWORD
    default: str | None = None  # where nothing is given; None where there is none
    required: bool = False  # whether it has to be given
    choices: tuple[str, ...] = ()  # the only values, in small letters; empty for any
    least: int = 0  # of a number
    most: int = 2**31 - 1

    def definition(self, order: int) -> dict[str, Any]:
        """Return the definition as `GET /connector-plugins/{plugin}/config` has it."""
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
    """Return the class that a name means: whole, short, or short without `Connector`.

    A class that stands without a package is meant with any package before it.

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
"""Where the registry of Avro's schemas is, of sinks and captures."""


_MOST_NAME = 200
_REGISTRY = re.compile(r"https?://[!-~]+", re.ASCII)
_LOOKED_UP = re.compile(r"\$\{[\w.-]+:[^}]*\}")


class ParsedConfig:
    """The values by their first names, and what is wrong with them."""

    def __init__(
        self,
        keys: Sequence[Key],
        config: Mapping[str, Any],
        kind: str,
        instead: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take a configuration; `instead` says what to write for other keys, by beginnings."""
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
            self.fail(name, f"the value of {name} is no text")
        elif "\0" in value:
            self.fail(name, f"the value of {name} has a character of code 0")
        elif _LOOKED_UP.search(value):
            self.fail(
                name,
                f"the value of {name} has a place of a provider, ${{…:…}}, and none is looked up: "
                "give the value itself",
            )
        elif key is None:
            other = next(
                (self._instead[prefix] for prefix in self._instead if name.startswith(prefix)), ""
            )
            self.fail(name, f"{name} is no key of this {self._kind}" + (other and f": {other}"))
        elif self.values.get(key.name, value) != value:
            self.fail(name, f"{name} and {key.name} are the same and have different values")
        else:
            self.values[key.name] = value
            self._check(key, name, value)

    def _check(self, key: Key, name: str, value: str) -> None:
        is_class = key.name == "connector.class" and class_named(value, key.choices)
        if key.choices and value.lower() not in key.choices and not is_class:
            self.fail(name, f"{name} is one of {', '.join(key.choices)}")
        if key.kind == "BOOLEAN" and value.lower() not in {"true", "false"}:
            self.fail(name, f"{name} is true or false")
        if key.kind == "INT" and not (
            re.fullmatch(r"\d{1,10}", value, re.ASCII) and key.least <= int(value) <= key.most
        ):
            self.fail(name, f"{name} is a whole number, {key.least} to {key.most}")

    def _check_name(self) -> None:
        name = self.values.get("name", "")
        if len(name) > _MOST_NAME or not name.isprintable() or "/" in name or name != name.strip():
            self.fail("name", "name has printable characters without a slash, 200 at most")

    def check_registry(self) -> None:
        """Add an error for a registry's address that is no URL of HTTP."""
        url = self.text("schema.registry.url")
        if url and not _REGISTRY.fullmatch(url):
            self.fail("schema.registry.url", "schema.registry.url begins with http:// or https://")

    def fail(self, name: str, reason: str) -> None:
        """Add an error of a key."""
        self.errors.setdefault(name, []).append(reason)

    def check(self, plugin: str) -> None:
        """Refuse a configuration that cannot be used.

        Raises ConfigurationError: something is wrong with it; names each key and why, and no value.
        """
        if self.errors:
            reasons_text = "; ".join(
                reason for reasons in self.errors.values() for reason in reasons
            )
            raise ConfigurationError(
                f"the configuration cannot be used: {reasons_text}",
                hint=f"PUT /connector-plugins/{plugin}/config/validate tells what is wrong",
            )

    def text(self, name: str) -> str:
        """Return a value, or the key's default, or nothing."""
        return self.values.get(name, self._keys[name].default or "")

    def number(self, name: str) -> int:
        """Return a whole number."""
        return int(self.text(name))

    def list(self, name: str) -> tuple[str, ...]:
        """Return the parts between commas."""
        return tuple(part.strip() for part in split(self.text(name)) if part.strip())

    def flag(self, name: str) -> bool | None:
        """Return the boolean that is given, or None if nothing is."""
        text = self.text(name).lower()
        return None if not text else text == "true"

    def registry(self) -> RegistryConnection | None:
        """Return the address of the schema registry, or None if none is given."""
        url = self.text("schema.registry.url").rstrip("/")
        if not url:
            return None
        user = self.text("basic.auth.user.info")
        return RegistryConnection(url=url, options={"basic.auth.user.info": user} if user else {})


def split(text: str) -> list[str]:
    """Split at commas, but not inside brackets, as in `numeric(10,2)`."""
    return re.split(r",(?![^()]*\))", text)
