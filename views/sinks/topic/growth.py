"""Readers without keys get new rows alone: one that changed or went is refused, by its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from changelog.contract.base.errors import SinkError
from views.sinks.topic.difference import Difference
from views.sinks.topic.records import Record
from views.sinks.topic.server import TopicServer

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Growth:
    """The state of a topic without keys, to which a delta may add records.

    Attributes:
        server: where it is.
        view: whose it is.
        topic: its name.
        key_id: of Avro's schema of keys; None in JSON.
    """

    server: TopicServer
    view: str
    topic: str
    key_id: int | None

    def require(self, difference: Difference) -> None:
        """Require that a difference is of rows that were not there before.

        Raises:
            SinkError: naming a key whose row has changed, or is gone.
        """
        if difference.values is None and len(difference.keys):
            raise self._refused(difference.keys[0].as_py(), "is gone")
        if difference.was is not None and (place := difference.was.index(True).as_py()) >= 0:
            raise self._refused(difference.keys[place].as_py(), "is another one now")

    def new(self, records: Sequence[Record], there: Mapping[bytes, bytes]) -> Sequence[Record]:
        """Return the records of rows that were not there.

        Args:
            records: of a delta.
            there: keys of the rows that are there, and the digest of each row.

        Raises:
            SinkError: naming a key whose row has changed, or is gone.
        """
        fresh = []
        for key, value in records:
            if key not in there:
                if value is not None:
                    fresh.append((key, value))
            elif value is None:
                raise self._refused(key, "is gone")
            elif there[key] != digest_of(value):
                raise self._refused(key, "is another one now")
        return fresh

    def _refused(self, key: bytes, change: str) -> SinkError:
        key_text = key.decode("utf-8", "replace")
        if self.key_id is not None:
            key_text = self.server.json_of(key, self.key_id)
        return SinkError(
            f'topic "{self.topic}" gets new rows alone ("records": "unkeyed"), and the row with '
            f"key {key_text} {change}",
            hint=f'"records": "keyed" in {self.view}.topic.json replaces and removes rows',
        )


def digest_of(value: bytes) -> bytes:
    """Return the row's digest."""
    return blake2b(value, digest_size=_DIGEST_BYTES).digest()
