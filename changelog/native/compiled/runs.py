"""A run of the stream's messages: its transactions, and for each row its place in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from changelog.native.base.runs import RelationSpan, Row, Transaction
from changelog.native.compiled.buffers import Texts
from changelog.native.compiled.library import ffi, lib


class Run:
    """Rows, begins and commits between two other messages; its memory is used again.

    Attributes:
        raw: the library's `run`.
    """

    def __init__(self) -> None:
        """Begin without a transaction."""
        self.raw: Any = ffi.gc(ffi.new("run *"), lib.run_free)

    def scan(
        self,
        messages: Texts,
        first: int,
        end: int,
        *,
        before: Transaction | None,
        sequence: int,
        step: int,
    ) -> bool:
        """Find the rows of some messages; tells whether these are a run in the right order.

        Args:
            messages: of the stream.
            first: number of the first.
            end: number behind the last.
            before: the transaction that is open before them.
            sequence: number of its next row.
            step: what these numbers grow by.
        """
        raw = self.raw
        raw.is_open, raw.next_sequence = before is not None, sequence
        raw.end_lsn = raw.lsn = raw.ts_us = raw.xid = 0
        if before is not None:
            raw.lsn, raw.ts_us, raw.xid = before.commit_lsn, before.ts_us, before.xid
        return bool(lib.run_scan(raw, messages.raw, first, end, step))

    def relations(self) -> Iterator[RelationSpan]:
        """Return the relations of which there are rows."""
        for place in range(self.raw.relation_count):
            relation = self.raw.relations[place]
            yield RelationSpan(relation.oid, relation.first, relation.last)

    @property
    def last(self) -> Transaction:
        """Return the transaction that began last, in the run or before it."""
        return Transaction(self.raw.lsn, self.raw.ts_us, self.raw.xid)

    @property
    def is_open(self) -> bool:
        """Tell whether that one has not ended yet."""
        return bool(self.raw.is_open)

    def row(self, number: int) -> Row:
        """Return a row."""
        row = self.raw.rows[number]
        return Row(row.message, row.next, row.lsn, row.sequence, row.ts_us, row.xid)

    @property
    def next_sequence(self) -> int:
        """Return the number of the next row of the transaction that began last."""
        return int(self.raw.next_sequence)

    @property
    def commits(self) -> int:
        """Return the number of transactions that ended in the run."""
        return int(self.raw.commits)

    @property
    def end_lsn(self) -> int:
        """Return the end of the last transaction that ended; 0 if none did."""
        return int(self.raw.end_lsn)

    @property
    def xids(self) -> list[int]:
        """Return the numbers of the transactions that began in the run."""
        return list(ffi.unpack(self.raw.xids, self.raw.begun)) if self.raw.begun else []
