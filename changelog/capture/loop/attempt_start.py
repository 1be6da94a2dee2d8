"""Start of one attempt: creates a missing slot and lists the tables to copy."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace

from psycopg2.extras import LogicalReplicationConnection

from changelog.capture.copy.table_task import TableTask, table_tasks
from changelog.capture.start.decide import Adopt, Continue, Fresh, Resume
from changelog.capture.start.environment import Environment
from changelog.capture.start.lost_records import Loss, losses, noted, restarted
from changelog.capture.start.outlook import (
    Skipped,
    SlotStanding,
    check_slot_unmoved,
    known_keys,
    skipped_tables,
    uncarried,
)
from changelog.capture.start.publishing import publish, unpublished
from changelog.capture.state.policy import Reaction
from changelog.capture.state.start_state import Context, StartState
from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.backfill import BackfillRecord, TableBackfill
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.runtime.failpoints import Failpoint
from changelog.sink.resume import WrittenRecords, read_after_frontier
from changelog.source.connect.retention import SlotStatus
from changelog.source.connect.standby import running_logged
from changelog.source.stream.slot import (
    ExportedSnapshot,
    check_slot,
    create_slot,
    drop_slot,
    enable_failover,
    inspect_slot,
)

log = logging.getLogger("changelog.capture")


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """State of the slot, the log and the tables when an attempt starts to stream."""

    start_state: StartState  # where the stream starts
    written: WrittenRecords  # the records on the log after its last frontier
    tasks: list[TableTask]  # the tables that have to be copied
    start_lsn: Lsn  # the consistent point of the slot, 0 if it is not known
    # the connection that created a temporary slot: no other one can read it
    connection: LogicalReplicationConnection | None = None
    # tables that end capture unless the WAL asks for a copy of them, with the errors
    stopping: Mapping[TableName, ChangelogError] = field(default_factory=dict)
    # tables that cannot continue under the schemas on the log, with the errors
    failing: Mapping[TableName, ChangelogError] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class AttemptStarter:
    """Starts one attempt as the log and the slot demand."""

    environment: Environment  # the source and the log
    context: Context  # report, stop, crash points
    # the records on the log after its last frontier, once `start` has read them
    written: WrittenRecords = field(init=False)

    def start(self, slot_standing: SlotStanding, stack: ExitStack) -> AttemptStart:
        """Decide how to start, and create the publication and the slot if they are missing.

        `stack` owns the connections that stay open.
        """
        record, status = slot_standing.record, slot_standing.slot
        self.written = self._read_written(slot_standing)
        decision = slot_standing.decision(self.environment, self.written)
        match decision:
            case Fresh():
                return self._fresh(decision, slot_standing, stack)
            case Adopt():
                return self._adopted(decision, status)
            case Continue(record=first_copy):
                return self._continued(first_copy, status)
            case Resume():
                if record is not None:
                    self.context.report.frontier_found(record)
                unfinished = slot_standing.unfinished_copies(decision)
                return self._resumed(decision, unfinished, status)

    def _read_written(self, slot_standing: SlotStanding) -> WrittenRecords:
        topics = self.environment.topics.values()
        return read_after_frontier(
            self.environment.settings.kafka,
            self.environment.frontiers,
            slot_standing.frontier,
            [*topics, *self.environment.logs],
            backfill=slot_standing.backfill,
            # After a failover the log may hold what the server has lost.
            wal_end=self.environment.current_lsn
            if slot_standing.is_of(self.environment.system)
            else None,
        )

    def _fresh(
        self, decision: Fresh, slot_standing: SlotStanding, stack: ExitStack
    ) -> AttemptStart:
        """Start a fresh log on a new slot."""
        capture, epoch = self.environment.settings.capture, decision.epoch
        copying = "no table is copied" if capture.skip_snapshot else "copying every table"
        level = logging.INFO if slot_standing.record is None else logging.WARNING
        log.log(level, "%s: a fresh log under epoch %d, %s", decision.reason, epoch, copying)
        snapshot = self._make_slot(slot_standing, epoch, stack, drop=decision.drop_slot)
        if not capture.temporary_slot:
            snapshot.close()
        start_state = StartState(epoch=epoch, lsn=snapshot.consistent_point)
        return replace(
            self._before_first_frontier(start_state, None),
            connection=snapshot.connection if capture.temporary_slot else None,
        )

    def _adopted(self, decision: Adopt, status: SlotStatus | None) -> AttemptStart:
        """Start a fresh log on a slot that somebody else has created."""
        assert status is not None  # noqa: S101 - decide adopts a slot that is there
        check_slot(status)
        publish(self.environment, None, as_it_is=True)
        epoch, start = decision.epoch, decision.lsn
        log.info("a fresh log under epoch %d, on an existing slot, from %s", epoch, start)
        self.environment.frontiers.write_backfill(self._first_backfill(epoch, start))
        return self._before_first_frontier(StartState(epoch=epoch, lsn=start), None)

    def _continued(self, first_copy: BackfillRecord, status: SlotStatus | None) -> AttemptStart:
        """Continue the first copy of the tables."""
        assert status is not None  # noqa: S101 - decide continues only with a slot
        check_slot(status)
        self._enable_failover(status)
        first_copy = restarted(self.environment, first_copy)
        refiltered = publish(self.environment, None, first_copy).refiltered
        epoch, start = first_copy.epoch, first_copy.start_lsn or status.confirmed_flush_lsn
        start = start or Lsn(0)
        log.info("going on with the snapshot of epoch %d", epoch, extra={"lsn": str(start)})
        start_state = StartState(
            epoch=epoch,
            lsn=start,
            written=self.written.positions,
            hold_until=self.written.passed_at(epoch),
        )
        return self._before_first_frontier(start_state, first_copy, refiltered)

    def _before_first_frontier(
        self,
        start_state: StartState,
        backfill: BackfillRecord | None,
        refiltered: Collection[TableName] = (),
    ) -> AttemptStart:
        """Start a log that has no frontier yet: every table is copied, or none."""
        if self.environment.settings.capture.skip_snapshot:
            start_state.skip(self.environment.topics.values(), self.written.ends)
            return AttemptStart(start_state, self.written, [], start_state.lsn)
        tasks = table_tasks(
            self.environment, set(self.environment.topics), None, backfill, refiltered
        )
        return AttemptStart(start_state, self.written, tasks, start_state.lsn)

    def _resumed(
        self, decision: Resume, unfinished: BackfillRecord | None, status: SlotStatus | None
    ) -> AttemptStart:
        """Continue at the last frontier."""
        assert status is not None  # noqa: S101 - decide resumes only with a slot
        check_slot(status)
        self._enable_failover(status)
        frontier = decision.frontier
        self._warn_of_changes(frontier)
        if unfinished is not None:
            unfinished = restarted(self.environment, unfinished)
        lost_records = losses(self.environment, frontier, unfinished)
        unfinished = self._record_lost_tables(
            frontier, unfinished, self.environment.check_topics(frontier), lost_records
        )
        refiltered = publish(self.environment, frontier, unfinished).refiltered
        log.info("resuming at the frontier %s", frontier.lsn, extra={"lsn": str(frontier.lsn)})
        self.environment.tables.key_ids = {
            **known_keys(self.environment, frontier),
            **self.environment.tables.key_ids,
        }
        start_state = StartState.resumed(
            frontier, set(self.environment.topics.values()), self.written.positions
        )
        start_state.hold_until = self.written.passed_at(frontier.epoch)
        skipped = skipped_tables(self.environment, decision, unfinished)
        self._skip(start_state, skipped)
        rescoped = self.environment.rescoped(frontier, skipped.kept)
        tables_to_copy = {*decision.added, *rescoped, *refiltered} - skipped.new - skipped.kept
        start_state.resend_grown(self.environment.partitions)
        tasks = table_tasks(self.environment, tables_to_copy, frontier, unfinished, refiltered)
        copied = {task.relation.name for task in tasks}
        errors = uncarried(self.environment, decision)
        return AttemptStart(
            start_state,
            self.written,
            tasks,
            unfinished.start_lsn if unfinished is not None else Lsn(0),
            stopping=_stopping(lost_records),
            failing={table: error for table, error in errors.items() if table not in copied},
        )

    def _warn_of_changes(self, frontier: Frontier) -> None:
        """Warn of a failover and of tables that are no longer captured since the last frontier."""
        if frontier.timeline != self.environment.system.timeline:
            log.warning(
                "timeline %d follows %d (failover) and has every change on the log: continuing",
                self.environment.system.timeline,
                frontier.timeline,
            )
        uncaptured = set(frontier.tables.values()) - {
            *self.environment.topics,
            *self.environment.refused,
        }
        for table in sorted(uncaptured):
            log.warning("table %s is no longer captured: frontiers leave it out", table.said)

    def _skip(self, start_state: StartState, skipped: Skipped) -> None:
        """Stream the tables that `--skip-snapshot` leaves without a copy."""
        topics = self.environment.topics
        start_state.skip([topics[table] for table in skipped.new], self.written.ends)
        start_state.uncopied |= {topics[table] for table in skipped.kept}
        for table in sorted(skipped.new):
            log.info("table %s is new and not copied: its topic gets only changes", table.said)

    def _record_lost_tables(
        self,
        frontier: Frontier,
        unfinished: BackfillRecord | None,
        tables_to_copy: set[TableName],
        lost_records: Sequence[Loss],
    ) -> BackfillRecord | None:
        """Record on the log which tables have lost changes, while that can still be seen.

        Returns the unfinished backfills, with the copies of these tables added.
        """
        if self.environment.settings.capture.on_incompatible == "resnapshot":
            tables_to_copy = tables_to_copy | unpublished(self.environment, frontier, unfinished)
        if not tables_to_copy and not lost_records:
            return unfinished
        if tables_to_copy:
            names = ", ".join(map(str, sorted(tables_to_copy)))
            log.warning("changes are lost, so these tables are copied again: %s", names)
        record = unfinished or BackfillRecord(
            slot=frontier.slot,
            epoch=frontier.epoch,
            system_id=frontier.system_id,
            timeline=frontier.timeline,
            groups=tuple(self.environment.settings.capture.groups),
        )
        copies = {
            self.environment.topics[table]: TableBackfill(
                table=table,
                reason="changes of it are lost",
                is_excluded=True,
                topic_id=self.environment.topic_ids[self.environment.topics[table]],
            )
            for table in tables_to_copy
        }
        copies = {**noted(lost_records, frontier, unfinished), **copies}
        record = replace(record, tables={**record.tables, **copies})
        self.environment.frontiers.write_backfill(record)
        self.context.failpoint(Failpoint.LOSS_NOTED)
        return record

    def _enable_failover(self, status: SlotStatus) -> None:
        """Turn the slot into a failover slot if the settings want one."""
        may_fail_over = (
            self.environment.settings.capture.failover_slot and not self.environment.is_standby
        )
        if may_fail_over and not status.survives_failover:
            enable_failover(self.environment.settings.postgres, status.name)
            log.info('standbys may follow the slot "%s" from now on', status.name)

    def _first_backfill(self, epoch: int, start: Lsn) -> BackfillRecord:
        """Return the first record of an epoch; with `start` 0 its slot is not created yet.

        If this attempt crashes, the record tells the next one why the slot exists.
        """
        return BackfillRecord(
            slot=self.environment.settings.capture.slot,
            epoch=epoch,
            system_id=self.environment.system.system_id,
            timeline=self.environment.system.timeline,
            start_lsn=start,
            groups=tuple(self.environment.settings.capture.groups),
        )

    def _make_slot(
        self,
        slot_standing: SlotStanding,
        epoch: int,
        stack: ExitStack,
        *,
        drop: bool,
    ) -> ExportedSnapshot:
        """Create the slot of a new epoch; the log announces it first, in case of a crash."""
        slot, failpoint = self.environment.settings.capture.slot, self.context.failpoint
        check_slot_unmoved(self.environment, slot_standing)
        slots = self.environment.settings.capture.slots
        # Slots of groups that the settings no longer name. They go first, because the record that
        # is written next does not name them either: after a crash nobody would find them.
        self._drop_slots(sorted({f"{slot}_{name}" for name in slot_standing.groups} - {*slots}))
        publish(self.environment, None)
        self.environment.frontiers.write_backfill(self._first_backfill(epoch, Lsn(0)))
        failpoint(Failpoint.SLOT_INTENDED)
        if drop:
            # Another capture may have created a new slot since the decision.
            check_slot_unmoved(self.environment, slot_standing)
            self._drop_slots(slots)
        snapshot = self._create_slots(stack)
        failpoint(Failpoint.SLOT_MADE)
        first_backfill = self._first_backfill(epoch, snapshot.consistent_point)
        self.environment.frontiers.write_backfill(first_backfill)
        return snapshot

    def _drop_slots(self, names: Iterable[str]) -> None:
        """Drop the slots that exist."""
        for name in names:
            if inspect_slot(self.environment.connection, name) is not None:
                drop_slot(self.environment.connection, name)

    def _create_slots(self, stack: ExitStack) -> ExportedSnapshot:
        """Create the slot, and one for each group of tables.

        Returns the snapshot of the first with the consistent point of the last.
        """
        capture, dsn = self.environment.settings.capture, self.environment.settings.postgres
        standby_snapshots = (
            running_logged(self.environment.settings.primary)
            if self.environment.is_standby
            else nullcontext()
        )
        with standby_snapshots:
            snapshot = create_slot(
                dsn,
                capture.slot,
                temporary=capture.temporary_slot,
                failover=capture.failover_slot,
                stop=self.context.stop,
            )
        stack.enter_context(snapshot)
        for group in capture.slot_groups:
            # The copies of the tables contain all that the earlier slots sent before this point.
            with create_slot(dsn, group.slot, stop=self.context.stop) as group_snapshot:
                consistent_point = max(snapshot.consistent_point, group_snapshot.consistent_point)
                snapshot = replace(snapshot, consistent_point=consistent_point)
        return snapshot


def _stopping(lost_records: Sequence[Loss]) -> dict[TableName, ChangelogError]:
    """Return the errors that end capture unless the WAL asks for a copy of the table; log each."""
    errors = {loss.table: loss.explained() for loss in lost_records if loss.answer is Reaction.STOP}
    for error in errors.values():
        log.warning("%s; capture ends unless the WAL brings a request to copy it", error.args[0])
    return {**errors}
