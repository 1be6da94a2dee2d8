"""Backfills: copies of whole tables to the log, segment by segment, while the stream goes on.

One mechanism serves the first start, tables that are added or captured in another way, a slot that
was lost, and `changelog resnapshot`. Each segment has four steps:

1. `_open`: from here on the keys that transactions touch are noted (`fence.py`).
2. `_take_fence`: take a snapshot S, then write a mark into the WAL. If S does not see a transaction
   that was streamed before (1), S is released and another one is taken later.
3. `_copy_segment`: when the stream brings the mark, the stream waits, and workers copy chunks in S
   to the log. The rows get the mark's position. Keys that transactions invisible to S have touched
   are left out, because the log has newer rows of them.
4. The chunks that the broker has acknowledged are recorded on the frontier topic, and the stream
   continues.

A table is whole when all its chunks are on the log. Then keys whose records are all before `since`,
the position of the first fence, get tombstones, and the next frontier includes the table.

Chunks are read in different snapshots. A row that moves between chunks was updated, and the update
is in the stream; but a rewrite of the table moves rows silently. So the tables of a segment are
locked and copied only if their files and columns are the planned ones; otherwise they start over.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from changelog.capture.copy.snapshot import Copied, CopyJob, Segment, WorkerServers
from changelog.capture.copy.table_task import TableTask
from changelog.capture.copy.table_tasks import TableTasks
from changelog.capture.copy.workers import CopyWorkers
from changelog.capture.start.attempt import Attempt
from changelog.capture.state.policy import TABLE_ERRORS
from changelog.capture.state.rate import rate_of
from changelog.capture.write.fence import XidSnapshot
from changelog.capture.write.writer import RecordWriter, write_tombstones
from changelog.contract.base.errors import ChangelogError, UncapturableTableError
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from changelog.runtime.failpoints import Failpoint
from changelog.source.connect.connect import connect
from changelog.source.connect.readiness import unreadable
from changelog.source.connect.system import current_snapshot
from changelog.source.connect.versions import SENDS_MESSAGES
from changelog.source.snapshot.snapshot import (
    SnapshotHolder,
    TablesBusyError,
    looks_of,
    plan_tables,
    writers_of,
)
from changelog.source.stream.assemble import Emitted
from changelog.source.stream.message import OWN_PREFIX, commit_mark, emit, emit_mark

log = logging.getLogger("changelog.capture")

FENCE, RESNAPSHOT = b"fence ", b"resnapshot "

SEGMENT_S = 5.0
"""How long the stream waits for a segment: readers of frontiers see nothing newer meanwhile."""

FIRST_SEGMENT_S = 30.0
"""The same before the first frontier, when there are no readers yet."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
"""Pauses between attempts at a fence, doubled each time: transactions may last milliseconds or
hours."""

_SAY_AFTER_S = 10.0
"""How long fences may fail before that is logged."""


@dataclass(frozen=True, slots=True)
class _Fence:
    """A snapshot and the mark that follows it: a message, or on older servers a transaction."""

    name: str  # of the exported snapshot
    mark: bytes  # the content of the message
    end: Lsn  # the end of the mark in the WAL
    ts_us: int  # when the snapshot was taken, microseconds since 1970
    xid: int | None = None  # the transaction that is the mark on older servers


class _Look(NamedTuple):
    """The columns of a table in the catalogue, and an end of the WAL at which it had them."""

    columns: str
    end: Lsn


