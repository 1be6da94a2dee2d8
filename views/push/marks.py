"""The places that pushes have come to, on the compacted topic `{topic}.pushes`.

A consumer group would forget them after `offsets.retention.minutes` without a pusher, and hold no
second one off. Each record has the frontier that is delivered whole and the run that wrote it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import orjson

from changelog.contract.base.errors import LockedError, SinkError
from views.sinks.topic.server import TopicServer


@dataclass(slots=True)
class PushMarks:
    """The place of one push, by its name."""

    server: TopicServer  # the brokers
    topic: str  # of the view
    name: str  # of the push
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def _own(self) -> str:
        return f"{self.topic}.pushes"

    def read(self) -> str | None:
        """Return the mark of the last frontier that is delivered, or None at a first start."""
        return self._read()[0]

    def claim(self, mark: str | None) -> None:
        """Begin: another process that pushes under this name ends at its next frontier."""
        self.server.create(self._own, small=True)
        self._write(mark, before=None)

    def write(self, mark: str) -> None:
        """Write that all before a frontier is delivered.

        Raises LockedError: another process pushes under this name by now.
        """
        self._write(mark, before=self._run)

    def _read(self) -> tuple[str | None, str]:
        if not self.server.exists(self._own):
            return None, ""
        value = None
        for message in self.server.records(self._own):
            if message.key() == self.name.encode():
                value = message.value()
        if value is None:
            return None, ""
        try:
            stored = orjson.loads(value)
            return stored["mark"], str(stored["run"])
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f'topic "{self._own}" has a record that is no place of a push',
                hint="another program wrote to it: remove the topic, and choose --since",
            ) from error

    def _write(self, mark: str | None, *, before: str | None) -> None:
        with self.server.transaction(f"{self._own}.{self.name}") as into:
            # Read only now, when an earlier transaction of this name can no longer be committed.
            if before is not None and self._read()[1] != before:
                raise LockedError(
                    f'another process pushes as "{self.name}"',
                    hint="let one process push to a receiver, or give each its --name",
                )
            into.put(self._own, self.name.encode(), orjson.dumps({"mark": mark, "run": self._run}))
