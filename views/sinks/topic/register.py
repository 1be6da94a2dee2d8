"""Reads and writes the register of a view's topics, the compacted topic `{topic}.generations`.

| key | value, JSON |
|---|---|
| `generation/N` | `value`: avro or json; `schema_ids`; `rows`, null until sealed; `position` |
| `published` | the frontier of readers: `generation`, `end` of the topic, `position`, `records` |

The frontier is written in the transaction of its rows: a reader who sees it can read the topic up
to `end` and gets one complete generation, at that position of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from changelog.contract.base.errors import SinkError
from views.sinks.topic.options import Records, Value
from views.sinks.topic.records import Record
from views.sinks.topic.server import TopicServer, TopicTransaction

PUBLISHED = "published"
_GENERATION = "generation/"


@dataclass(frozen=True, slots=True)
class RegisteredGeneration:
    """A generation in the register of a topic."""

    value: Value  # how its records are written
    ids: tuple[int, int] | None  # of the schemas of its keys and values; None in JSON
    rows: int | None = None  # how many; None until it is sealed
    position: str | None = None  # of the last delta, as text; None without one

    def record(self) -> bytes:
        """Return the value of its record in the register."""
        return orjson.dumps(
            {
                "value": self.value,
                "schema_ids": self.ids,
                "rows": self.rows,
                "position": self.position,
            }
        )

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> RegisteredGeneration:
        """Read the value of a record of the register."""
        ids = stored["schema_ids"]
        return cls(
            stored["value"],
            None if ids is None else (int(ids[0]), int(ids[1])),
            stored["rows"],
            stored["position"],
        )


@dataclass(frozen=True, slots=True)
class Register:
    """The contents of a view's register."""

    generations: Mapping[int, RegisteredGeneration] = field(default_factory=dict)  # by number
    published: int | None = None  # the generation that readers see
    records: Records | None = None  # form of the readers' records; None before there are any


@dataclass(frozen=True, slots=True)
class ShownGeneration:
    """The generation that readers see."""

    generation: int  # its number
    position: str | None  # of its last delta, as text; None without one
    records: Records  # whether they have keys


def generation_key(generation: int) -> bytes:
    """Return the key of a generation's record."""
    return f"{_GENERATION}{generation}".encode()


def write_frontier(
    into: TopicTransaction, register: str, topic: str, shown: ShownGeneration
) -> None:
    """Write the readers' frontier, as the last record of a transaction."""
    frontier = {
        "generation": shown.generation,
        "end": into.end(topic),
        "position": shown.position,
        "records": shown.records,
    }
    into.put(register, PUBLISHED.encode(), orjson.dumps(frontier))


def read_register(server: TopicServer, topic: str) -> Register | None:
    """Read the register; return None if there is none."""
    if not server.exists(topic):
        return None
    last: dict[str, bytes | None] = {}
    for message in server.records(topic):
        last[(message.key() or b"").decode("utf-8", "replace")] = message.value()
    try:
        values: dict[str, Any] = {
            key: orjson.loads(value) for key, value in last.items() if value is not None
        }
        published = values.pop(PUBLISHED, None)
        return Register(
            {
                int(key.removeprefix(_GENERATION)): RegisteredGeneration.of(stored)
                for key, stored in sorted(values.items())
            },
            None if published is None else int(published["generation"]),
            # The first version had keyed records only, and did not write this.
            None if published is None else published.get("records", "keyed"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(
            f'topic "{topic}" has a record that is not of a view\'s generations',
            hint="another program wrote to it: remove the topic and rebuild the view",
        ) from error


@dataclass(frozen=True, slots=True)
class TopicForward:
    """The topics of one generation, which deltas bring forward.

    One transaction has the records for the generation's topic, and for the readers' topic if the
    generation is published, with the position and the frontier. So a delta whose writer was killed
    has no effect at all, and an applied one is not sent again.
    """

    server: TopicServer  # its brokers
    topic: str  # of the readers
    register: str  # of the generations
    own: str  # of the generation
    is_published: bool  # whether readers see the generation
    records: Records  # form of the readers' records

    def apply(
        self,
        generation: int,
        records: Sequence[Record],
        before: RegisteredGeneration,
        after: RegisteredGeneration,
    ) -> None:
        """Write a delta's records, and the generation's new entry in the register.

        Raises SinkError: another process has changed the topics.
        """
        with self.server.transaction(self.topic if self.is_published else self.own) as into:
            # Read only now, when an earlier transaction of this name can no longer be committed.
            register = read_register(self.server, self.register)
            if (
                register is None
                or register.generations.get(generation) not in {before, after}
                or (register.published == generation) != self.is_published
            ):
                raise SinkError(
                    f'topic "{self.own}" was changed by another process meanwhile',
                    hint="let one process follow a view",
                )
            for key, value in records:
                into.put(self.own, key, value)
                if self.is_published:
                    into.put(self.topic, key if self.records == "keyed" else None, value)
            into.put(self.register, generation_key(generation), after.record())
            if self.is_published:
                shown = ShownGeneration(generation, after.position, self.records)
                write_frontier(into, self.register, self.topic, shown)