class Backfill:
    """The backfills of one attempt; a context manager, entered when the stream has begun."""

    def __init__(
        self,
        attempt: Attempt,
        tasks: TableTasks,
        writer: RecordWriter,
        *,
        lose_count: Callable[[Iterable[str]], None],
        keep_alive: Callable[[], None],
    ) -> None:
        """Start with the tables to copy.

        `writer` notes the keys that the stream touches. `lose_count` is called with topics to which
        an unknown number of records was copied; `keep_alive` is called while the stream waits.
        """
        self._environment, self._context = attempt.environment, attempt.context
        self._progress, self._ledger = attempt.progress, attempt.ledger
        self._producer, self._epoch = attempt.producer, attempt.epoch
        self.tasks = tasks
        self._writer, self._recent = writer, writer.recent
        self._lose_count, self._keep_alive = lose_count, keep_alive
        self._workers: CopyWorkers | None = None
        self._holder: SnapshotHolder | None = None
        self._fence: _Fence | None = None
        self._numbers = itertools.count(1)
        self._next_try = 0.0
        self._wait_s = _FIRST_WAIT_S
        self._waiting_since: float | None = None
        self._marks = secrets.token_hex(8)
        self._before: frozenset[int] = frozenset()
        self._not_before = Lsn(0)
        self._looks: dict[str, _Look] = {}  # by topic, at tables that wait to begin

    def __enter__(self) -> Self:
        """Resume pending copies; leaving releases workers, snapshot and progress bar."""
        environment = self._environment
        # Transactions that run now may have changed tables before the stream began, so that it
        # does not bring these changes.
        before = current_snapshot(environment.connection)
        self._before = XidSnapshot.parse(before).xip
        # The stream catches up with the present WAL first: a snapshot held meanwhile would keep
        # dead rows from being vacuumed.
        self._not_before = environment.current_lsn()
        self.tasks.resume()
        if self.tasks.pending:
            emit(environment.writer, OWN_PREFIX, b"", transactional=True)
        # Last: `__exit__`, which hides the bar, does not run if this method raises.
        self.tasks.show()
        if self.tasks.active:
            self._hire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release workers, snapshot and progress bar."""
        self._recent.close()
        if self._workers is not None:
            self._workers.dismiss()
        if self._holder is not None:
            self._holder.close()
        self.tasks.hide(error)

    # --- events of the stream -------------------------------------------------------------

    def began(self, xid: int) -> None:
        """Note that a transaction is being streamed."""
        self._recent.began(xid)
        if self._recent.many:
            self._forget()

    def ran(self, xids: Sequence[int]) -> None:
        """Note that several transactions were streamed at once."""
        self._recent.ran(xids)
        if self._recent.many:
            self._forget()

    def _forget(self) -> None:
        self._recent.forget(XidSnapshot.parse(current_snapshot(self._environment.connection)))

    def heard(self, message: Emitted, commit_lsn: Lsn) -> None:
        """React to a message of capture itself: a mark, or a request for a copy."""
        if message.content.startswith(RESNAPSHOT):
            self._take_request(message.content[len(RESNAPSHOT) :], commit_lsn)
        elif self._fence is not None and message.content == self._fence.mark:
            self._reached(self._fence)

    @property
    def awaits_commit(self) -> bool:
        """Tell whether the expected mark is a transaction, whose end has to be reported here."""
        return self._fence is not None and self._fence.xid is not None

    def committed(self, xid: int, end_lsn: Lsn) -> None:
        """Note the end of a transaction, before any later change is written."""
        if self._fence is not None and self._fence.xid == xid:
            self._reached(replace(self._fence, end=end_lsn))

    def _reached(self, fence: _Fence) -> None:
        self._fence = None
        try:
            self._copy_segment(fence)
        finally:
            self._recent.close()
        self._progress.idle_until(fence.end)

    def _take_request(self, content: bytes, commit_lsn: Lsn) -> None:
        """Request the copies that `changelog resnapshot` asks for."""
        try:
            request = json.loads(content)
            slot, tables = request["slot"], [TableName(*name) for name in request["tables"]]
        except (ValueError, KeyError, TypeError) as error:
            log.warning("a request to copy tables cannot be read: %r", error)
            return
        if slot == self._environment.settings.slot:
            for table in tables:
                self.tasks.request(table, "it was asked for", commit_lsn)

    def frontier_written(self) -> None:
        """Note that a frontier is on the log; dismiss the workers when all is copied."""
        self.tasks.frontier_written()
        if self._workers is not None and not self.tasks.pending:
            self._workers.dismiss()
            self._workers = None

    # --- fences ---------------------------------------------------------------------------

    def step(self) -> None:
        """Take the next fence if one is due; called between two transactions of the stream."""
        if self._progress.reached < self._not_before:
            return
        self.tasks.check_stopping()
        if not self.tasks.pending:
            return
        if self._fence is not None:
            if self._recent.crowded:
                self._give_up("too many rows change at once")
            return
        self._finish_resumed()
        if all(task.is_whole or task.is_spoken_of for task in self.tasks.active):
            return
        if time.monotonic() < self._next_try:
            return
        if self._recent.noting and self._recent.crowded:
            self._recent.close()
        if not self._recent.noting:
            joining = self._settled()
            if joining or any(task.since and not task.is_whole for task in self.tasks.active):
                self._open(joining)
        if self._recent.noting:
            self._take_fence()

    def let_go(self) -> None:
        """Release the snapshot while the stream is paused; a new one is taken later."""
        if self._fence is not None:
            self._give_up("the stream is paused")

    def _finish_resumed(self) -> None:
        """Finish the tables whose chunks an earlier attempt had copied completely."""
        done = [
            task
            for task in self.tasks.by_topic.values()
            if task.plan is not None and not task.is_whole and not task.left()
        ]
        for task in done:
            self._finish(task)

    def _open(self, joining: Sequence[TableTask]) -> None:
        """Start to note touched keys, and begin tables."""
        self._recent.open()
        # Each key that the fence will leave out has been touched, so it has a record after this.
        since = Position(self._epoch, self._progress.reached, 0)
        for task in joining:
            self._try(task, self.tasks.refresh)
        joining = self._kept(joining)
        try:
            plans = plan_tables(self._environment.connection, [task.relation for task in joining])
        except TablesBusyError as error:
            self._give_up(str(error))
            return
        looks = {task.topic: self._looks.pop(task.topic) for task in joining}
        joining = [  # the others were altered or dropped since: they are looked at again
            task
            for task in joining
            if (plan := plans.get(task.relation.oid)) and plan.columns == looks[task.topic].columns
        ]
        for task in joining:
            self._try(task, partial(self.tasks.register, since=since))
        joining = self._kept(joining)
        # All records sent from here on are after these ends; the copy makes older records dead.
        ends = self._environment.frontiers.ends([task.topic for task in joining])
        for task in joining:
            rate = rate_of(self._environment.settings.capture)
            task.begin(plans[task.relation.oid], since, ends[task.topic], rate)
            # Records of an earlier attempt are before these ends, so they are sent again.
            self._writer.written.forget(task.topic)
            if task.is_keyed:
                self.tasks.mute(task)

    def _try(self, task: TableTask, step: Callable[[TableTask], None]) -> None:
        """Do a step of beginning a table; if the table is at fault, exclude it or copy it later."""
        try:
            step(task)
        except TABLE_ERRORS as error:
            self.tasks.failed(task.relation.name, error, self._progress.reached)

    def _kept(self, joining: Iterable[TableTask]) -> list[TableTask]:
        """Return the tables that are still to be copied."""
        kept = self.tasks.by_topic.values()
        return [task for task in joining if task in kept and not task.fault]

    def _settled(self) -> list[TableTask]:
        """Return the tables to begin whose columns the stream has brought.

        The catalogue is ahead of the stream: if a copy began with columns that the stream has yet
        to bring, rows without them would follow `since`, and after a crash replace copied rows
        that have them. So a table begins when the stream has reached the end that the WAL had at
        an earlier look, if that saw the same columns.
        """
        waiting = [t for t in self.tasks.active if t.since is None and not t.is_spoken_of]
        unseen = [task for task in waiting if task.topic not in self._looks]
        if unseen:
            environment = self._environment
            self._context.failpoint(Failpoint.COPY_DUE)
            plans = looks_of(environment.connection, [task.relation for task in unseen])
            end = environment.current_lsn()
            for task in unseen:
                plan = plans.get(task.relation.oid)
                self._looks[task.topic] = _Look(plan.columns if plan else "", end)
            emit(environment.writer, OWN_PREFIX, b"", transactional=True)  # the stream gets there
        reached = self._progress.reached
        return [task for task in waiting if self._looks[task.topic].end <= reached]

    def _take_fence(self) -> None:
        if all(task.is_whole or task.since is None for task in self.tasks.active):
            self._recent.close()
            return
        if self._holder is None:
            dsn = self._environment.settings.postgres
            self._holder = SnapshotHolder(connect(dsn, application_name="changelog snapshot"))
        name, text, names_running = self._holder.take()
        snapshot = XidSnapshot.parse(text, names_running=names_running)
        unkeyed = [t for t in self.tasks.active if not t.is_keyed and not t.is_whole and t.plan]
        hidden = self._recent.look(snapshot, everything=bool(unkeyed))
        hidden += self._writers(snapshot)
        if hidden:
            self._holder.release()
            self._wait(f"transactions are not visible yet: {_listed_xids(hidden)}")
            return
        for task in unkeyed:
            # Of a table without a key exactly the changes that the snapshot does not see are
            # written: no change up to here, and every change from here on.
            task.since = Position(self._epoch, self._progress.reached, 0)
            self.tasks.mute(task)
        self._ledger.settle(task.topic for task in unkeyed)
        self._context.failpoint(Failpoint.SNAPSHOT_TAKEN)
        mark = FENCE + f"{self._marks}:{next(self._numbers)}".encode()
        writer, xid = self._environment.writer, None
        if writer.server_version >= SENDS_MESSAGES:
            end = emit_mark(writer, OWN_PREFIX, mark)
        else:
            end, xid = commit_mark(writer)
        self._fence = _Fence(name, mark, end, time.time_ns() // 1000, xid)
        self._context.failpoint(Failpoint.FENCE_TAKEN)

    def _writers(self, snapshot: XidSnapshot) -> set[int]:
        """Return the transactions that may have changed the tables before the stream began.

        Only those that the snapshot does not see: neither it nor the stream has their changes.
        """
        tasks = [task for task in self.tasks.active if not task.is_whole]
        new = [task.relation for task in tasks if task.writers is None]
        self._before &= snapshot.xip
        if new:
            writers = writers_of(self._environment.connection, new) if self._before else frozenset()
            ran = frozenset(xid for xid in self._before if xid % (1 << 32) in writers)
            for task in tasks:
                if task.writers is None:
                    task.writers = ran
        hidden: set[int] = set()
        for task in tasks:
            task.writers = (task.writers or frozenset()) & snapshot.xip
            hidden |= task.writers
        return hidden

    def _wait(self, why: str) -> None:
        """Set the time of the next try; log once that the copy waits if that lasts."""
        now = time.monotonic()
        self._next_try = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        if self._waiting_since is None:
            self._waiting_since = now
        elif 0 < self._waiting_since < now - _SAY_AFTER_S:
            self._waiting_since = float("inf")
            log.warning("the copying of tables waits: %s", why)

    def _give_up(self, why: str) -> None:
        """Release the snapshot; another fence is taken later."""
        log.debug("a fence is given up: %s", why)
        self._fence = None
        self._restart_unkeyed()
        self._recent.close()
        if self._holder is not None:
            self._holder.release()
        self._wait(why)

    def _restart_unkeyed(self) -> None:
        """Restart the copies of tables without a key that are not whole."""
        self._ledger.settle(())
        for task in self.tasks.by_topic.values():
            if not task.is_keyed and not task.is_whole:
                task.restart()
                self.tasks.mute(task)

    # --- segments -------------------------------------------------------------------------

    def _copy_segment(self, fence: _Fence) -> None:
        """Copy chunks in the fence's snapshot, while the stream waits."""
        assert self._holder is not None  # noqa: S101 - it holds the fence
        touched = self._recent.touched()
        if self._recent.crowded:
            self._give_up("too many rows change at once")
            return
        # The stream and the copy have different producers. Without the flush a record of the
        # stream could come after the copied row that is newer.
        self._producer.flush()
        tasks = self._readable(self._unmoved(self.tasks.next_tables()), fence)
        try:
            self._holder.lock([task.relation for task in tasks])
        except TablesBusyError as error:
            self._give_up(str(error))
            return
        tasks = self._unmoved(tasks)
        if not tasks:
            self._holder.release()
            self._restart_unkeyed()
            return
        self._waiting_since, self._wait_s = None, _FIRST_WAIT_S
        segment = Segment(
            number=next(self._numbers),
            snapshot_name=fence.name,
            relations=tuple(task.relation for task in tasks),
            epoch=self._epoch,
            # The last byte of the mark: no commit record begins there.
            high=Lsn(fence.end - 1),
            ts_us=fence.ts_us,
            touched=touched,
        )
        finished = self._copy_chunks(segment, tasks)
        self._holder.release()
        self._context.failpoint(Failpoint.SEGMENT_WRITTEN)
        self.tasks.lsn = fence.end
        self.tasks.note_ends()
        self.tasks.write_progress()
        for task in tasks:
            if finished and task.plan is not None and not task.left():
                self._finish(task)
        self._restart_unkeyed()

    def _readable(self, tasks: list[TableTask], fence: _Fence) -> list[TableTask]:
        """Return the tables that the role may read; an unreadable table fails.

        The right may have been revoked since the start.
        """
        refused = unreadable(self._environment.connection, [task.relation for task in tasks])
        if not refused:
            return tasks
        readable = []
        for task in tasks:  # one by one, because the refused relation may be a partition
            refusals = unreadable(self._environment.connection, [task.relation])
            if not refusals:
                readable.append(task)
                continue
            task.restart()
            error = UncapturableTableError(
                "; ".join(refusal.reason for refusal in refusals),
                hint="; ".join(sorted({refusal.hint for refusal in refusals})),
            )
            self.tasks.failed(task.relation.name, error, fence.end)
        return readable

    def _unmoved(self, tasks: list[TableTask]) -> list[TableTask]:
        """Return the tables that are still as planned, and restart the changed tables."""
        # `looks_of` takes no lock: an ALTER TABLE that waits for our own lock would block it, and
        # we would wait for ourselves.
        plans = looks_of(self._environment.connection, [task.relation for task in tasks])
        same = []
        for task in tasks:
            plan = plans.get(task.relation.oid)
            if plan is not None and task.plan is not None and task.plan.is_same(plan):
                same.append(task)
                continue
            fields = {"table": str(task.relation.name)}
            log.info(
                "table %s was changed: it is copied anew", task.relation.name.said, extra=fields
            )
            task.restart()
        return same

    def _copy_chunks(self, segment: Segment, tasks: list[TableTask]) -> bool:
        """Have the workers copy chunks; return False if a stop was requested."""
        workers = self._hire()

        def note(job: CopyJob, copied: Copied) -> None:
            task = self.tasks.by_topic[job.topic]
            self._ledger.count_copied(job.topic, copied.records)
            if task.plan is None:
                return  # another of its chunks has failed
            task.done.add(job.number)
            self.tasks.count_copied(task, copied.rows, segment.high)
            self._context.report.snapshot_copied(job.relation.name, copied.rows, copied.size)
            self._context.failpoint(Failpoint.CHUNK_COPIED)

        whole = workers.copy(
            segment,
            self._jobs(tasks, Position(self._epoch, segment.high, 0)),
            on_copied=note,
            on_failed=lambda job, error: self._chunk_failed(job, error, segment.high),
            seconds=self._seconds(tasks),
            stop=self._context.stop,
            on_wait=self._keep_alive,
        )
        if whole:
            workers.rest()
        else:
            # Some chunks are still being copied, so nobody knows how many records arrive.
            self._lose_count(task.topic for task in tasks)
        return whole

    def _chunk_failed(self, job: CopyJob, error: ChangelogError, lsn: Lsn) -> None:
        self._lose_count([job.topic])  # some of its records may be on the topic
        # Without the count, records of an earlier attempt would not be noticed. These are at most
        # from the present end of the WAL, so no frontier is exact before that.
        self._progress.hold_until(self._environment.current_lsn())
        task = self.tasks.by_topic[job.topic]
        if task.plan is not None:
            task.restart()
            self.tasks.failed(job.relation.name, error, lsn)

    def _seconds(self, tasks: list[TableTask]) -> float:
        """Return the longest wait of the stream for a segment, in seconds."""
        if not all(task.is_keyed for task in tasks):
            return math.inf  # a table without a key is copied in one segment
        return FIRST_SEGMENT_S if self.tasks.is_first else SEGMENT_S

    def _hire(self) -> CopyWorkers:
        """Return the workers, started if necessary."""
        if self._workers is None:
            settings = self._environment.settings
            count = settings.capture.snapshot_workers
            servers = WorkerServers(
                settings.postgres,
                settings.kafka,
                settings.capture.producer,
                settings.transactional_id,
                rate_of(settings.capture).shared(count),
            )
            self._workers = CopyWorkers(servers, count)
        return self._workers

    def _jobs(self, tasks: list[TableTask], at: Position) -> Iterator[CopyJob]:
        for task in tasks:
            shape, ids = self._environment.tables.copied(task.relation, at)
            where = self._environment.filters.get(task.relation.name, "")
            for number, chunk in task.left():
                if task.plan is None:
                    break
                places = self._environment.partitions[task.topic]
                yield CopyJob(shape, chunk, number, task.topic, ids, where, places)

    def _finish(self, task: TableTask) -> None:
        """Write tombstones of dead keys, and add the table to the next frontier."""
        assert task.since is not None  # noqa: S101 - it was begun
        name = task.relation.name
        if task.stale:
            dead = self._environment.dead_keys(
                self._producer,
                task.topic,
                task.since,
                alive_from=task.alive_from,
                on_wait=self._keep_alive,
            )
            ts_us = time.time_ns() // 1000
            count = write_tombstones(
                self._producer, dead, task.topic, task.since, op=Op.DELETE, ts_us=ts_us
            )
            fields = {"table": str(name), "lsn": str(task.since.commit_lsn)}
            log.info(
                "table %s: tombstones for %d keys without a row", name.said, count, extra=fields
            )
        self.tasks.finish(task)


def _listed_xids(xids: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(xids)[:5]))
    return shown if len(xids) <= 5 else f"{shown} and {len(xids) - 5} more"  # noqa: PLR2004
