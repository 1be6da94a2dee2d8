"""Bring a generation of a topic forward: each delta is one transaction.

It writes the records to the generation's topic, to that of the readers where the generation is
published, and with them the position and the frontier. So a delta whose writer was killed is not
there at all, and one that is there is not asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from changelog.contract.base.errors import SinkError
from views.sinks.topic.options import Records
from views.sinks.topic.records import Record
from views.sinks.topic.register import (
    Held,
    Shown,
    generation_key,
    read_register,
    write_frontier,
)
from views.sinks.topic.server import TopicServer


@dataclass(frozen=True, slots=True)
class TopicForward:
    """The topics of one generation.

    Attributes:
        server: where they are.
        topic: of the readers.
        register: of the generations.
        own: of the generation.
        is_published: whether the first one holds it.
        records: how readers get rows.
    """

    server: TopicServer
    topic: str
    register: str
    own: str
    is_published: bool
    records: Records

    def apply(self, generation: int, records: Sequence[Record], before: Held, after: Held) -> None:
        """Write records and what the register says afterwards."""
        with self.server.transaction(self.topic if self.is_published else self.own) as into:
            # Only now: whoever wrote under this name before cannot any more.
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
                shown = Shown(generation, after.position, self.records)
                write_frontier(into, self.register, self.topic, shown)
