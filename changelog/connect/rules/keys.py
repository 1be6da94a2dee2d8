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
        least, most: of a number.
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
        name="schema.registry.url",
        also=("value.converter.schema.registry.url", "key.converter.schema.registry.url"),
        text="Registry of Avro's schemas; the worker's by default.",
    ),
    Key(
        name="basic.auth.user.info",
        also=("value.converter.basic.auth.user.info", "key.converter.basic.auth.user.info"),
        kind="PASSWORD",
        text="user:password at the registry.",
    ),
)
"""Where the registry of Avro's schemas is, of sinks and captures."""
