"""Many messages of the stream at once: the records that `RecordWriter` would write, faster.

A run of row messages with whole transactions among them is encoded table by table; order between
topics means nothing. What is out of the ordinary (a key change, a TOAST value that was left out)
is encoded row by row and put in its place. Where more than that is out of the ordinary, such as
records that are on the log already after a crash, the caller goes row by row.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from changelog.batch.fields import Fields, Mask, Places
from changelog.batch.frames import BEGIN, COMMIT, DELETE, INSERT, KEY, NEW, OLD, UPDATE, Frames
from changelog.batch.headers import position_headers
from changelog.capture.report import TableOp
from changelog.capture.tables import CapturedTables
from changelog.capture.writer import RecordWriter
from changelog.contract.errors import ChangelogError, ProtocolError
from changelog.contract.headers import OP, POSITION, POSTGRES_EPOCH_US, TS, Headers, Op, encode_ts
from changelog.contract.lsn import Lsn
from changelog.contract.position import Position
from changelog.contract.relation import Relation
from changelog.sink.producer import LogProducer
from changelog.source.assemble import SEQUENCE_STEP, Assembler
from changelog.source.pgoutput import (
    Begin,
    DeleteMessage,
    InsertMessage,
    UpdateMessage,
    decode,
)

LEAST_MESSAGES = 96
"""Below that, going row by row is faster, and sooner done."""

MOST_BYTES = 1 << 28
"""Places in a batch are 32-bit numbers."""

_LETTERS = bytes([INSERT, UPDATE, DELETE, BEGIN, COMMIT])
_OP_OF = {INSERT: Op.CREATE, UPDATE: Op.UPDATE, DELETE: Op.DELETE}
_OPS = {letter: (OP, op.value) for letter, op in _OP_OF.items()}
_ROWS = [INSERT, UPDATE, DELETE]
_BEGIN_LSN_AT, _BEGIN_TS_AT, _BEGIN_XID_AT = 1, 9, 17
_COMMIT_LSN_AT, _COMMIT_END_AT = 2, 10
_BEGIN_BYTES, _COMMIT_BYTES = 21, 26


class NotInBulkError(Exception):
    """These messages have to be taken one by one; nothing of them was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a run of messages was.

    Attributes:
        records: how many were written.
        changes: how many rows were changed, of each table and operation.
        sizes: bytes of the keys and values written for them.
        commits: transactions that ended.
        end_lsn: of the last that ended, or None.
        last: the last transaction that began, in this run or before it.
        is_open: whether that one has not ended yet.
        xids: numbers of the transactions that began.
    """

    records: int
    changes: Counter[TableOp]
    sizes: Counter[TableOp]
    commits: int
    end_lsn: Lsn | None
    last: Begin
    is_open: bool
    xids: Places


@dataclass(frozen=True, slots=True)
class _Records:
    """Records of one topic, ready to be produced."""

    relation: Relation
    changes: Counter[Op]
    sizes: Counter[Op]
    topic: str
    keys: list[bytes]
    values: list[bytes | None]
    headers: list[Headers]


def is_bulk(payloads: Sequence[bytes]) -> bool:
    """Tell whether a run is long enough, and not too large, to be taken at once."""
    return len(payloads) >= LEAST_MESSAGES and sum(map(len, payloads)) < MOST_BYTES


def is_plain(payload: bytes) -> bool:
    """Tell whether a message may be in a run: a row, or where a transaction begins or ends."""
    return payload[:1] in _PLAIN


_PLAIN = frozenset(bytes([letter]) for letter in _LETTERS)


class BulkWriter:
    """Writes the records of runs of messages."""

    def __init__(
        self,
        *,
        assembler: Assembler,
        writer: RecordWriter,
        tables: CapturedTables,
        producer: LogProducer,
        epoch: int,
        reach: Callable[[str], None] | None,
    ) -> None:
        """Join the parts.

        Args:
            assembler: knows relations and the open transaction; kept up to date here.
            writer: knows what is on the log, and encodes what is out of the ordinary.
            tables: topics and codecs.
            producer: takes the records.
            epoch: of every position.
            reach: told of each record in tests, else None.
        """
        self._assembler = assembler
        self._writer = writer
        self._tables = tables
        self._producer = producer
        self._epoch = epoch
        self._reach = reach

    def take(self, payloads: Sequence[bytes]) -> Taken:
        """Write the records of a run of plain messages.

        Raises:
            NotInBulkError: take them one by one; that also says what is wrong, if something is.
            LogError: the broker refused an earlier record.
        """
        try:
            run = _Run(Frames(payloads), self._assembler)
            found = self._encoded(run, payloads)
        except (ChangelogError, ValueError, ArithmeticError, IndexError, struct.error) as error:
            raise NotInBulkError from error
        changes: Counter[TableOp] = Counter()
        sizes: Counter[TableOp] = Counter()
        recent = self._writer.recent
        if recent.noting:
            for records in found:
                recent.touch_all(run.all_xids, records.topic, records.keys)
        for records in found:
            self._write(records)
            changes.update({(records.relation.name, op): n for op, n in records.changes.items()})
            sizes.update({(records.relation.name, op): n for op, n in records.sizes.items()})
        self._assembler.continue_at(run.last if run.is_open else None, run.next_sequence)
        return Taken(
            records=sum(len(each.keys) for each in found),
            changes=changes,
            sizes=sizes,
            commits=run.commits,
            end_lsn=run.end_lsn,
            last=run.last,
            is_open=run.is_open,
            xids=run.all_xids[-run.begun :] if run.begun else run.all_xids[:0],
        )

    def _write(self, records: _Records) -> None:
        reach, producer = self._reach, self._producer
        if reach is None:
            producer.produce_all(records.topic, records.keys, records.values, records.headers)
            return
        for key, value, headers in zip(records.keys, records.values, records.headers, strict=True):
            producer.produce(records.topic, key, value, headers)
            reach("record produced")

    def _encoded(self, run: _Run, payloads: Sequence[bytes]) -> list[_Records]:
        found: list[_Records] = []
        heard = [
            oid
            for oid in np.unique(run.oids).tolist()
            if not self._assembler.is_deaf(oid, Lsn(int(run.lsn[run.oids == oid][-1])))
        ]
        described = [(oid, self._assembler.relation(oid)) for oid in heard]
        wanted = [(oid, relation) for oid, relation in described if relation is not None]
        if any(not each.key for _, each in wanted):
            raise NotInBulkError
        for oid, relation in wanted:
            at = np.flatnonzero(run.oids == oid)
            topic = self._tables.topic(relation)
            if any(topic == other.topic for other in found):
                raise NotInBulkError
            first = Position(self._epoch, Lsn(int(run.lsn[at[0]])), int(run.sequence[at[0]]))
            if not self._writer.all_new(topic, first) or self._tables.events(relation, first):
                raise NotInBulkError
            found.append(self._table(run, at, relation, first, payloads))
        return found

    def _table(
        self,
        run: _Run,
        at: Places,
        relation: Relation,
        first: Position,
        payloads: Sequence[bytes],
    ) -> _Records:
        """Encode the rows of one table.

        Args:
            run: the messages.
            at: which rows of the run they are.
            relation: of the rows.
            first: position of the first of them.
            payloads: of the run.
        """
        topic = self._tables.topic(relation)
        codec = self._tables.batch_codec(relation, first)
        frames = run.frames
        before = frames.tuple_kinds(run.messages[at])
        deleted = run.kind[at] == DELETE
        usual = np.where(deleted, (before == KEY) | (before == OLD), before == NEW)
        columns, ends, toasted = frames.tuples(run.messages[at[usual]], len(relation.columns))
        if (ends != frames.end[run.messages[at[usual]]]).any():
            raise ProtocolError("a row is longer than its values")
        whole = ~toasted | deleted[usual]
        usual[usual] = whole
        columns = _chosen(columns, whole)
        keys = codec.encode_keys(columns) if usual.any() else []
        upserts = ~deleted[usual]
        rows = codec.encode_values(_chosen(columns, upserts)) if upserts.any() else []
        values: list[bytes | None] = list(rows)
        if len(values) < len(keys):
            given = iter(rows)
            values = [next(given) if upsert else None for upsert in upserts.tolist()]
        headers = self._headers(run, at[usual])
        size = _lengths(keys)
        size[upserts] += _lengths(rows)
        sizes = _by_op(run.kind[at[usual]], size)
        records = _Records(relation, _by_op(run.kind[at]), sizes, topic, keys, values, headers)
        if usual.all():
            return records
        return self._with_unusual(run, at, usual, records, payloads)

    def _headers(self, run: _Run, at: Places) -> list[Headers]:
        positions = position_headers(self._epoch, run.lsn[at], run.sequence[at])
        times = run.times
        return [
            [(POSITION, position), _OPS[letter], times[number]]
            for position, letter, number in zip(
                positions, run.kind[at].tolist(), run.transaction[at].tolist(), strict=True
            )
        ]

    def _with_unusual(
        self, run: _Run, at: Places, usual: Mask, found: _Records, payloads: Sequence[bytes]
    ) -> _Records:
        """Put the records of unusual rows in their places."""
        merged = _Records(found.relation, found.changes, found.sizes, found.topic, [], [], [])
        given = zip(found.keys, found.values, found.headers, strict=True)
        for row, is_usual in zip(at.tolist(), usual.tolist(), strict=True):
            if is_usual:
                key, value, headers = next(given)
                merged.keys.append(key)
                merged.values.append(value)
                merged.headers.append(headers)
                continue
            message = decode(payloads[int(run.messages[row])])
            assert isinstance(message, InsertMessage | UpdateMessage | DeleteMessage)  # noqa: S101
            change = self._assembler.change(message)
            assert change is not None  # noqa: S101 - the table is wanted
            time = run.times[int(run.transaction[row])]
            place = Position(self._epoch, Lsn(int(run.lsn[row])), int(run.sequence[row]))
            for key, value, op, step in self._writer.encoded(change, place):
                position = Position(place.epoch, place.commit_lsn, place.sequence + step)
                merged.keys.append(key)
                merged.values.append(value)
                merged.headers.append([(POSITION, position.to_bytes()), (OP, op.value), time])
                merged.sizes[_OP_OF[int(run.kind[row])]] += len(key) + len(value or b"")
        return merged


class _Run:
    """A run of messages: for each row its transaction and its place in that.

    Attributes:
        frames: the messages.
        messages: which of them are rows; all that follows is by row.
        kind: letter of each row's message.
        oids: relation of each row.
        transaction: number of each row's transaction: 0 is the one that was open before.
        lsn: commit LSN of each row's transaction.
        sequence: number of each row in its transaction.
        times: header of the commit time, by number of transaction.
        all_xids: numbers of the transactions, that which was open before included.
        begun: how many of them began here.
        commits, end_lsn, last, is_open: see `Taken`.
        next_sequence: number of the next row of the open transaction.
    """

    def __init__(self, frames: Frames, assembler: Assembler) -> None:
        self.frames = frames
        began, ended = frames.kind == BEGIN, frames.kind == COMMIT
        before = assembler.open_transaction
        depth = int(before is not None) + np.cumsum(began) - np.cumsum(ended)
        is_row = np.isin(frames.kind, _ROWS)
        if not (is_row | began | ended).all():
            raise ProtocolError("a message that is no row, begin or commit")
        if (depth[is_row | began] != 1).any() or (depth[ended] != 0).any():
            raise ProtocolError("rows, begins and commits are out of order")
        size = frames.end - frames.start
        if (size[began] != _BEGIN_BYTES).any() or (size[ended] != _COMMIT_BYTES).any():
            raise ProtocolError("a begin or a commit has another length")
        self._read_transactions(np.flatnonzero(began), np.flatnonzero(ended), before)
        number = np.cumsum(began)
        self.messages: Places = np.flatnonzero(is_row)
        self.kind = frames.kind[self.messages]
        self.oids = frames.oids(self.messages)
        self.transaction: Places = number[self.messages]
        self.lsn: Places = self._lsns[self.transaction]
        self.sequence = self._sequences(len(self._lsns), assembler.sequence)
        self.is_open = bool(depth[-1])
        rows_of_last = int((self.transaction == len(self._lsns) - 1).sum())
        base = assembler.sequence if len(self._lsns) == 1 else 0
        self.next_sequence = base + SEQUENCE_STEP * rows_of_last

    def _read_transactions(self, begins: Places, ends: Places, before: Begin | None) -> None:
        frames = self.frames
        first = before or Begin(Lsn(0), 0, 0)
        lsns = frames.u64(frames.start[begins] + _BEGIN_LSN_AT)
        times = frames.u64(frames.start[begins] + _BEGIN_TS_AT) + POSTGRES_EPOCH_US
        self._lsns: Places = np.concatenate([[first.commit_lsn], lsns]).astype(np.int64)
        times_us = [first.ts_us, *times.tolist()]
        self.times = [(TS, encode_ts(ts_us)) for ts_us in times_us]
        committed = self._lsns if before else self._lsns[1:]
        if (frames.u64(frames.start[ends] + _COMMIT_LSN_AT) != committed[: len(ends)]).any():
            raise ProtocolError("a commit does not end the open transaction")
        self.commits = len(ends)
        self.end_lsn = (
            Lsn(int(frames.u64(frames.start[ends[-1:]] + _COMMIT_END_AT)[0])) if len(ends) else None
        )
        self.last = first
        self.begun = len(begins)
        self.all_xids: Places = frames.u32(frames.start[begins] + _BEGIN_XID_AT)
        if len(begins):
            self.last = Begin(Lsn(int(lsns[-1])), times_us[-1], int(self.all_xids[-1]))
        if before is not None:
            self.all_xids = np.concatenate([np.array([before.xid]), self.all_xids])

    def _sequences(self, transactions: int, base: int) -> Places:
        rank = np.arange(len(self.transaction), dtype=np.int64)
        first: NDArray[np.int64] = np.searchsorted(self.transaction, np.arange(transactions))
        sequence: Places = SEQUENCE_STEP * (rank - first[self.transaction])
        sequence[self.transaction == 0] += base
        return sequence


def _chosen(columns: list[Fields], rows: Mask) -> list[Fields]:
    if rows.all():
        return columns
    return [each.chosen(rows) for each in columns]


def _lengths(texts: Sequence[bytes]) -> Places:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def _by_op(kinds: NDArray[np.uint8], weights: Places | None = None) -> Counter[Op]:
    """Count messages, or add up their weights, by operation."""
    sums = np.bincount(kinds, weights, minlength=max(_ROWS) + 1)
    return Counter({op: int(sums[letter]) for letter, op in _OP_OF.items() if sums[letter]})
