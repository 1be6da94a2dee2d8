"""The stream: payloads in, records and frontiers out, acknowledgement back.

One thread, one order: read, decode, write, and at most once an interval, between two transactions,
flush, ask for the end offsets, write the frontier, acknowledge.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from changelog.capture.copy.backfill import Backfill
from changelog.capture.frontier.frontier_writer import FrontierWriter
from changelog.capture.frontier.settle import Progress
from changelog.capture.loop.heartbeat import Heartbeat
from changelog.capture.loop.signals import Signals
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.start.roster import Roster
from changelog.capture.state.ledger import Ledger
from changelog.capture.state.policy import TABLE_ERRORS
from changelog.capture.state.rate import Rate, Throttle
from changelog.capture.state.report import CaptureReport, op_of
from changelog.capture.write.bulk import BulkWriter, NotInBulkError
from changelog.capture.write.ddl import DdlWriter
from changelog.capture.write.messages import MessageWriter
from changelog.capture.write.sequences import SequenceLog
from changelog.capture.write.writer import RecordWriter
from changelog.contract.base.errors import RecordRefusedError, SourceError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.change import Truncate
from changelog.contract.rows.relation import TableName
from changelog.native.buffers import Texts
from changelog.runtime.failpoints import Failpoint, Told
from changelog.sink.producer import LogProducer
from changelog.source.stream.assemble import Assembler, Began, Changed, Committed, Emitted, Event
from changelog.source.stream.merged import MergedStream
from changelog.source.stream.message import OWN_PREFIX
from changelog.source.stream.pgoutput import Message, decode, relations_of
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


class StreamLoop:
    """Runs the stream until it is asked to stop, or a frontier has passed an LSN."""

    def __init__(
        self,
        *,
        stream: ReplicationStream | MergedStream,
        assembler: Assembler,
        writer: RecordWriter,
        bulk: BulkWriter,
        messages: MessageWriter,
        ddl: DdlWriter | None,
        producer: LogProducer,
        progress: Progress,
        frontier_writer: FrontierWriter,
        ledger: Ledger,
        report: CaptureReport,
        interval_s: float,
        nudge: Callable[[], None],
        failpoint: Told,
        backfill: Backfill,
        names: Mapping[int, TableName],
        watch: CatalogueWatch,
        roster: Roster,
        signals: Signals,
        rate: Rate,
        sequences: SequenceLog | None,
        wal_end: Callable[[], Lsn],
        heartbeat: Heartbeat,
    ) -> None:
        """Join the parts of one attempt.

        Args:
            stream: the replication connection.
            assembler: messages to events.
            writer: changes to records, one by one.
            bulk: changes to records, many at once.
            messages: the application's messages to records.
            ddl: schema changes to records, if they are wanted.
            producer: where the records go.
            progress: decides about frontiers and acknowledgement.
            frontier_writer: writes a frontier.
            ledger: what is known of each topic.
            report: counts.
            interval_s: least time between two frontiers.
            nudge: makes the server write a message into its WAL.
            failpoint: told of each moment at which a crash is tested.
            backfill: copies tables between segments of the stream.
            names: the captured tables by object id.
            watch: looks for changes of tables that the stream does not tell.
            roster: looks for tables that come and go.
            signals: takes what rows of the signal table ask for.
            rate: how fast records may be written.
            sequences: writes where sequences stand, if that is wanted.
            wal_end: asks the server for the end of its WAL.
            heartbeat: writes a row now and then.
        """
        self._heartbeat = heartbeat
        self._signals = signals
        self._rate, self._throttle = rate, Throttle(rate)
        self._sequences = sequences
        self._wal_end = wal_end
        self._stop: Callable[[], bool] = lambda: False
        self._until: Lsn | None = None
        self._roster = roster
        self._watch = watch
        self._names = names
        self._backfill = backfill
        self._stream = stream
        self._assembler = assembler
        self._writer = writer
        self._bulk = bulk
        self._messages = messages
        self._ddl = ddl
        self._producer = producer
        self._progress = progress
        self._frontier_writer = frontier_writer
        self._ledger = ledger
        self._report = report
        self._interval_s = interval_s
        self._nudge = nudge
        self._failpoint = failpoint
        self._began = Began(Lsn(0), 0, 0)
        self._next_frontier_at = time.monotonic()
        self._last_heard = time.monotonic()

    def run(self, until: Lsn | None, stop: Callable[[], bool]) -> None:
        """Stream until `stop`, or until a frontier has passed `until`.

        Ends with a frontier at the last whole transaction where one is possible: not in the
        middle of a large transaction, whose rest the next start brings.

        Raises:
            SourceError: a signal holds the stream before `until`.
            ChangelogError: see `CaptureRun`.
        """
        self._until, self._stop = until, stop
        try:
            self._run(until, stop)
        except _StoppedError:
            return  # where the frontier stands

    def _run(self, until: Lsn | None, stop: Callable[[], bool]) -> None:
        self._hold()
        if until is not None and self._progress.settle() < until:
            self._nudge()  # an idle server would keep the last bytes to itself for seconds
        while not stop():
            if self._owes():
                continue
            payloads = self._stream.poll(POLL_S, self._rate.most(MOST))
            records, size = self._producer.records, self._producer.bytes
            behind = payloads.behind_commit()
            self._write(payloads, 0, behind)
            if behind < len(payloads):
                self._advance(idle=False)  # a frontier has no place inside the rest
                self._write(payloads, behind, len(payloads))
            self._throttle.spent(self._producer.records - records, self._producer.bytes - size)
            self._producer.poll()
            self._heartbeat.beat()
            self._advance(idle=not payloads)
            if self._producer.open_s > OPEN_S:
                self._producer.commit()  # no frontier, but readers and the cleaner are not held up
            if self._progress.between_transactions:
                self._roster.step()
                self._backfill.step()
            if until is not None:
                if self._progress.settle() >= until and not self._backfill.pending:
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
        self._stream.send_status()
        self._producer.poll()
        self._advance(idle=False)
        return True

    def _write(self, payloads: Texts, first: int, end: int) -> None:
        while first < end:
            behind, is_plain = payloads.alike(first)
            behind = min(behind, end)
            in_bulk = is_plain and not (self._signals.is_open or self._backfill.awaits_commit)
            if not (in_bulk and self._write_bulk(payloads, first, behind)):
                self._write_each(payloads[first:behind])
            first = behind

    def _write_each(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            message = decode(payload)
            self._resolve(message)
            for event in self._assembler.add(message):
                self._take(event)

    def _resolve(self, message: Message) -> None:
        """See that the relations of a change can be captured, or are excluded."""
        for oid in relations_of(message):
            is_known = self._assembler.is_resolved(oid)
            if not is_known and not self._assembler.is_deaf(oid, self._began.commit_lsn):
                try:
                    self._assembler.relation(oid)
                except TABLE_ERRORS as error:
                    self._backfill.failed(self._names[oid], error, self._began.commit_lsn)

    def _write_bulk(self, payloads: Texts, first: int, end: int) -> bool:
        """Write a run at once; False when it has to be taken message by message."""
        try:
            taken = self._bulk.take(payloads, first, end)
        except NotInBulkError:
            return False
        last = taken.last
        self._began = Began(last.commit_lsn, last.ts_us, last.xid)
        if taken.end_lsn is not None:
            self._progress.committed(taken.end_lsn)
        if taken.is_open:
            self._progress.began()
        self._backfill.ran(taken.xids)
        self._report.records += taken.records
        self._report.rows.update(taken.changes)
        self._report.bytes.update(taken.sizes)
        self._report.transactions += taken.commits
        for _ in range(taken.commits):
            self._failpoint(Failpoint.TRANSACTION_PRODUCED)
        return True

    def _take(self, event: Event) -> None:
        match event:
            case Changed(change=change, sequence=sequence):
                began = self._began
                size = self._producer.bytes
                try:
                    written = self._writer.write(
                        change, began.commit_lsn, sequence, began.ts_us, began.xid
                    )
                except RecordRefusedError:
                    raise  # of an earlier record, and maybe another table
                except TABLE_ERRORS as error:
                    self._backfill.failed(change.relation.name, error, began.commit_lsn)
                    return
                if isinstance(change, Truncate):
                    self._watch.truncated(change.relation.name, began.xid)
                what = (change.relation.name, op_of(change))
                self._report.records += written
                self._report.rows[what] += written > 0
                self._report.bytes[what] += self._producer.bytes - size
                self._failpoint(Failpoint.RECORD_PRODUCED)
            case Began():
                self._began = event
                self._progress.began()
                self._backfill.began(event.xid)
            case Committed(end_lsn=end_lsn):
                self._progress.committed(end_lsn)
                self._report.transactions += 1
                self._signals.is_open = False
                self._failpoint(Failpoint.TRANSACTION_PRODUCED)
                self._backfill.committed(self._began.xid, end_lsn)
                self._advance(idle=False)
            case Emitted():
                self._emitted(event)

    def _emitted(self, message: Emitted) -> None:
        if message.prefix == OWN_PREFIX:
            self._backfill.heard(message, self._began.commit_lsn)
            return
        if message.prefix == SIGNAL_PREFIX:
            self._signals.take(message, self._began)
            return
        if message.prefix == DDL_PREFIX:
            written = self._ddl.write(message, self._began) if self._ddl is not None else 0
        else:
            written = self._messages.write(message, self._began)
        self._report.messages += written
        if written:
            self._failpoint(Failpoint.MESSAGE_PRODUCED)
        if not message.transactional:
            # It stands in the WAL by itself: all that commits before it was sent before it.
            self._progress.idle_until(message.lsn)

    def _advance(self, *, idle: bool) -> None:
        """Write a frontier when the interval is over and there is news to tell."""
        if idle:
            self._progress.idle_until(self._stream.server_wal_end)
        now = time.monotonic()
        is_time = now >= self._next_frontier_at or self._signals.is_due
        if is_time and self._frontier_writer.worthwhile(self._progress):
            self._write_frontier()
            ended = time.monotonic()
            pause_s = pause_after(ended - now, self._interval_s)
            if self._producer.is_transactional:
                pause_s = self._interval_s  # without a frontier, nobody sees the changes
            self._next_frontier_at = ended + pause_s
            if not self._signals.is_due:  # the frontier stands that tells of a pause
                self._hold()

    def _write_frontier(self) -> None:
        lsn = self._progress.frontier_due()
        if lsn is None or not self._frontier_writer.worthwhile(self._progress):
            return
        self._roster.look()
        if not self._watch.look(self._ledger.absent, self._backfill.failed):
            return
        if self._sequences is not None:
            self._sequences.write(lsn, self._began.ts_us)
        written = self._frontier_writer.write(
            lsn, ts_us=self._began.ts_us, on_foreign=self._backfill.interrupted
        )
        if written is None:
            return
        self._failpoint(Failpoint.FRONTIER_WRITTEN)
        self._progress.frontier_written(lsn)
        self._stream.acknowledge(self._progress.settle())
        self._backfill.frontier_written()
        self._roster.frontier_written()
        self._report.frontier_written(lsn, self._began.ts_us)
        self._signals.told()
        self._failpoint(Failpoint.ACKNOWLEDGED)

    def _hold(self) -> None:
        """Stay at the frontier while a signal pauses the stream; what was read waits unwritten.

        Raises:
            SourceError: there is an end to reach, which lies behind.
        """
        say_at = look_at = 0.0
        while self._signals.paused is not None:
            now = time.monotonic()
            if now >= look_at and not self._signals.holds():
                return
            look_at = now + PAUSE_LOOK_S if now >= look_at else look_at
            if self._stop():
                raise _StoppedError
            if self._until is not None:
                self._end_paused(self._until)
            if now >= say_at:
                say_at = now + PAUSE_SAY_S
                self._say_paused()
            self._backfill.let_go()
            self._stream.send_status()
            self._producer.poll()
            if self._frontier_writer.worthwhile(self._progress):
                self._write_frontier()  # the same again, so that it can be read for as long
            time.sleep(POLL_S)

    def _end_paused(self, until: Lsn) -> None:
        """End a run that has an end to reach: well where the frontier has passed it."""
        at = self._progress.settle()
        if at >= until and not self._backfill.pending:
            raise _StoppedError
        raise SourceError(
            f"signal {self._signals.paused} pauses the stream at {at}: {until} is not reached",
            hint="INSERT INTO changelog.changelog_signal (kind) VALUES ('resume')",
        )

    def _say_paused(self) -> None:
        at = self._progress.settle()
        log.warning(
            'signal %d pauses the stream at %s until a signal "resume"; the slot keeps the WAL '
            "since then, %s bytes now",
            self._signals.paused,
            at,
            f"{self._wal_end() - at:,}",
            extra={"lsn": str(at)},
        )

    def _nudge_when_silent(self, *, heard: bool) -> None:
        now = time.monotonic()
        if heard:
            self._last_heard = now
        elif now - self._last_heard > NUDGE_S:
            self._last_heard = now
            self._nudge()


def pause_after(spent_s: float, interval_s: float) -> float:
    """Return how long no frontier is written after one that held the stream for `spent_s`.

    The interval, and longer where frontiers would hold the stream for more than their share of the
    time: each change that comes meanwhile waits. No more than `MOST_INTERVALS`, though, since a
    rebuild sees nothing that is newer than the last frontier.
    """
    return min(max(interval_s, spent_s / HELD_SHARE), MOST_INTERVALS * interval_s)
