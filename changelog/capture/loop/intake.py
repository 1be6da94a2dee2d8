"""Payloads of the stream to records: many at once, or message by message where necessary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from changelog.capture.copy.backfill import Backfill
from changelog.capture.loop.frontiers import StreamPlace
from changelog.capture.loop.schedule import FrontierSchedule
from changelog.capture.loop.signals import Signals
from changelog.capture.start.attempt import Attempt
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.state.policy import TABLE_ERRORS
from changelog.capture.state.report import op_of
from changelog.capture.write.bulk import BulkWriter, NotInBulkError
from changelog.capture.write.messages import DdlWriter, MessageWriter
from changelog.capture.write.writer import RecordWriter
from changelog.contract.base.errors import RecordRefusedError
from changelog.contract.log.frontier import LastCommit
from changelog.contract.rows.change import Truncate
from changelog.contract.rows.relation import TableName
from changelog.native import Texts
from changelog.runtime.failpoints import Failpoint
from changelog.source.stream.assemble import Assembler, Began, Changed, Committed, Emitted, Event
from changelog.source.stream.message import OWN_PREFIX
from changelog.source.stream.pgoutput import (
    Message,
    RelationMessage,
    TypeMessage,
    decode,
    relations_of,
)
from changelog.source.stream.signals import SIGNAL_PREFIX
from changelog.source.tables.ddl import DDL_PREFIX


@dataclass(kw_only=True, slots=True, eq=False)
class StreamIntake:
    """Writes the records of the stream's payloads, and informs the other parts of the attempt."""

    attempt: Attempt
    place: StreamPlace  # kept up to date here
    assembler: Assembler  # messages to events
    writer: RecordWriter  # changes to records, one by one
    bulk: BulkWriter  # changes to records, many at once
    messages: MessageWriter
    ddl: DdlWriter | None  # None if the settings do not want schema changes
    names: Mapping[int, TableName]  # the captured tables by object id
    backfill: Backfill
    watch: CatalogueWatch
    signals: Signals
    schedule: FrontierSchedule  # called where a frontier may be written
    # the relations that the stream described last, with no row in between
    _described: tuple[int, ...] = field(init=False, default=())

    def take(self, payloads: Texts) -> None:
        """Write the records of payloads, and between them a frontier when one is due."""
        commit_end = payloads.behind_commit()
        self._write_range(payloads, 0, commit_end)
        if commit_end < len(payloads):
            # The rest is the start of a transaction, in which no frontier may be written.
            self.schedule.advance()
            self._write_range(payloads, commit_end, len(payloads))

    def _write_range(self, payloads: Texts, first: int, end: int) -> None:
        """Write payloads from `first` to before `end`, run by run of plain and other messages."""
        while first < end:
            run_end, is_plain = payloads.alike(first)
            run_end = min(run_end, end)
            if is_plain and self._described:
                self._note_partition(payloads[first])
                self._described = ()
            # A signal or a mark in an open transaction has to see its commit message by itself.
            in_bulk = is_plain and not (self.signals.is_open or self.backfill.awaits_commit)
            if not (in_bulk and self._write_bulk(payloads, first, run_end)):
                self._write_each(payloads[first:run_end])
            first = run_end

    def _write_each(self, payloads: list[bytes]) -> None:
        """Decode payloads and write their records one by one."""
        for payload in payloads:
            message = decode(payload)
            if isinstance(message, RelationMessage):
                self._described = (*self._described[-1:], message.oid)
            elif not isinstance(message, TypeMessage):
                self._described = ()
            self._resolve(message)
            for event in self.assembler.add(message):
                self._take_event(event)

    def _note_partition(self, payload: bytes) -> None:
        """Note the partition of a row, if the stream has just described it.

        Before the first row of a partition PostgreSQL describes the root and then the partition;
        the row itself names the root (`maybe_send_schema` in `pgoutput.c`).
        """
        root, *partitions = self._described
        message, began = decode(payload), self.place.began
        if root not in relations_of(message) or root not in self.names:
            return
        for partition in partitions:
            if not self.assembler.is_deaf(root, began.commit_lsn):
                self.watch.filled(self.names[root], partition, began.xid)

    def _resolve(self, message: Message) -> None:
        """Resolve the relations of a change; a table that cannot be captured fails."""
        at = self.place.began.commit_lsn
        for oid in relations_of(message):
            if not self.assembler.is_resolved(oid) and not self.assembler.is_deaf(oid, at):
                try:
                    self.assembler.relation(oid)
                except TABLE_ERRORS as error:
                    self.backfill.tasks.failed(self.names[oid], error, at)

    def _write_bulk(self, payloads: Texts, first: int, end: int) -> bool:
        """Write a run at once; return False if it has to be written message by message."""
        try:
            taken = self.bulk.take(payloads, first, end)
        except NotInBulkError:
            return False
        last, context, progress = taken.last, self.attempt.context, self.attempt.progress
        self.place.began = Began(last.commit_lsn, last.ts_us, last.xid)
        if taken.end_lsn is not None:
            progress.committed(taken.end_lsn)
            if not taken.is_open:  # inside of a transaction no frontier is written
                self.place.commit = LastCommit(taken.end_lsn, last.ts_us)
        if taken.is_open:
            progress.began()
        self.backfill.ran(taken.xids)
        context.report.records += taken.records
        context.report.rows.update(taken.changes)
        context.report.bytes.update(taken.sizes)
        context.report.transactions += taken.commits
        for _ in range(taken.commits):
            context.failpoint(Failpoint.TRANSACTION_PRODUCED)
        return True

    def _take_event(self, event: Event) -> None:
        progress, context = self.attempt.progress, self.attempt.context
        match event:
            case Changed():
                self._write_change(event)
            case Began():
                self.place.began = event
                progress.began()
                self.backfill.began(event.xid)
            case Committed(end_lsn=end_lsn, ts_us=ts_us):
                self.place.commit = LastCommit(end_lsn, ts_us)
                progress.committed(end_lsn)
                context.report.transactions += 1
                self.signals.is_open = False
                context.failpoint(Failpoint.TRANSACTION_PRODUCED)
                self.backfill.committed(self.place.began.xid, end_lsn)
                self.schedule.advance()
            case Emitted():
                self._take_message(event)

    def _write_change(self, event: Changed) -> None:
        began, change, context = self.place.began, event.change, self.attempt.context
        size = self.attempt.producer.bytes
        try:
            written = self.writer.write(
                change, began.commit_lsn, event.sequence, began.ts_us, began.xid
            )
        except RecordRefusedError:
            raise  # it is about an earlier record, perhaps of another table
        except TABLE_ERRORS as error:
            self.backfill.tasks.failed(change.relation.name, error, began.commit_lsn)
            return
        if isinstance(change, Truncate):
            self.watch.truncated(change.relation.name, began.xid)
        table_op = (change.relation.name, op_of(change))
        context.report.records += written
        context.report.rows[table_op] += written > 0
        context.report.bytes[table_op] += self.attempt.producer.bytes - size
        context.failpoint(Failpoint.RECORD_PRODUCED)

    def _take_message(self, message: Emitted) -> None:
        """Pass a message of `pg_logical_emit_message` to the part that its prefix names."""
        began, context = self.place.began, self.attempt.context
        if message.prefix == OWN_PREFIX:
            self.backfill.heard(message, began.commit_lsn)
            return
        if message.prefix == SIGNAL_PREFIX:
            self.signals.take(message, began)
            return
        if message.prefix == DDL_PREFIX:
            written = self.ddl.write(message, began) if self.ddl is not None else 0
        else:
            written = self.messages.write(message, began)
        context.report.messages += written
        if written:
            context.failpoint(Failpoint.MESSAGE_PRODUCED)
        if not message.transactional:
            # Such a message is sent at its own place in the WAL, after all earlier commits.
            self.attempt.progress.idle_until(message.lsn)
