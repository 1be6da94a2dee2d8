"""Transactions and rows of a run of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that has begun; times in microseconds since 1970."""

    commit_lsn: int
    ts_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class RelationSpan:
    """A relation of which a run has rows: the numbers of the first and of the last."""

    oid: int
    first: int
    last: int


class Row(NamedTuple):
    """A row of the stream.

    Attributes:
        message: the number of its message.
        next: the number of the next row of its relation, or -1.
        lsn: of the commit.
        sequence: its place in the transaction.
        ts_us: of the commit, microseconds since 1970.
        xid: of the transaction.
    """

    message: int
    next: int
    lsn: int
    sequence: int
    ts_us: int
    xid: int
