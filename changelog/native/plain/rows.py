"""Runs of the stream's messages; their rows are left to the caller, one by one.

The caller then encodes them by the rules that C repeats: `RowCodec` and changelog/contract/rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from changelog.contract.rows.codec import SchemaIds
from changelog.contract.rows.relation import Relation
from changelog.native.records import POSTGRES_EPOCH_US, RelationSpan, Row, Selection, Transaction

if TYPE_CHECKING:
    from changelog.native import protocols

_ROW_BYTES, _BEGIN_BYTES, _COMMIT_BYTES = 6, 21, 26
_NOTHING = Transaction(0, 0, 0)
_MOST_US = 2**63 - 1


class Run:
    """Rows, begins and commits between two other messages."""

    def __init__(self) -> None:
        self._start(None, 0)

    def _start(self, before: Transaction | None, sequence: int) -> None:
        self.is_open = before is not None
        self.next_sequence = sequence
        self.last = before or _NOTHING
        self.xids: list[int] = []
        self.commits, self.end_lsn = 0, 0
        self.raw: list[Row] = []
        self._of: dict[int, list[int]] = {}

    def scan(
        self,
        messages: protocols.Texts,
        first: int,
        end: int,
        *,
        before: Transaction | None,
        sequence: int,
        step: int,
    ) -> bool:
        self._start(before, sequence)
        return all(self._add(messages[place], place, step) for place in range(first, end))

    def _add(self, message: bytes, place: int, step: int) -> bool:
        match message[:1]:
            case b"B":
                return self._begin(message)
            case b"C":
                return self._commit(message)
            case b"I" | b"U" | b"D":
                return self._add_row(message, place, step)
            case _:
                return False

    def _begin(self, message: bytes) -> bool:
        ts_us = int.from_bytes(message[9:17], "big", signed=True) + POSTGRES_EPOCH_US
        if len(message) != _BEGIN_BYTES or self.is_open or ts_us > _MOST_US:
            return False
        lsn, xid = (int.from_bytes(number, "big") for number in (message[1:9], message[17:21]))
        self.last = Transaction(lsn, ts_us, xid)
        self.xids.append(xid)
        self.is_open, self.next_sequence = True, 0
        return True

    def _commit(self, message: bytes) -> bool:
        lsn = int.from_bytes(message[2:10], "big")
        if len(message) != _COMMIT_BYTES or not self.is_open or lsn != self.last.commit_lsn:
            return False
        self.is_open = False
        self.end_lsn = int.from_bytes(message[10:18], "big")
        self.commits += 1
        return True

    def _add_row(self, message: bytes, place: int, step: int) -> bool:
        if len(message) < _ROW_BYTES or not self.is_open:
            return False
        number, last = len(self.raw), self.last
        same = self._of.setdefault(int.from_bytes(message[1:5], "big"), [])
        if same:
            self.raw[same[-1]] = self.raw[same[-1]]._replace(next=number)
        same.append(number)
        self.raw.append(Row(place, -1, last.commit_lsn, self.next_sequence, last.ts_us, last.xid))
        self.next_sequence += step
        return True

    def relations(self) -> Iterator[RelationSpan]:
        for oid, numbers in self._of.items():
            yield RelationSpan(oid, numbers[0], numbers[-1])

    def row(self, number: int) -> Row:
        return self.raw[number]


class BatchCodec:
    """Leaves each row to its caller."""

    def __init__(
        self, relation: Relation, ids: SchemaIds, selection: Selection | None = None
    ) -> None:
        """Take the arguments of the codec in C."""

    def add_rows(
        self, messages: protocols.Texts, run: protocols.Run, first: int, to: protocols.Records
    ) -> int | None:
        del messages, run, to
        return first

    def add_lines(
        self,
        lines: protocols.Texts,
        first: int,
        *,
        lsn: int,
        sequence: int,
        ts_us: int,
        to: protocols.Records,
    ) -> int | None:
        del lsn, sequence, ts_us, to
        return first if first < len(lines) else None
