"""The tables to copy, and the decisions about them: each is on the log before it takes effect.

Decisions come from the stream, from looks at the catalogue and from errors; the result is the tasks
that `Backfill` works on. Each decision is noted in the ledger and on the frontier topic.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from changelog.capture.copy.table_task import TableTask
from changelog.capture.start.attempt import Attempt
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.start.other_slots import refuse_shared
from changelog.capture.start.roster import why_gone
from changelog.capture.state.ledger import NEVER
from changelog.capture.state.policy import Reaction, answer, check_limit, with_way_out
from changelog.capture.state.report import SnapshotProgress
from changelog.contract.base.errors import ChangelogError, LookAgainError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import BackfillRecord
from changelog.contract.log.frontier import COPIED
from changelog.contract.log.scope import WHOLE
from changelog.contract.rows.relation import TableName
from changelog.runtime.failpoints import Failpoint
from changelog.runtime.progress.bar import RowBar
from changelog.source.snapshot.snapshot import estimated_rows
from changelog.source.tables.catalogue import check_capturable

log = logging.getLogger("changelog.capture")

MOST_TABLES = 500
"""Most tables of one segment: each takes a lock in every session, and its lock table is limited."""


class TableTasks:
    """The tables of one attempt that are copied, or wait for it."""

    def __init__(
        self,
        attempt: Attempt,
        watch: CatalogueWatch,
        tasks: Sequence[TableTask],
        *,
        start_lsn: Lsn,
        stopping: Mapping[TableName, ChangelogError],
    ) -> None:
        """Start with the tables to copy.

        `start_lsn` is the slot's first LSN, which is only recorded for later attempts. Tables in
        `stopping` are excluded and stop capture, unless the WAL from before this attempt has a
        request to copy them.
        """
        self._environment, self._context = attempt.environment, attempt.context
        self._progress, self._ledger = attempt.progress, attempt.ledger
        self._epoch, self._start_lsn = attempt.epoch, start_lsn
        self._watch = watch
        self.by_topic = {task.topic: task for task in tasks}
        for task in tasks:
            if task.since is not None and not watch.knows(task.topic):
                # An earlier version of capture began it, which did not record the table's standing.
                task.restart()
        self._stopping = dict(stopping)
        self.is_first = not attempt.start.has_frontier  # whether no reader relies on a frontier yet
        self.lsn = Lsn(0)  # where the stream was when the last segment was written
        self._bar: RowBar | None = None

    def resume(self) -> None:
        """Resume the copies of an earlier attempt."""
        for task in self.by_topic.values():
            self.mute(task)
        self._tell_ledger()
        if self._environment.refused or any(task.fault for task in self.by_topic.values()):
            self.write_progress()
            self._check_limit()

    @property
    def pending(self) -> bool:
        """Tell whether a table is still to be copied or put in a frontier, or may stop capture."""
        return bool(self.active or self._stopping)

    @property
    def active(self) -> list[TableTask]:
        """Return the tables that are copied, except the faulty ones that wait for a request."""
        return [task for task in self.by_topic.values() if not task.fault]

    def mute(self, task: TableTask) -> None:
        """Suppress a new table's changes before its first fence."""
        if task.is_new:
            self._ledger.mute(task.topic, task.relation.oid, task.since)

    def request(self, table: TableName, reason: str, lsn: Lsn, *, exclude: bool = False) -> None:
        """Request a backfill of a table.

        The table is copied under a new `since` past `lsn`. A copy that began after `lsn` satisfies
        the request, so the same request may come again. The request is on the log when this
        returns, so its cause may be acknowledged. A table that is not captured is only logged.
        `reason` completes "copying the table, since ...". With `exclude` the table cannot continue
        as it is: its changes are not written until the copy begins, and frontiers leave it out
        until it is whole.
        """
        if table in self._environment.refused:
            looked = self._environment.looked
            if lsn <= looked.get(table, Lsn(0)):  # the attempt before has examined it already
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
        task = self.by_topic.get(topic)
        begun = task.since if task is not None else self._ledger.since.get(topic)
        if task is not None and task.fault:
            is_covered = lsn <= task.high  # a request from before the fault, sent again
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
        """React to the error of one table: copy the table again, exclude it, or raise the error.

        The error is one of `TABLE_ERRORS`; `lsn` is of the commit that revealed it.
        """
        topic = self._environment.topics[table]
        if self._ledger.is_gone(topic) or self._is_gone(table):
            return
        task = self.by_topic.get(topic)
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
        faulty = {task.relation.name for task in self.by_topic.values() if task.fault}
        check_limit(faulty | self._environment.refused.keys(), self._environment.settings.capture)

    def _is_gone(self, table: TableName) -> bool:
        """Tell whether a table is gone or has another name, and drop its task in that case."""
        now = self._environment.catalogue.table(self._environment.relations[table].oid)
        if now is not None and now.name == table:
            return False
        self.leave(table, why_gone(now.name if now is not None else None))
        return True

    def leave(self, table: TableName, why: str) -> None:
        """Leave a table that is gone or renamed out of frontiers.

        The catalogue is ahead of the stream; the table's remaining changes are not written.
        """
        topic = self._environment.topics[table]
        if self._ledger.is_gone(topic):
            return
        log.warning(
            "table %s %s: frontiers leave it out", table.said, why, extra={"table": str(table)}
        )
        self.by_topic.pop(topic, None)
        self._watch.forget(table)
        self._ledger.leave(topic, self._environment.relations[table].oid)
        self._tell_ledger()

    def inherit(self, children: Mapping[TableName, tuple[TableName, ...]]) -> None:
        """Set the tables that others inherit from, for the frontiers."""
        self._ledger.inherit(children)

    def refuse(self, refused: dict[TableName, str]) -> None:
        """Note the wanted tables that cannot be captured, each with the reason."""
        self._environment.refused = refused
        self._ledger.renew()
        self._tell_ledger()
        self.write_progress()

    def _begin_anew(self, topic: str, table: TableName, reason: str) -> TableTask:
        """Return a task that copies a table from the start."""
        task = self.by_topic.get(topic)
        if task is None:
            task = self.by_topic[topic] = TableTask(
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
        # The schema of the copy may not fit rows in earlier frontiers, so it is registered only
        # after a frontier without the table.
        task.is_spoken_of |= not task.is_new
        task.is_new = task.is_excluded = True
        self._ledger.renew()

    def _note(self, task: TableTask) -> None:
        """Write the decision about a table to the log, so that it survives a crash."""
        self.mute(task)
        self._tell_ledger()
        self._context.failpoint(Failpoint.TABLE_EXCLUDED)
        self.write_progress()
        self.hide(None)
        self.show()

    def overwritten(self, topic: str, count: int, lsn: Lsn) -> None:
        """Copy a table again because another program has written old records to its topic.

        These come after newer records, and the cleaner keeps the last record of each key.

        Raises ConfigurationError: another capture has the table too, see `refuse_shared`.
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
        """React to foreign records that appeared while we write.

        An earlier attempt of ours may have sent them. It may have been further in the stream, at
        most at the end of the WAL; before we are there too, no LSN is an exact cut.
        """
        self._progress.hold_until(self._environment.current_lsn())
        self.overwritten(topic, count, lsn)

    def refresh(self, task: TableTask) -> None:
        """Read the table from the catalogue again: it may have other columns, or be gone."""
        name = task.relation.name
        self._environment.tables.forget(name)
        # First, so that columns that come in between are seen as a change.
        self._watch.begin(name)
        table = self._environment.catalogue.table(task.relation.oid)
        if table is None or table.name != name:
            self.leave(name, why_gone(table.name if table is not None else None))
            return
        check_capturable([table])
        task.relation = self._environment.relations[name] = table.relation

    def register(self, task: TableTask, since: Position) -> None:
        """Register the schemas of a new table whose rows are written from a position on."""
        if task.is_new:
            self._environment.tables.begin_anew(task.relation, since)

    def next_tables(self) -> list[TableTask]:
        """Return the tables of the next segment."""
        waiting = [task for task in self.by_topic.values() if not task.is_whole and task.since]
        # Tables without a key first: each has to be copied in one segment.
        waiting.sort(key=lambda task: task.is_keyed)
        return waiting[:MOST_TABLES]

    def note_ends(self) -> None:
        """Note the present end offsets of the topics that no frontier has yet."""
        tasks = [task for task in self.by_topic.values() if task.is_new and task.since]
        ends = self._environment.frontiers.ends([task.topic for task in tasks])
        for task in tasks:
            task.ends = ends[task.topic]

    def frontier_written(self) -> None:
        """Note that a frontier with all whole tables is on the log."""
        self.is_first = False
        for task in self.by_topic.values():
            task.is_spoken_of = False
        whole = [topic for topic, task in self.by_topic.items() if task.is_whole]
        if not whole:
            return
        for topic in whole:
            del self.by_topic[topic]
        self.write_progress()
        if not self.pending:
            self.hide(None)

    def write_progress(self) -> None:
        """Write the progress of the copies to the frontier topic."""
        self._watch.keep()
        self._environment.frontiers.write_backfill(self._progress_record())
        self._context.failpoint(Failpoint.PROGRESS_WRITTEN)

    def _progress_record(self) -> BackfillRecord:
        system = self._environment.system
        return BackfillRecord(
            slot=self._environment.settings.slot,
            epoch=self._epoch,
            system_id=system.system_id,
            timeline=system.timeline,
            start_lsn=self._start_lsn,
            lsn=self.lsn,
            tables={
                **{topic: task.to_record() for topic, task in self.by_topic.items()},
                **self._environment.refused_records(),
            },
            groups=tuple(self._environment.settings.capture.groups),
        )

    def _tell_ledger(self) -> None:
        """Set the topics that frontiers leave out, and the reasons of excluded tables."""
        absent = {t.topic: t for t in self.by_topic.values() if t.is_new and not t.is_whole}
        excluded = {
            task.relation.name: task.fault or f"{COPIED}{task.reason}"
            for task in absent.values()
            if task.is_excluded
        } | self._environment.refused
        first = self.is_first and any(not task.fault for task in absent.values())
        self._ledger.speak(absent=absent, excluded=excluded, waiting=first or bool(self._stopping))
        self._context.report.excluded = dict(excluded)

    def show(self) -> None:
        """Show a progress bar while tables are copied."""
        if not self.active or self._bar is not None:
            return
        relations = [task.relation for task in self.active]
        names = [relation.name for relation in relations]
        estimate = estimated_rows(self._environment.connection, names)
        done = sum(task.rows for task in self.by_topic.values())
        self._context.report.snapshot = SnapshotProgress(estimate, done)
        title = f"snapshot of {len(relations)} tables"
        self._bar = RowBar(self._context.console, title, estimate, done=done)
        self._bar.__enter__()

    def hide(self, error: BaseException | None) -> None:
        """End the progress bar, with the error that ended the copy, if any."""
        if self._bar is not None:
            self._bar.__exit__(type(error) if error else None, error, None)
            self._bar = None
        self._context.report.snapshot = None

    def check_stopping(self) -> None:
        """Raise the error of a table that is excluded and stops capture."""
        for error in self._stopping.values():
            raise error

    def count_copied(self, task: TableTask, rows: int, high: Lsn) -> None:
        """Count the rows of a chunk that was copied at an LSN."""
        task.rows += rows
        task.high = high
        if self._bar is not None:
            self._bar.add(rows)

    def finish(self, task: TableTask) -> None:
        """Note that all rows of a table are on the log: the next frontier includes it."""
        assert task.since is not None  # noqa: S101 - it was begun
        self._context.failpoint(Failpoint.TABLE_WHOLE)
        task.is_whole = True
        self._ledger.finish(
            task.topic, since=task.since, high=task.high, alive_from=task.alive_from
        )
        self._tell_ledger()
