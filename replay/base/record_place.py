"""The parts of a record that determine its place in the fold. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from changelog.contract.base.headers import POSITION
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier

RECORD = ("key", "value", "partition", "offset", "position")
"""The columns of a record, in the order in which they stand in a frame."""

RECORD_SCHEMA = "key binary, value binary, partition int, offset bigint, position binary"
"""The same with their types, in Spark's words."""

FetchedRecord = tuple[bytes, bytes | None, int, int]
"""Key, value, partition and offset of a record that was brought here; a tombstone has no value."""

FAULT = "fault"
"""The column that says what is wrong with a record."""

NO_POSITION = f'the header "{POSITION}" is missing or malformed'

Layer = tuple[tuple[int, ...], tuple[int, ...]]
"""Per partition the first offset to read, and the first one not to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    """A range of offsets in each partition of a topic."""

    topic: str  # its name
    starts: tuple[int, ...]  # per partition the first offset to read
    ends: tuple[int, ...]  # per partition the first offset not to read
    key_schema_id: int | None  # the schema id that every key bears; None where keys are documents
    # whether a record that cannot be placed is kept with its fault, instead of ending the task
    keeps_faults: bool = False


def no_key(schema_id: int | None) -> str:
    """Return the error text for a key without the prefix of its schema.

    The cleaner compares key bytes, so a key under another schema id is another key, and the old
    key's record would stay for ever.
    """
    if schema_id is None:
        return "the key is not a JSON document"
    return f"the key does not bear the pinned schema id {schema_id}"


def cut_of(frontier: Frontier) -> Position:
    """Return the first position that is not part of the state at a frontier.

    Records of transactions from the frontier's LSN on lie past its ends, but a position says it
    of each record by itself. Earlier epochs come before, whatever their LSNs: a new system's LSNs
    may start lower.
    """
    return Position(frontier.epoch, frontier.lsn, 0)
