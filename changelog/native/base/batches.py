"""Records of some partitions as a bulk load takes them, and news of their reading."""

from __future__ import annotations

from array import array
from typing import NamedTuple

MOST_GROUPS = 64


class BatchRecord(NamedTuple):
    """A record and its place on its topic.

    Attributes:
        topic: it is of.
        partition: likewise.
        offset: its place there.
        timestamp_ms: milliseconds since 1970; -1 for none.
        key: None for none.
        value: None is a tombstone.
        headers: in their order; none where they were not asked for.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Slice(NamedTuple):
    """Offsets of a partition that are to be read.

    Attributes:
        topic: of the partition.
        partition: its number.
        next: the first offset, then that behind the last record that was read.
        end: the first offset that is not wanted; None where that is not known.
    """

    topic: str
    partition: int
    next: int
    end: int | None


class Limits(NamedTuple):
    """The limits of one read of a batch.

    Attributes:
        records: the most that it holds.
        bytes: of keys, values and headers, about the most.
        before_ms: where an end is not known, it is the first record with this time; None: none is.
        with_headers: whether headers are kept.
    """

    records: int
    bytes: int
    before_ms: int | None = None
    with_headers: bool = False


class BatchNews(NamedTuple):
    """The result of one read of a batch.

    Attributes:
        added: records.
        open: slices whose end is not reached.
        error: the code of the client's first error; 0 for none.
        topic: where that was.
        partition: likewise.
        message: its words.
    """

    added: int
    open: int
    error: int = 0
    topic: str = ""
    partition: int = 0
    message: str = ""


class Alike(NamedTuple):
    """Records with one frame, the first bytes of their values and keys.

    Attributes:
        value: the frame of the values; empty where records were not told apart by it.
        key: likewise of the keys.
        rows: their places.
        is_other: whether they are all those for which there was no group left.
    """

    value: bytes
    key: bytes
    rows: array[int]
    is_other: bool = False


class Groups(NamedTuple):
    """Records by their frames.

    Attributes:
        gone: places of the records without a value.
        alike: the others, in the order of the first of each group.
    """

    gone: array[int]
    alike: tuple[Alike, ...]
