"""Backfills: rows of whole tables on the log, segment by segment, while the stream goes on.

One mechanism for the first start, for tables that are added or captured in another way, for a
slot that was lost, and for `changelog resnapshot`. It works in segments:

1. `_open`: from here on the keys that transactions touch are noted (`fence.py`).
2. `_take_fence`: a snapshot S, and after it a mark in the WAL. When S does not see a transaction
   that was streamed before (1), S is let go and another one is taken later.
3. The stream brings the mark: `_copy_segment`. Now the stream waits, and workers copy chunks in S
   to the log, at the mark's position, without the keys that were touched by what S does not see.
4. The chunks that the broker has are written down beside the frontiers, and the stream goes on.

A table is whole when all its chunks are on the log. Then keys that live only before `since`, the
position of its first fence, get tombstones, and the next frontier speaks of the table.

Chunks are read in different snapshots. A row that moves from one to another is an update, and in
the stream; but a rewrite of the table moves rows without a word. So the tables of a segment are
locked, and are copied only if their files and columns are the planned ones: else they start over.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

from changelog.capture.copy.snapshot import Copied, CopyJob, Segment, Servers
from changelog.capture.copy.table_task import TableTask
from changelog.capture.copy.workers import CopyWorkers
from changelog.capture.frontier.settle import Progress
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.start.environment import Environment
from changelog.capture.start.other_slots import refuse_shared
from changelog.capture.start.roster import why_gone
from changelog.capture.state.ledger import NEVER, Ledger
from changelog.capture.state.policy import (
    TABLE_ERRORS,
    Reaction,
    answer,
    check_limit,
    with_way_out,
)
from changelog.capture.state.rate import rate_of
from changelog.capture.state.report import SnapshotProgress
from changelog.capture.state.start_state import Context, StartState
from changelog.capture.write.fence import XidSnapshot
from changelog.capture.write.writer import RecordWriter, write_tombstones
from changelog.contract.base.errors import (
    ChangelogError,
    LookAgainError,
    UncapturableTableError,
)
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import BackfillRecord
from changelog.contract.log.scope import WHOLE
from changelog.contract.rows.relation import TableName
from changelog.runtime.failpoints import Failpoint
from changelog.runtime.progress.bar import RowBar
from changelog.sink.producer import LogProducer
from changelog.source.connect.connect import connect
from changelog.source.connect.readiness import unreadable
from changelog.source.connect.system import current_snapshot
from changelog.source.connect.versions import SENDS_MESSAGES
from changelog.source.snapshot.snapshot import (
    SnapshotHolder,
    TablePlan,
    TablesBusyError,
    estimated_rows,
    looks_of,
    plan_tables,
    writers_of,
)
from changelog.source.stream.assemble import Emitted
from changelog.source.stream.message import OWN_PREFIX, commit_mark, emit, emit_mark
from changelog.source.tables.catalogue import check_capturable

log = logging.getLogger("changelog.capture")

FENCE, RESNAPSHOT = b"fence ", b"resnapshot "

SEGMENT_S = 5.0
"""How long the stream waits for a segment while readers rely on frontiers."""

FIRST_SEGMENT_S = 30.0
"""The same before the first frontier, when nobody does."""

MOST_TABLES = 500
"""Tables of one segment: each takes a lock in each session."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_SAY_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class _Fence:
    """A snapshot and the mark behind it: a message, or on older servers a transaction."""

    name: str
    mark: bytes
    end: Lsn
    ts_us: int
    xid: int | None = None


