"""A note of an erasure that is not done: how far it is, and what topic settings were before.

It lies in the warehouse, `_erasures/pending/ID.json`, from before the first change until the
certificate is written. It does not name the keys: a salted digest tells whose it is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from changelog.contract.base.errors import ChangelogError
from replay.spark.files import Files, uri_of
from views.erase.keys import ErasedKeys

FOLDER = "_erasures"
_PENDING = f"{FOLDER}/pending"


@dataclass(slots=True, kw_only=True)
class Note:
    """An erasure that is not done."""

    place: str  # of its file
    topic: str
    salt: str
    digest: str  # of the keys
    closed_ms: int | None = None  # when the last segment with a record of a key was closed
    values_gone_ms: int | None = None  # when only tombstones were left
    newest_ms: int | None = None  # when the newest record of a key was appended
    # of each view the first generation that was built without the rows
    views: dict[str, int] = field(default_factory=dict)
    # settings of the topic that are altered now, as they were; None where the topic had none
    settings: dict[str, str | None] = field(default_factory=dict)

    def met(self, newest_ms: int | None) -> None:
        """Note the newest record of a key that is there; one that is new makes all begin again."""
        if newest_ms is not None and newest_ms > (self.newest_ms or 0):
            self.newest_ms, self.closed_ms, self.values_gone_ms, self.views = (
                newest_ms,
                None,
                None,
                {},
            )

    def save(self) -> None:
        """Write the note in the place of the one before."""
        content = {name: value for name, value in asdict(self).items() if name != "place"}
        Files().replace(self.place, json.dumps(content).encode())

    def remove(self) -> None:
        """Remove the note: nothing is open any more."""
        if Files().exists(self.place):
            Files().remove_file(self.place)


def pending(warehouse: str) -> Iterator[Note]:
    """Yield the notes of a warehouse.

    Raises ChangelogError: one cannot be read.
    """
    folder = f"{uri_of(warehouse)}/{_PENDING}"
    for name in Files().names(folder):
        place = f"{folder}/{name}"
        if not name.endswith(".json"):
            continue
        try:
            content: dict[str, Any] = json.loads(Files().read(place))
            yield Note(place=place, **content)
        except (ValueError, TypeError) as error:
            raise ChangelogError(
                f"the note of an erasure {place} cannot be read",
                hint="look at its `settings`, put them back by hand, and remove it",
            ) from error


def note_of(warehouse: str, keys: ErasedKeys) -> Note:
    """Return the note of an erasure that was begun, or a new one, which is not written yet."""
    for note in pending(warehouse):
        if note.topic == keys.topic and note.digest == keys.digest(bytes.fromhex(note.salt)):
            return note
    salt = secrets.token_bytes(32)
    return Note(
        place=f"{uri_of(warehouse)}/{_PENDING}/{secrets.token_hex(8)}.json",
        topic=keys.topic,
        salt=salt.hex(),
        digest=keys.digest(salt),
    )
