"""Messages of the stream, many at once: the records that `RecordWriter` would write, faster.

A run of row messages with whole transactions among them is encoded table by table; order between
topics means nothing. What is out of the ordinary (a key change, a TOAST value that was left out)
is encoded row by row and put in its place. After a crash, what is on the log already is encoded
and left out. Where more is out of the ordinary, the caller goes row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from changelog.capture.state.report import TableOp
from changelog.capture.write.writer import RecordWriter
from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.change import RowChange, Update
from changelog.contract.rows.relation import UNCHANGED, Relation
from changelog.native import Records, Run, Texts
from changelog.native.records import Record, RelationSpan, Row, Transaction
from changelog.runtime.failpoints import Failpoint, Told, untold
from changelog.sink.producer import LogProducer
from changelog.source.stream.assemble import SEQUENCE_STEP, Assembler
from changelog.source.stream.pgoutput import (
    Begin,
    DeleteMessage,
    InsertMessage,
    UpdateMessage,
    decode,
)

PIECE = 4096
"""Records that the producer gets at once: between two pieces capture may be ended."""

_LOOKED_AT = 4
"""Reading ahead looks at so many rows for each row that lacks a value."""
_UPDATE = b"U"
_OPS = {op.value: op for op in Op}
_OP_OF = {b"I": Op.CREATE, b"U": Op.UPDATE, b"D": Op.DELETE}


class NotInBulkError(Exception):
    """These messages have to be taken one by one; nothing of them was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Summary of a run of messages that was taken."""

    records: int  # how many were written
    changes: Counter[TableOp]  # how many rows were changed, of each table and operation
    sizes: Counter[TableOp]  # bytes of the keys and values written for them
    commits: int  # transactions that ended
    end_lsn: Lsn | None  # of the last that ended, or None
    last: Begin  # the last transaction that began, in this run or before it
    is_open: bool  # whether that one has not ended yet
    xids: Sequence[int]  # numbers of the transactions that began


@dataclass(frozen=True, slots=True)
class _TopicRun:
    """The records of one topic: from one of them up to an end, and how many are left out."""

    topic: str
    first: int
    end: int
    left_out: int


@dataclass(slots=True, kw_only=True)
class BulkWriter:
    """Writes the records of runs of messages."""

    assembler: Assembler  # is kept up to date here
    writer: RecordWriter
    producer: LogProducer
    failpoint: Told = untold
    _run: Run = field(init=False)
    _records: Records = field(init=False)

    def __post_init__(self) -> None:
        self._run, self._records = Run(), Records(self.writer.epoch)

    def take(self, messages: Texts, first: int, end: int) -> RunSummary:
        """Write the records of a run of plain messages.

        Raises:
            NotInBulkError: take them one by one; that also says what is wrong, if something is.
            LogError: the broker refused an earlier record.
        """
        run, assembler = self._run, self.assembler
        before = assembler.open_transaction
        changes: Counter[TableOp] = Counter()
        sizes: Counter[TableOp] = Counter()
        self._records.clear()
        if not run.scan(
            messages,
            first,
            end,
            before=None if before is None else _transaction(before),
            sequence=assembler.sequence,
            step=SEQUENCE_STEP,
        ):
            raise NotInBulkError
        try:
            runs = self._encoded(messages, changes, sizes)
        except (ChangelogError, ValueError, ArithmeticError) as error:
            raise NotInBulkError from error
        last, xids = run.last, run.xids
        recent = self.writer.recent
        if recent.noting:
            touching = xids if before is None else [before.xid, *xids]
            for piece in runs:
                recent.touch_all(touching, piece.topic, self._records.keys(piece.first, piece.end))
        for piece in runs:
            self._write(piece)
        begin = Begin(Lsn(last.commit_lsn), last.ts_us, last.xid)
        assembler.continue_at(begin if run.is_open else None, run.next_sequence)
        return RunSummary(
            records=len(self._records) - sum(run.left_out for run in runs),
            changes=changes,
            sizes=sizes,
            commits=run.commits,
            end_lsn=Lsn(run.end_lsn) if run.commits else None,
            last=begin,
            is_open=run.is_open,
            xids=xids,
        )

    def _write(self, run: _TopicRun) -> None:
        for first in range(run.first, run.end, PIECE):
            end = min(first + PIECE, run.end)
            self.producer.produce_records(run.topic, self._records, first, end)
            self.failpoint(Failpoint.RECORD_PRODUCED)

    def _encoded(
        self, messages: Texts, changes: Counter[TableOp], sizes: Counter[TableOp]
    ) -> list[_TopicRun]:
        runs: list[_TopicRun] = []
        run = self._run
        for seen in run.relations():
            if self.assembler.is_deaf(seen.oid, Lsn(run.row(seen.last).lsn)):
                continue
            relation = self.assembler.relation(seen.oid)
            if relation is None:
                continue
            topic = self.writer.tables.topic(relation)
            if not relation.key or any(topic == other.topic for other in runs):
                raise NotInBulkError
            first = run.row(seen.first)
            at = Position(self.writer.epoch, Lsn(first.lsn), first.sequence)
            if not self.writer.all_alive(topic, at):
                raise NotInBulkError
            start = len(self._records)
            self._add_table(messages, relation, seen, at)
            written = self.writer.written.places(topic, at)
            left_out = 0
            if written is not None:
                left_out = self._records.leave_out_written(start, written)
            runs.append(_TopicRun(topic, start, len(self._records), left_out))
            for letter, rows, size in self._records.take_counts():
                op = _OPS[letter]
                changes[relation.name, op] += rows
                sizes[relation.name, op] += size
        return runs

    def _add_table(
        self, messages: Texts, relation: Relation, seen: RelationSpan, first: Position
    ) -> None:
        """Encode the rows of one table."""
        codec = self.writer.tables.batch_codec(relation, first)
        if codec is None:
            raise NotInBulkError
        place = seen.first
        while place >= 0:
            unusual = codec.add_rows(messages, self._run, place, self._records)
            if unusual is None:
                return
            row = self._run.row(unusual)
            self._add_unusual(messages, row)
            place = row.next

    def _add_unusual(self, messages: Texts, row: Row) -> None:
        """Encode a row that is out of the ordinary."""
        payload = messages[row.message]
        change = self._change(payload)
        self._read_ahead(messages, row, change)
        position = Position(self.writer.epoch, Lsn(row.lsn), row.sequence)
        size = 0
        for key, value, op, step in self.writer.encoded(change, position, row.xid):
            size += len(key) + len(value or b"")
            self._records.add(Record(key, value, row.lsn, row.sequence + step, row.ts_us, op.value))
        self._records.add_count(_OP_OF[payload[:1]].value, 1, size)

    def _change(self, payload: bytes) -> RowChange:
        message = decode(payload)
        assert isinstance(message, InsertMessage | UpdateMessage | DeleteMessage)  # noqa: S101
        change = self.assembler.change(message)
        assert change is not None  # noqa: S101 - the table is wanted
        return change

    def _read_ahead(self, messages: Texts, row: Row, change: RowChange) -> None:
        """Read the values that this row and the next ones lack, unless they were read."""
        toast = self.writer.toast
        if not _lacks(change) or toast.is_ahead(change.relation, change.key, change.row, row.xid):
            return
        lacking = [(change.key, change.row, row.xid)]
        looked_at = 0
        while row.next >= 0 and len(lacking) < toast.at_once:
            if looked_at > _LOOKED_AT * len(lacking):
                break
            looked_at += 1
            row = self._run.row(row.next)
            payload = messages[row.message]
            if payload.startswith(_UPDATE) and _lacks(coming := self._change(payload)):
                lacking.append((coming.key, coming.row, row.xid))
        if len(lacking) > 1:
            toast.read_ahead(change.relation, lacking)


def _lacks(change: RowChange) -> TypeGuard[Update]:
    """Tell whether the stream left out values of a row."""
    return isinstance(change, Update) and UNCHANGED in change.row


def _transaction(begin: Begin) -> Transaction:
    return Transaction(begin.commit_lsn, begin.ts_us, begin.xid)
