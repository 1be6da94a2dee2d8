"""The stream: payloads in, records and frontiers out, acknowledgement back.

One thread, one order: read, decode, write, and at most once an interval, between two transactions,
flush, ask for the end offsets, write the frontier, acknowledge.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from changelog.capture.copy.backfill import Backfill
from changelog.capture.loop.heartbeat import Heartbeat
from changelog.capture.loop.schema_watch import SchemaWatch
from changelog.capture.loop.signals import Signals
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.start.roster import Roster
from changelog.capture.state.ledger import Ledger
from changelog.capture.state.policy import TABLE_ERRORS
from changelog.capture.state.progress import Progress
from changelog.capture.state.rate import Rate, Throttle
from changelog.capture.state.report import CaptureReport, op_of
from changelog.capture.write.bulk import BulkWriter, NotInBulkError
from changelog.capture.write.frontier_writer import FrontierWriter
from changelog.capture.write.messages import DdlWriter, MessageWriter
from changelog.capture.write.sequences import SequenceLog
from changelog.capture.write.writer import RecordWriter
from changelog.contract.base.errors import RecordRefusedError, SourceError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import LastCommit
from changelog.contract.rows.change import Truncate
from changelog.contract.rows.relation import TableName
from changelog.native import Texts
from changelog.runtime.failpoints import Failpoint, Told
from changelog.sink.producer import LogProducer
from changelog.source.stream.assemble import Assembler, Began, Changed, Committed, Emitted, Event
from changelog.source.stream.merged import MergedStream
from changelog.source.stream.message import OWN_PREFIX
from changelog.source.stream.pgoutput import (
    Message,
    RelationMessage,
    TypeMessage,
    decode,
    relations_of,
)
from changelog.source.stream.signals import SIGNAL_PREFIX
from changelog.source.stream.stream import ReplicationStream
from changelog.source.tables.ddl import DDL_PREFIX

log = logging.getLogger("changelog.capture")

POLL_S = 0.2
MOST = 4000
"""Payloads that are taken at once."""

OWED_NAP_S = 0.05
OPEN_S = 10.0
"""How long a transaction of the producer stays open when no frontier can be written."""

HELD_SHARE = 1 / 200
"""Of the time, in which frontiers may hold the stream: half of what a 99th percentile sees."""

MOST_INTERVALS = 3

PAUSE_LOOK_S, PAUSE_SAY_S = 0.5, 60.0
"""How often a pause looks for its end, and how often it says that it holds."""

NUDGE_S = 2.0
"""Silence after which a stream that has an end to reach asks the server for a sign of life."""


class _StoppedError(Exception):
    """Capture was asked to stop while a signal held the stream."""


@dataclass(kw_only=True, eq=False)
class StreamLoop:
    """Runs the stream until it is asked to stop, or a frontier has passed an LSN."""

    stream: ReplicationStream | MergedStream  # the replication connection
    assembler: Assembler  # messages to events
    writer: RecordWriter  # changes to records, one by one
    bulk: BulkWriter  # changes to records, many at once
    messages: MessageWriter  # the application's messages to records
    ddl: DdlWriter | None  # schema changes to records, if they are wanted
    sequences: SequenceLog | None  # writes where sequences stand, if that is wanted
    producer: LogProducer  # where the records go
    rate: Rate  # how fast records may be written
    progress: Progress  # decides about frontiers and acknowledgement
    frontier_writer: FrontierWriter  # writes a frontier
    interval_s: float  # least time between two frontiers
    ledger: Ledger  # what is known of each topic
    backfill: Backfill  # copies tables between segments of the stream
    names: Mapping[int, TableName]  # the captured tables by object id
    watch: CatalogueWatch  # looks for changes of tables that the stream does not tell
    roster: Roster  # looks for tables that come and go
    # looks for schemas that the registry has lost; None where there is no registry
    schemas: SchemaWatch | None
    signals: Signals  # takes what rows of the signal table ask for
    heartbeat: Heartbeat  # writes a row now and then
    nudge: Callable[[], None]  # makes the server write a message into its WAL
    wal_end: Callable[[], Lsn]  # asks the server for the end of its WAL
    report: CaptureReport  # counts
    failpoint: Told  # told of each moment at which a crash is tested

    _stop: Callable[[], bool] = field(init=False, default=lambda: False)
    _until: Lsn | None = field(init=False, default=None)
    _described: tuple[int, ...] = field(init=False, default=())
    _began: Began = field(init=False, default=Began(Lsn(0), 0, 0))
    _commit: LastCommit | None = field(init=False, default=None)
    _throttle: Throttle = field(init=False)
    _next_frontier_at: float = field(init=False, default_factory=time.monotonic)
    _last_heard: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Owe nothing yet."""
        self._throttle = Throttle(self.rate)

    def run(self, until: Lsn | None, stop: Callable[[], bool]) -> None:
        """Stream until `stop`, or until a frontier has passed `until`.

        Ends with a frontier at the last whole transaction where one is possible: not in the
        middle of a large transaction, whose rest the next start brings.

        Raises SourceError: a signal holds the stream before `until`; ChangelogError: see
        `CaptureRun`.
        """
        self._until, self._stop = until, stop
        try:
            self._run(until, stop)
        except _StoppedError:
            return  # where the frontier stands

    def _run(self, until: Lsn | None, stop: Callable[[], bool]) -> None:
        self._hold()
        if until is not None and self.progress.settle() < until:
            self.nudge()  # an idle server would keep the last bytes to itself for seconds
        while not stop():
            if self._owes():
                continue
            payloads = self.stream.poll(POLL_S, self.rate.most(MOST))
            records, size = self.producer.records, self.producer.bytes
            behind = payloads.behind_commit()
            self._write(payloads, 0, behind)
            if behind < len(payloads):
                self._advance(idle=False)  # a frontier has no place inside the rest
                self._write(payloads, behind, len(payloads))
            self._throttle.spent(self.producer.records - records, self.producer.bytes - size)
            self.producer.poll()
            self.heartbeat.beat()
            self._advance(idle=not payloads)
            if self.producer.open_s > OPEN_S:
                self.producer.commit()  # no frontier, but readers and the cleaner are not held up
            if self.progress.between_transactions:
                self.roster.step()
                if self.schemas is not None:
                    self.schemas.step(self.ledger.absent)
                self.backfill.step()
            if until is not None:
                if self.progress.settle() >= until and not self.backfill.tasks.pending:
                    return
                self._nudge_when_silent(heard=bool(payloads))
        self._write_frontier()

    def _owes(self) -> bool:
        """Wait a moment where more was written than may be; PostgreSQL hears of us meanwhile.

        Frontiers go on where there is one to write: not inside of a large transaction.
        """
        owed_s = self._throttle.owed_s()
        if not owed_s:
            return False
        time.sleep(min(owed_s, OWED_NAP_S))
        self.stream.send_status()
        self.producer.poll()
        self._advance(idle=False)
        return True

    def _write(self, payloads: Texts, first: int, end: int) -> None:
        while first < end:
            behind, is_plain = payloads.alike(first)
            behind = min(behind, end)
            if is_plain and self._described:
                self._note_partition(payloads[first])
                self._described = ()
            in_bulk = is_plain and not (self.signals.is_open or self.backfill.awaits_commit)
            if not (in_bulk and self._write_bulk(payloads, first, behind)):
                self._write_each(payloads[first:behind])
            first = behind

    def _write_each(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            message = decode(payload)
            if isinstance(message, RelationMessage):
                self._described = (*self._described[-1:], message.oid)
            elif not isinstance(message, TypeMessage):
                self._described = ()
            self._resolve(message)
            for event in self.assembler.add(message):
                self._take(event)

    def _note_partition(self, payload: bytes) -> None:
        """Note the partition that a row is in, if the stream has just described it.

        Before the first row of a partition its root and the partition are described, and the row is
        the root's: `maybe_send_schema` in PostgreSQL's `pgoutput.c`.
        """
        root, *partitions = self._described
        message = decode(payload)
        if root not in relations_of(message) or root not in self.names:
            return
        for partition in partitions:
            if not self.assembler.is_deaf(root, self._began.commit_lsn):
                self.watch.filled(self.names[root], partition, self._began.xid)

    def _resolve(self, message: Message) -> None:
        """Check that the relations of a change can be captured, or are excluded."""
        for oid in relations_of(message):
            is_known = self.assembler.is_resolved(oid)
            if not is_known and not self.assembler.is_deaf(oid, self._began.commit_lsn):
                try:
                    self.assembler.relation(oid)
                except TABLE_ERRORS as error:
                    self.backfill.tasks.failed(self.names[oid], error, self._began.commit_lsn)

    def _write_bulk(self, payloads: Texts, first: int, end: int) -> bool:
        """Write a run at once; False when it has to be taken message by message."""
        try:
            taken = self.bulk.take(payloads, first, end)
        except NotInBulkError:
            return False
        last = taken.last
        self._began = Began(last.commit_lsn, last.ts_us, last.xid)
        if taken.end_lsn is not None:
            self.progress.committed(taken.end_lsn)
            if not taken.is_open:  # inside of a transaction no frontier is written
                self._commit = LastCommit(taken.end_lsn, last.ts_us)
        if taken.is_open:
            self.progress.began()
        self.backfill.ran(taken.xids)
        self.report.records += taken.records
        self.report.rows.update(taken.changes)
        self.report.bytes.update(taken.sizes)
        self.report.transactions += taken.commits
        for _ in range(taken.commits):
            self.failpoint(Failpoint.TRANSACTION_PRODUCED)
        return True

    def _take(self, event: Event) -> None:
        match event:
            case Changed(change=change, sequence=sequence):
                began = self._began
                size = self.producer.bytes
                try:
                    written = self.writer.write(
                        change, began.commit_lsn, sequence, began.ts_us, began.xid
                    )
                except RecordRefusedError:
                    raise  # of an earlier record, and maybe another table
                except TABLE_ERRORS as error:
                    self.backfill.tasks.failed(change.relation.name, error, began.commit_lsn)
                    return
                if isinstance(change, Truncate):
                    self.watch.truncated(change.relation.name, began.xid)
                table_op = (change.relation.name, op_of(change))
                self.report.records += written
                self.report.rows[table_op] += written > 0
                self.report.bytes[table_op] += self.producer.bytes - size
                self.failpoint(Failpoint.RECORD_PRODUCED)
            case Began():
                self._began = event
                self.progress.began()
                self.backfill.began(event.xid)
            case Committed(end_lsn=end_lsn, ts_us=ts_us):
                self._commit = LastCommit(end_lsn, ts_us)
                self.progress.committed(end_lsn)
                self.report.transactions += 1
                self.signals.is_open = False
                self.failpoint(Failpoint.TRANSACTION_PRODUCED)
                self.backfill.committed(self._began.xid, end_lsn)
                self._advance(idle=False)
            case Emitted():
                self._emitted(event)

    def _emitted(self, message: Emitted) -> None:
        if message.prefix == OWN_PREFIX:
            self.backfill.heard(message, self._began.commit_lsn)
            return
        if message.prefix == SIGNAL_PREFIX:
            self.signals.take(message, self._began)
            return
        if message.prefix == DDL_PREFIX:
            written = self.ddl.write(message, self._began) if self.ddl is not None else 0
        else:
            written = self.messages.write(message, self._began)
        self.report.messages += written
        if written:
            self.failpoint(Failpoint.MESSAGE_PRODUCED)
        if not message.transactional:
            # It stands in the WAL by itself: all that commits before it was sent before it.
            self.progress.idle_until(message.lsn)

    def _advance(self, *, idle: bool) -> None:
        """Write a frontier when the interval is over and there is news to tell."""
        if idle:
            self.progress.idle_until(self.stream.server_wal_end)
        now = time.monotonic()
        is_time = now >= self._next_frontier_at or self.signals.is_due
        if is_time and self.frontier_writer.worthwhile(self.progress):
            self._write_frontier()
            ended = time.monotonic()
            pause_s = pause_after(ended - now, self.interval_s)
            if self.producer.is_transactional:
                pause_s = self.interval_s  # without a frontier, nobody sees the changes
            self._next_frontier_at = ended + pause_s
            if not self.signals.is_due:  # the frontier stands that tells of a pause
                self._hold()

    def _write_frontier(self) -> None:
        lsn = self.progress.frontier_due()
        if lsn is None or not self.frontier_writer.worthwhile(self.progress):
            return
        self.roster.look()
        if not self.watch.look(self.ledger.absent, self.backfill.tasks.failed):
            return
        if self.sequences is not None:
            self.sequences.write(lsn, self._began.ts_us)
        written = self.frontier_writer.write(
            lsn,
            ts_us=self._began.ts_us,
            on_foreign=self.backfill.tasks.interrupted,
            commit=self._commit,
        )
        if written is None:
            return
        self.failpoint(Failpoint.FRONTIER_WRITTEN)
        self.progress.frontier_written(lsn)
        self.stream.acknowledge(self.progress.settle())
        self.backfill.frontier_written()
        self.roster.frontier_written()
        self.report.frontier_written(lsn, self._began.ts_us)
        self.signals.told()
        self.failpoint(Failpoint.ACKNOWLEDGED)

    def _hold(self) -> None:
        """Stay at the frontier while a signal pauses the stream; read messages wait unwritten.

        Raises SourceError: there is an end to reach, which lies behind.
        """
        say_at = look_at = 0.0
        while self.signals.paused is not None:
            now = time.monotonic()
            if now >= look_at and not self.signals.holds():
                return
            look_at = now + PAUSE_LOOK_S if now >= look_at else look_at
            if self._stop():
                raise _StoppedError
            if self._until is not None:
                self._end_paused(self._until)
            if now >= say_at:
                say_at = now + PAUSE_SAY_S
                self._say_paused()
            self.backfill.let_go()
            self.stream.send_status()
            self.producer.poll()
            if self.frontier_writer.worthwhile(self.progress):
                self._write_frontier()  # the same again, so that it can be read for as long
            time.sleep(POLL_S)

    def _end_paused(self, until: Lsn) -> None:
        """End a run that has an end to reach: well where the frontier has passed it."""
        at = self.progress.settle()
        if at >= until and not self.backfill.tasks.pending:
            raise _StoppedError
        raise SourceError(
            f"signal {self.signals.paused} pauses the stream at {at}: {until} is not reached",
            hint="INSERT INTO changelog.changelog_signal (kind) VALUES ('resume')",
        )

    def _say_paused(self) -> None:
        at = self.progress.settle()
        log.warning(
            'signal %d pauses the stream at %s until a signal "resume"; the slot keeps the WAL '
            "since then, %s bytes now",
            self.signals.paused,
            at,
            f"{self.wal_end() - at:,}",
            extra={"lsn": str(at)},
        )

    def _nudge_when_silent(self, *, heard: bool) -> None:
        now = time.monotonic()
        if heard:
            self._last_heard = now
        elif now - self._last_heard > NUDGE_S:
            self._last_heard = now
            self.nudge()


def pause_after(spent_s: float, interval_s: float) -> float:
    """Return the pause after a frontier that held the stream for `spent_s`.

    The interval, and longer where frontiers would hold the stream for more than their share of the
    time: each change that comes meanwhile waits. No more than `MOST_INTERVALS`, though, since a
    rebuild sees nothing that is newer than the last frontier.
    """
    return min(max(interval_s, spent_s / HELD_SHARE), MOST_INTERVALS * interval_s)
