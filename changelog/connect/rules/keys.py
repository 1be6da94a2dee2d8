"""A key of a configuration, defined as Kafka Connect's clients expect definitions.

What is given is kept as it was given: clients compare it with what they sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

GROUP = "Connector"
MOST_TASKS = 256
"""Of one connector: a task has a thread, a connection and a client of its own."""
MASK = "********"
"""What stands for a secret in each answer; given back, it means the one that is kept."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key."""

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