class Backfill:
    """The backfills of one attempt; a context manager, entered when the stream has begun."""

    def __init__(
        self,
        *,
        environment: Environment,
        start_state: StartState,
        tasks: Sequence[TableTask],
        start_lsn: Lsn,
        producer: LogProducer,
        writer: RecordWriter,
        progress: Progress,
        ledger: Ledger,
        lose_count: Callable[[Iterable[str]], None],
        context: Context,
        keep_alive: Callable[[], None],
        watch: CatalogueWatch,
        stopping: Mapping[TableName, ChangelogError] | None = None,
    ) -> None:
        """Know what is to be done.

        Args:
            environment: servers and tables.
            start_state: where the attempt began.
            tasks: the tables to be copied.
            start_lsn: where the slot began; only told to other lives.
            producer: writes the stream's records.
            writer: writes them, and notes keys that the stream touches.
            progress: how far the stream is.
            ledger: is told what is muted, gone, absent and whole.
            lose_count: told of topics whose copied records nobody has counted.
            context: report, bar, stop, crash points.
            keep_alive: called again and again while the stream has to wait.
            watch: is told which tables begin to be copied.
            stopping: tables that are excluded and stop capture, unless the WAL of before this
                attempt asks for a copy of them; each with the error.
        """
        self._environment = environment
        self._epoch = start_state.epoch
        self._start_lsn = start_lsn
        self._tasks = {task.topic: task for task in tasks}
        self._producer = producer
        self._writer, self._recent = writer, writer.recent
        self._progress = progress
        self._ledger = ledger
        self._lose_count = lose_count
        self._context = context
        self._keep_alive = keep_alive
        self._watch = watch
        for task in tasks:
            if task.since is not None and not watch.knows(task.topic):
                # Of an earlier version, which did not write down how the table was then.
                task.restart()
        self._stopping = dict(stopping or {})
        self._is_first = not start_state.has_frontier
        self._lsn = Lsn(0)
        self._workers: CopyWorkers | None = None
        self._holder: SnapshotHolder | None = None
        self._bar: RowBar | None = None
        self._fence: _Fence | None = None
        self._numbers = itertools.count(1)
        self._next_try = 0.0
        self._wait_s = _FIRST_WAIT_S
        self._waiting_since: float | None = None
        self._marks = secrets.token_hex(8)
        self._before: frozenset[int] = frozenset()
        self._not_before = Lsn(0)

    def __enter__(self) -> Self:
        """Resume pending copies; leaving releases workers, snapshot and bar."""
        environment, tasks = self._environment, self._tasks.values()
        # Who ran when this attempt began may have committed before: the stream will not tell.
        before = current_snapshot(environment.connection)
        self._before = XidSnapshot.parse(before).xip
        # And what is in the WAL now comes first: no snapshot is held while the stream catches up.
        self._not_before = environment.current_lsn()
        for task in tasks:
            self._mute(task)
        self._tell_ledger()
        if environment.refused or any(task.fault for task in tasks):
            self._write_progress()
            self._check_limit()
        if self.pending:
            emit(environment.writer, OWN_PREFIX, b"", transactional=True)
        # Last, since nobody leaves what could not be entered.
        self._show()
        if self._active:
            self._hire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release workers, snapshot and bar."""
        self._recent.close()
        if self._workers is not None:
            self._workers.dismiss()
        if self._holder is not None:
            self._holder.close()
        self._hide(error)

    def _mute(self, task: TableTask) -> None:
        """Write no change of a table that no frontier speaks of before its first fence."""
        if task.is_new:
            self._ledger.mute(task.topic, task.relation.oid, task.since)

    @property
    def pending(self) -> bool:
        """Tell whether a table is not whole yet, or unsaid, or may stop capture."""
        return bool(self._active or self._stopping)

    @property
    def _active(self) -> list[TableTask]:
        """Return the tables that are being copied; the others wait until they are asked for."""
        return [task for task in self._tasks.values() if not task.fault]

    # --- what the stream tells ------------------------------------------------------------

    def began(self, xid: int) -> None:
        """Note that a transaction is being streamed."""
        self._recent.began(xid)
        if self._recent.many:
            self._forget()

    def ran(self, xids: Sequence[int]) -> None:
        """Note that transactions were streamed at once."""
        self._recent.ran(xids)
        if self._recent.many:
            self._forget()

    def _forget(self) -> None:
        self._recent.forget(XidSnapshot.parse(current_snapshot(self._environment.connection)))

    def heard(self, message: Emitted, commit_lsn: Lsn) -> None:
        """Take a message of ours out of the stream.

        Args:
            message: the message.
            commit_lsn: of its transaction, when it has one.
        """
        if message.content.startswith(RESNAPSHOT):
            self._asked(message.content[len(RESNAPSHOT) :], commit_lsn)
        elif self._fence is not None and message.content == self._fence.mark:
            self._reached(self._fence)

    @property
    def awaits_commit(self) -> bool:
        """Tell whether the mark that is waited for is a transaction, whose end is to be told."""
        return self._fence is not None and self._fence.xid is not None

    def committed(self, xid: int, end_lsn: Lsn) -> None:
        """Note the end of a transaction; what follows it was not written yet."""
        if self._fence is not None and self._fence.xid == xid:
            self._reached(replace(self._fence, end=end_lsn))

    def _reached(self, fence: _Fence) -> None:
        self._fence = None
        try:
            self._copy_segment(fence)
        finally:
            self._recent.close()
        self._progress.idle_until(fence.end)

    def _asked(self, content: bytes, commit_lsn: Lsn) -> None:
        """Take the request of `changelog resnapshot`."""
        try:
            request = json.loads(content)
            slot, tables = request["slot"], [TableName(*name) for name in request["tables"]]
        except (ValueError, KeyError, TypeError) as error:
            log.warning("a request to copy tables cannot be read: %r", error)
            return
        if slot == self._environment.settings.slot:
            for table in tables:
                self.request(table, "it was asked for", commit_lsn)

    def request(self, table: TableName, reason: str, lsn: Lsn, *, exclude: bool = False) -> None:
        """Say that a table needs a backfill.

        The table is copied under a new `since`, which is past `lsn`; a copy that began after
        `lsn` counts, so the same request may come again. It is on the log when this returns, so
        what made it necessary may be acknowledged.

        Args:
            table: one that is captured; another one is named in the log and left alone.
            reason: what is told about it: `reason` completes "copying the table, since ...".
            lsn: what the copy has to be newer than: of the commit that made it necessary.
            exclude: the log cannot go on with the table as it is. None of its changes are
                written until the copy begins, and no frontier speaks of it until it is whole.
        """
        if table in self._environment.refused:
            looked = self._environment.looked
            if lsn <= looked.get(table, Lsn(0)):  # by the attempt before this one
                why = self._environment.refused[table]
                log.warning("table %s is not copied, though %s: it %s", table.said, reason, why)
                return
            looked[table] = lsn
            raise LookAgainError(f"table {table.said} is looked at again, since {reason}")
        topic = self._environment.topics.get(table)
        if topic is None:
            log.warning("table %s is not captured, and so not copied", table.said)
            return
        place = Position(self._epoch, lsn, 0)
        task = self._tasks.get(topic)
        begun = task.since if task is not None else self._ledger.since.get(topic)
        if task is not None and task.fault:
            is_covered = lsn <= task.high  # asked for before the fault, and it comes once more
        elif task is not None and task.since is None:
            is_covered = task.is_excluded or not exclude
        else:
            is_covered = begun is not None and place < begun and begun.commit_lsn < NEVER
        if is_covered:
            return
        log.info("copying the table %s, since %s", table.said, reason, extra={"table": str(table)})
        task = self._begin_anew(topic, table, reason)
        if exclude:
            self._exclude(task)
        self._note(task)

    def failed(self, table: TableName, error: ChangelogError, lsn: Lsn) -> None:
        """Take what is wrong with one table: copy it anew, exclude it, or raise the error.

        Args:
            table: one that is captured.
            error: of `TABLE_ERRORS`.
            lsn: of the commit that showed it.
        """
        topic = self._environment.topics[table]
        if self._ledger.is_gone(topic) or self._is_gone(table):
            return
        task = self._tasks.get(topic)
        copying = task is not None and task.since is None
        fields = {"table": str(table), "lsn": str(lsn)}
        match answer(error, self._environment.settings.capture, copying=copying):
            case Reaction.STOP:
                raise with_way_out(error, copying=copying)
            case Reaction.COPY:
                log.warning("%s", error, extra=fields)
                self.request(table, str(error.args[0]), lsn, exclude=True)
            case Reaction.EXCLUDE:
                log.error("the table %s is excluded: %s", table.said, error, extra=fields)
                task = self._begin_anew(topic, table, str(error))
                task.fault = f"{error.args[0]}; {error.hint}" if error.hint else str(error.args[0])
                task.high = self._environment.current_lsn()
                self._exclude(task)
                self._note(task)
                self._check_limit()

    def _check_limit(self) -> None:
        """Check that no more tables are excluded than the settings allow; see `check_limit`."""
        faulty = {task.relation.name for task in self._tasks.values() if task.fault}
        check_limit(faulty | self._environment.refused.keys(), self._environment.settings.capture)

    def _is_gone(self, table: TableName) -> bool:
        """Tell whether a table is no longer there, or not under its name, and let it go then."""
        now = self._environment.catalogue.table(self._environment.relations[table].oid)
        if now is not None and now.name == table:
            return False
        self.leave(table, why_gone(now.name if now is not None else None))
        return True

    def leave(self, table: TableName, why: str) -> None:
        """Leave a table out of frontiers that is gone or renamed.

        The catalogue is ahead of the stream: of what is still to come of it nothing is written.
        """
        topic = self._environment.topics[table]
        if self._ledger.is_gone(topic):
            return
        log.warning(
            "table %s %s: frontiers leave it out", table.said, why, extra={"table": str(table)}
        )
        self._tasks.pop(topic, None)
        self._watch.forget(table)
        self._ledger.leave(topic, self._environment.relations[table].oid)
        self._tell_ledger()

    def inherit(self, children: Mapping[TableName, tuple[TableName, ...]]) -> None:
        """Set the tables that others inherit from, for the frontiers."""
        self._ledger.inherit(children)

    def refuse(self, refused: dict[TableName, str]) -> None:
        """Say which tables are wanted and cannot be captured, and why."""
        self._environment.refused = refused
        self._ledger.renew()
        self._tell_ledger()
        self._write_progress()

    def _begin_anew(self, topic: str, table: TableName, reason: str) -> TableTask:
        """Return the task of a table that nothing is copied of yet."""
        task = self._tasks.get(topic)
        if task is None:
            task = self._tasks[topic] = TableTask(
                relation=self._environment.relations[table],
                topic=topic,
                reason=reason,
                scope=self._environment.scopes.get(table, WHOLE),
                is_new=topic in self._ledger.absent or not self._environment.relations[table].key,
                stale=True,
                topic_id=self._environment.topic_ids[topic],
            )
        task.restart()
        task.reason, task.fault = reason, ""
        self._stopping.pop(table, None)
        return task

    def _exclude(self, task: TableTask) -> None:
        # The schema of the copy is none for the rows that older frontiers speak of: it is
        # registered only once a frontier says that the table is not there.
        task.is_spoken_of |= not task.is_new
        task.is_new = task.is_excluded = True
        self._ledger.renew()

    def _note(self, task: TableTask) -> None:
        """Write down what was decided about a table; from here on a crash does not undo it."""
        self._mute(task)
        self._tell_ledger()
        self._context.failpoint(Failpoint.TABLE_EXCLUDED)
        self._write_progress()
        self._hide(None)
        self._show()

    def overwritten(self, topic: str, count: int, lsn: Lsn) -> None:
        """Have a table copied anew on whose topic others have written old records.

        They lie behind newer ones, and the cleaner keeps of each key what lies last.

        Raises:
            ConfigurationError: another capture has the table too, see `refuse_shared`.
        """
        refuse_shared(self._environment)
        log.warning(
            'topic "%s" has %d records that this capture did not write: another program did, or a '
            "capture that was thought dead and has gone on, which --exactly-once prevents",
            topic,
            count,
        )
        self._context.report.errors["ForeignRecords"] += count
        if topic in self._environment.topics.values():
            self.request(self._environment.table_of(topic), "others have written to its topic", lsn)

    def interrupted(self, topic: str, count: int, lsn: Lsn) -> None:
        """Take records of others that came while we write.

        An earlier attempt of ours may have sent them: it was further in the stream than we are, at
        most at the end of the WAL. Until we are there, no LSN is an exact cut.
        """
        self._progress.hold_until(self._environment.current_lsn())
        self.overwritten(topic, count, lsn)

    def frontier_written(self) -> None:
        """Note that a frontier stands on the log, which speaks of all tables that are whole."""
        self._is_first = False
        for task in self._tasks.values():
            task.is_spoken_of = False
        whole = [topic for topic, task in self._tasks.items() if task.is_whole]
        if not whole:
            return
        for topic in whole:
            del self._tasks[topic]
        self._write_progress()
        if not self.pending:
            self._hide(None)
            if self._workers is not None:
                self._workers.dismiss()
                self._workers = None

    # --- fences ---------------------------------------------------------------------------

    def step(self) -> None:
        """Go on, between two transactions of the stream."""
        if self._progress.reached < self._not_before:
            return
        for error in self._stopping.values():
            raise error
        if not self.pending:
            return
        if self._fence is not None:
            if self._recent.crowded:
                self._give_up("too many rows change at once")
            return
        self._finish_resumed()
        if all(task.is_whole or task.is_spoken_of for task in self._active):
            return
        if time.monotonic() < self._next_try:
            return
        if self._recent.noting and self._recent.crowded:
            self._recent.close()
        if not self._recent.noting:
            self._open()
        if self._recent.noting:
            self._take_fence()

    def let_go(self) -> None:
        """Hold no snapshot at the source while the stream stands still; another is taken later."""
        if self._fence is not None:
            self._give_up("the stream is paused")

    def _finish_resumed(self) -> None:
        """Finish what an earlier attempt had copied."""
        done = [
            task
            for task in self._tasks.values()
            if task.plan is not None and not task.is_whole and not task.left()
        ]
        for task in done:
            self._finish(task)

    def _open(self) -> None:
        """Want a fence: note keys, and let the tables begin that have not."""
        self._recent.open()
        # Whatever the fence, the keys that it leaves out have records from here on.
        since = Position(self._epoch, self._progress.reached, 0)
        joining = [t for t in self._active if t.since is None and not t.is_spoken_of]
        for task in joining:
            try:
                self._refresh(task, since)
            except TABLE_ERRORS as error:
                self.failed(task.relation.name, error, self._progress.reached)
        joining = [task for task in joining if task in self._tasks.values() and not task.fault]
        try:
            plans = plan_tables(self._environment.connection, [task.relation for task in joining])
        except TablesBusyError as error:
            self._give_up(str(error))
            return
        # What is sent from here on lies behind these, and all that is older is dead with the copy.
        ends = self._environment.frontiers.ends([task.topic for task in joining])
        for task in joining:
            # A table that is dropped in this moment has no file, and so will start over.
            plan = plans.get(task.relation.oid, TablePlan((), ""))
            rate = rate_of(self._environment.settings.capture)
            task.begin(plan, since, ends[task.topic], rate)
            # What an earlier attempt has sent of it lies before these ends: it is sent again.
            self._writer.write_again(task.topic)
            if task.is_keyed:
                self._mute(task)

    def _refresh(self, task: TableTask, since: Position) -> None:
        """Look at the table anew: it may have other columns, or be gone."""
        name = task.relation.name
        self._environment.tables.forget(name)
        table = self._environment.catalogue.table(task.relation.oid)
        if table is None or table.name != name:
            self.leave(name, why_gone(table.name if table is not None else None))
            return
        check_capturable([table])
        self._watch.begin(name)
        task.relation = self._environment.relations[name] = table.relation
        if task.is_new:
            self._environment.tables.begin_anew(task.relation, since)

    def _take_fence(self) -> None:
        if all(task.is_whole or task.since is None for task in self._active):
            self._recent.close()
            return
        if self._holder is None:
            dsn = self._environment.settings.postgres
            self._holder = SnapshotHolder(connect(dsn, application_name="changelog snapshot"))
        name, text, names_running = self._holder.take()
        snapshot = XidSnapshot.parse(text, names_running=names_running)
        unkeyed = [t for t in self._active if not t.is_keyed and not t.is_whole and t.plan]
        hidden = self._recent.look(snapshot, everything=bool(unkeyed))
        hidden += self._writers(snapshot)
        if hidden:
            self._holder.release()
            self._wait(f"transactions are not visible yet: {_listed(hidden)}")
            return
        for task in unkeyed:
            # Up to here nothing was written; from here on, what this snapshot does not see.
            task.since = Position(self._epoch, self._progress.reached, 0)
            self._mute(task)
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
        """Return the transactions that may have changed the tables unseen before the stream."""
        tasks = [task for task in self._active if not task.is_whole]
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
        """Try again later, and say so once when it lasts."""
        now = time.monotonic()
        self._next_try = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        if self._waiting_since is None:
            self._waiting_since = now
        elif 0 < self._waiting_since < now - _SAY_AFTER_S:
            self._waiting_since = float("inf")
            log.warning("the copying of tables waits: %s", why)

    def _give_up(self, why: str) -> None:
        log.debug("a fence is given up: %s", why)
        self._fence = None
        self._restart_unkeyed()
        self._recent.close()
        if self._holder is not None:
            self._holder.release()
        self._wait(why)

    def _restart_unkeyed(self) -> None:
        """Begin anew with tables without a key that were not copied at once."""
        self._ledger.settle(())
        for task in self._tasks.values():
            if not task.is_keyed and not task.is_whole:
                task.restart()
                self._mute(task)

    # --- segments -------------------------------------------------------------------------

    def _copy_segment(self, fence: _Fence) -> None:
        """Copy chunks in the fence's snapshot, while the stream waits."""
        assert self._holder is not None  # noqa: S101 - it holds the fence
        touched = self._recent.touched()
        if self._recent.crowded:
            self._give_up("too many rows change at once")
            return
        # Records of two producers: those of the stream have to lie before those of the copy.
        self._producer.flush()
        tasks = self._readable(self._unmoved(self._chosen()), fence)
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
        finished = self._copy(segment, tasks)
        self._holder.release()
        self._context.failpoint(Failpoint.SEGMENT_WRITTEN)
        self._lsn = fence.end
        self._note_ends()
        self._write_progress()
        for task in tasks:
            if finished and task.plan is not None and not task.left():
                self._finish(task)
        self._restart_unkeyed()

    def _chosen(self) -> list[TableTask]:
        """Return the next tables."""
        waiting = [task for task in self._tasks.values() if not task.is_whole and task.since]
        waiting.sort(key=lambda task: task.is_keyed)  # those without are copied at once
        return waiting[:MOST_TABLES]

    def _readable(self, tasks: list[TableTask], fence: _Fence) -> list[TableTask]:
        """Return the tables that the role may read; of one that it may not, the settings decide.

        The right may have gone since the start, or since the table was copied before.
        """
        refused = unreadable(self._environment.connection, [task.relation for task in tasks])
        if not refused:
            return tasks
        readable = []
        for task in tasks:  # what is refused may be a partition
            own = unreadable(self._environment.connection, [task.relation])
            if not own:
                readable.append(task)
                continue
            task.restart()
            error = UncapturableTableError(
                "; ".join(refusal.said for refusal in own),
                hint="; ".join(sorted({refusal.hint for refusal in own})),
            )
            self.failed(task.relation.name, error, fence.end)
        return readable

    def _unmoved(self, tasks: list[TableTask]) -> list[TableTask]:
        """Return the tables that are as they were planned; the others start over."""
        # Behind our own lock somebody's ALTER TABLE may wait: to wait behind that is for ever.
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

    def _copy(self, segment: Segment, tasks: list[TableTask]) -> bool:
        """Copy by the workers; return False when stopped."""
        workers = self._hire()

        def note(job: CopyJob, copied: Copied) -> None:
            task = self._tasks[job.topic]
            self._ledger.count_copied(job.topic, copied.records)
            if task.plan is None:
                return  # another of its chunks has failed
            task.done.add(job.number)
            task.rows += copied.rows
            task.high = segment.high
            self._context.report.snapshot_copied(job.relation.name, copied.rows, copied.size)
            if self._bar is not None:
                self._bar.add(copied.rows)
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
            # Chunks are still under way.
            self._lose_count(task.topic for task in tasks)
        return whole

    def _chunk_failed(self, job: CopyJob, error: ChangelogError, lsn: Lsn) -> None:
        self._lose_count([job.topic])  # some of its records may stand
        # And nobody tells any more whether an earlier attempt's do.
        self._progress.hold_until(self._environment.current_lsn())
        task = self._tasks[job.topic]
        if task.plan is not None:
            task.restart()
            self.failed(job.relation.name, error, lsn)

    def _seconds(self, tasks: list[TableTask]) -> float:
        if not all(task.is_keyed for task in tasks):
            return math.inf
        return FIRST_SEGMENT_S if self._is_first else SEGMENT_S

    def _hire(self) -> CopyWorkers:
        if self._workers is None:
            settings = self._environment.settings
            count = settings.capture.snapshot_workers
            servers = Servers(
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

    def _note_ends(self) -> None:
        """Look where the topics end that no frontier speaks of; the stream's records are there."""
        tasks = [task for task in self._tasks.values() if task.is_new and task.since]
        ends = self._environment.frontiers.ends([task.topic for task in tasks])
        for task in tasks:
            task.ends = ends[task.topic]

    def _write_progress(self) -> None:
        self._watch.keep()
        self._environment.frontiers.write_backfill(self._record())
        self._context.failpoint(Failpoint.PROGRESS_WRITTEN)

    def _record(self) -> BackfillRecord:
        system = self._environment.system
        return BackfillRecord(
            slot=self._environment.settings.slot,
            epoch=self._epoch,
            system_id=system.system_id,
            timeline=system.timeline,
            start_lsn=self._start_lsn,
            lsn=self._lsn,
            tables={
                **{topic: task.to_record() for topic, task in self._tasks.items()},
                **self._environment.refused_records(),
            },
            groups=tuple(self._environment.settings.capture.groups),
        )

    def _finish(self, task: TableTask) -> None:
        """Write tombstones of dead keys, and let the next frontier speak of the table."""
        assert task.since is not None  # noqa: S101 - it was begun
        name = task.relation.name
        if task.stale:
            dead = partial(
                self._environment.dead_keys,
                self._producer,
                alive_from=task.alive_from,
                on_wait=self._keep_alive,
            )
            ts_us = time.time_ns() // 1000
            count = write_tombstones(
                self._producer, dead, task.topic, task.since, op=Op.DELETE, ts_us=ts_us
            )
            fields = {"table": str(name), "lsn": str(task.since.commit_lsn)}
            log.info("table %s: %d keys of before are dead", name.said, count, extra=fields)
        self._context.failpoint(Failpoint.TABLE_WHOLE)
        task.is_whole = True
        self._ledger.finish(
            task.topic, since=task.since, high=task.high, alive_from=task.alive_from
        )
        self._tell_ledger()

    def _tell_ledger(self) -> None:
        absent = {t.topic: t for t in self._tasks.values() if t.is_new and not t.is_whole}
        excluded = {
            task.relation.name: task.fault or f"it is copied anew, since {task.reason}"
            for task in absent.values()
            if task.is_excluded
        } | self._environment.refused
        first = self._is_first and any(not task.fault for task in absent.values())
        self._ledger.speak(absent=absent, excluded=excluded, waiting=first or bool(self._stopping))
        self._context.report.excluded = dict(excluded)

    # --- the bar --------------------------------------------------------------------------

    def _show(self) -> None:
        if not self._active or self._bar is not None:
            return
        relations = [task.relation for task in self._active]
        names = [relation.name for relation in relations]
        estimate = estimated_rows(self._environment.connection, names)
        done = sum(task.rows for task in self._tasks.values())
        self._context.report.snapshot = SnapshotProgress(estimate, done)
        title = f"snapshot of {len(relations)} tables"
        self._bar = RowBar(self._context.console, title, estimate, done=done)
        self._bar.__enter__()

    def _hide(self, error: BaseException | None) -> None:
        if self._bar is not None:
            self._bar.__exit__(type(error) if error else None, error, None)
            self._bar = None
        self._context.report.snapshot = None


def _listed(xids: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(xids)[:5]))
    return shown if len(xids) <= 5 else f"{shown} and {len(xids) - 5} more"  # noqa: PLR2004
