"""Places at which tests end a capture, stop it, or do something while it waits.

Each is told by the code that every capture runs, at the moment that its comment names. In use
nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Failpoint(StrEnum):
    """A moment at which a crash is tested; the values are what tests name on a command line."""

    LOG_READ = "log read"  # the attempt has decided how it begins; the stream is not open yet
    LOSS_NOTED = "loss noted"  # which tables have lost changes is written down
    SLOT_INTENDED = "slot intended"  # the new epoch is written down, its slot is not made yet
    SLOT_MADE = "slot made"  # the slot is there, where it begins is not written down yet
    TABLE_EXCLUDED = "table excluded"
    """What is wrong with a table is decided and not written down yet."""
    COPY_DUE = "copy due"  # tables wait to be copied, and their columns are not looked at yet
    SNAPSHOT_TAKEN = "snapshot taken"  # a segment has its snapshot, and no mark in the WAL yet
    FENCE_TAKEN = "fence taken"  # the mark is in the WAL, the stream has not brought it yet
    CHUNK_COPIED = "chunk copied"  # the broker has the rows of one more chunk
    SEGMENT_WRITTEN = "segment written"
    """The chunks of a segment are on the log and not written down yet."""
    PROGRESS_WRITTEN = "progress written"  # what is copied is written down
    TABLE_WHOLE = "table whole"
    """A table is copied, what is dead of it has tombstones; no frontier speaks of it yet."""
    RECORD_PRODUCED = "record produced"
    """The producer has taken records of the stream: of one change, or a piece of many."""
    MESSAGE_PRODUCED = "message produced"
    """The producer has taken the record of a message or of a schema change."""
    TRANSACTION_PRODUCED = "transaction produced"
    """The producer has taken the last record of a transaction."""
    FRONTIER_WRITTEN = "frontier written"  # a frontier stands on the log, PostgreSQL does not know
    ACKNOWLEDGED = "acknowledged"  # PostgreSQL was told what it may forget


Told = Callable[[Failpoint], None]  # told of each moment as it comes


def untold(_point: Failpoint) -> None:
    """Listen to no failpoint."""
