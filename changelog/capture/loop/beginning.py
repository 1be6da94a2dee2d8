"""How an attempt begins: its start state, the tables to copy, and a slot where there is none."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace

from psycopg2.extras import LogicalReplicationConnection

from changelog.capture.copy.table_task import TableTask, table_tasks
from changelog.capture.start.decide import Adopt, Continue, Fresh, Resume
from changelog.capture.start.environment import Environment
from changelog.capture.start.lost_beginnings import Loss, losses, noted, restarted
from changelog.capture.start.outlook import (
    SlotStanding,
    check_slot_unmoved,
    known_keys,
    skipped_tables,
    uncarried,
)
from changelog.capture.start.publishing import publish, unpublished
from changelog.capture.state.policy import Reaction
from changelog.capture.state.start_state import Context, StartState
from changelog.contract.base.errors import (
    ChangelogError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.backfill import BackfillRecord, TableBackfill
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.runtime.failpoints import Failpoint
from changelog.sink.resume import WrittenRecords, last_positions
from changelog.source.connect.retention import SlotStatus
from changelog.source.connect.standby import running_logged
from changelog.source.stream.slot import (
    ExportedSnapshot,
    check_slot,
    create_slot,
    drop_slot,
    inspect_slot,
    let_follow,
)

log = logging.getLogger("changelog.capture")


@dataclass(frozen=True, slots=True)
class Beginning:
    """How an attempt begins."""

    start_state: StartState  # from where it streams
    written: WrittenRecords  # the records on the log behind its last frontier
    tasks: list[TableTask]  # the tables that have to be copied
    start_lsn: Lsn  # where the slot began, as far as that is known
    # which has to read the slot, since it is temporary; or None
    connection: LogicalReplicationConnection | None = None
    # tables that end capture unless the WAL asks for a copy of them
    stopping: Mapping[TableName, ChangelogError] = field(default_factory=dict)
    # tables that cannot go on as they are on the log
    failing: Mapping[TableName, ChangelogError] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class Beginner:
    """Begins one attempt as the log and the slot demand."""

    environment: Environment  # the source and the log
    context: Context  # report, stop, crash points
    # the records on the log behind its last frontier, once it has begun
    written: WrittenRecords = field(init=False)

    def begin(self, slot_standing: SlotStanding, stack: ExitStack) -> Beginning:
        """Decide how to begin, and make missing objects; the stack closes opened connections."""
        capture = self.environment.settings.capture
        record, backfill, status = slot_standing.record, slot_standing.backfill, slot_standing.slot
        topics = self.environment.topics.values()
        written = last_positions(
            self.environment.settings.kafka,
            self.environment.frontiers,
            slot_standing.frontier,
            [*topics, *self.environment.logs],
            backfill=backfill,
            # After a failover the log may hold what the server has lost.
            wal_end=self.environment.current_lsn
            if slot_standing.is_of(self.environment.system)
            else None,
        )
        self.written = written
        begin = slot_standing.beginning(self.environment, written)
        match begin:
            case Fresh(reason=reason, epoch=epoch, drop_slot=drop):
                copying = "no table is copied" if capture.skip_snapshot else "copying every table"
                level = logging.INFO if record is None else logging.WARNING
                log.log(level, "%s: a fresh log under epoch %d, %s", reason, epoch, copying)
                snapshot = self._make_slot(slot_standing, epoch, stack, drop=drop)
                if not capture.temporary_slot:
                    snapshot.close()
                start = snapshot.consistent_point
                first = self._first(StartState(epoch=epoch, lsn=start), None)
                return replace(
                    first, connection=snapshot.connection if capture.temporary_slot else None
                )
            case Adopt(epoch=epoch, lsn=start):
                assert status is not None  # noqa: S101 - decide adopts a slot that is there
                check_slot(status)
                publish(self.environment, None, as_it_is=True)
                log.info("a fresh log under epoch %d, on a slot of others, from %s", epoch, start)
                self.environment.frontiers.write_backfill(self._intent(epoch, start))
                return self._first(StartState(epoch=epoch, lsn=start), None)
            case Continue(record=first):
                return self._continued(first, status)
            case Resume():
                if record is not None:
                    self.context.report.frontier_found(record)
                return self._resumed(begin, slot_standing.going(begin), status)

    def _continued(
        self,
        first: BackfillRecord,
        status: SlotStatus | None,
    ) -> Beginning:
        """Continue the first copy of the tables."""
        assert status is not None  # noqa: S101 - decide continues only with a slot
        check_slot(status)
        self._let_follow(status)
        first = restarted(self.environment, first)
        refiltered = publish(self.environment, None, first).refiltered
        start = first.start_lsn or status.confirmed_flush_lsn or Lsn(0)
        log.info("going on with the snapshot of epoch %d", first.epoch, extra={"lsn": str(start)})
        start_state = StartState(
            epoch=first.epoch,
            lsn=start,
            written=self.written.positions,
            hold_until=self.written.passed_at(first.epoch),
        )
        return self._first(start_state, first, refiltered)

    def _first(
        self,
        start_state: StartState,
        backfill: BackfillRecord | None,
        refiltered: Collection[TableName] = (),
    ) -> Beginning:
        """Begin before the first frontier: with every table to be copied, or none."""
        if self.environment.settings.capture.skip_snapshot:
            start_state.skip(self.environment.topics.values(), self.written.ends)
            return Beginning(start_state, self.written, [], start_state.lsn)
        tasks = table_tasks(
            self.environment, set(self.environment.topics), None, backfill, refiltered
        )
        return Beginning(start_state, self.written, tasks, start_state.lsn)

    def _resumed(
        self,
        begin: Resume,
        going: BackfillRecord | None,
        status: SlotStatus | None,
    ) -> Beginning:
        """Continue at the last frontier."""
        assert status is not None  # noqa: S101 - decide resumes only with a slot
        check_slot(status)
        self._let_follow(status)
        frontier = begin.frontier
        if frontier.timeline != self.environment.system.timeline:
            log.warning(
                "timeline %d follows %d (failover), and has all that the log holds: going on",
                self.environment.system.timeline,
                frontier.timeline,
            )
        uncaptured = set(frontier.tables.values()) - {
            *self.environment.topics,
            *self.environment.refused,
        }
        for table in sorted(uncaptured):
            log.warning("table %s is not captured any more: frontiers leave it out", table.said)
        going = restarted(self.environment, going) if going is not None else None
        lost_records = losses(self.environment, frontier, going)
        going = self._mended(frontier, going, self.environment.check_topics(frontier), lost_records)
        refiltered = publish(self.environment, frontier, going).refiltered
        log.info("resuming at the frontier %s", frontier.lsn, extra={"lsn": str(frontier.lsn)})
        self.environment.tables.key_ids = {
            **known_keys(self.environment, frontier),
            **self.environment.tables.key_ids,
        }
        start_state = StartState.resumed(
            frontier, set(self.environment.topics.values()), self.written.positions
        )
        start_state.hold_until = self.written.passed_at(frontier.epoch)
        skipped = skipped_tables(self.environment, begin, going)
        start_state.skip(
            [self.environment.topics[table] for table in skipped.new], self.written.ends
        )
        start_state.uncopied |= {self.environment.topics[table] for table in skipped.kept}
        for table in sorted(skipped.new):
            log.info("table %s is new, and not copied: its topic gets changes alone", table.said)
        rescoped = self.environment.rescoped(frontier, skipped.kept)
        anew = {*begin.added, *rescoped, *refiltered} - skipped.new - skipped.kept
        start_state.resend_grown(self.environment.partitions)
        tasks = table_tasks(self.environment, anew, frontier, going, refiltered)
        stopping = {
            loss.table: loss.explained() for loss in lost_records if loss.answer is Reaction.STOP
        }
        for error in stopping.values():
            log.warning("%s; capture ends unless the WAL brings a request for it", error.args[0])
        start = going.start_lsn if going is not None else Lsn(0)
        copied = {task.relation.name for task in tasks}
        failing = {t: e for t, e in uncarried(self.environment, begin).items() if t not in copied}
        return Beginning(
            start_state, self.written, tasks, start, stopping=stopping, failing=failing
        )

    def _mended(
        self,
        frontier: Frontier,
        going: BackfillRecord | None,
        anew: set[TableName],
        lost_records: Sequence[Loss],
    ) -> BackfillRecord | None:
        """Write down which tables have lost changes, before that can no longer be seen."""
        if self.environment.settings.capture.on_incompatible == "resnapshot":
            anew = anew | unpublished(self.environment, frontier, going)
        if not anew and not lost_records:
            return going
        if anew:
            names = ", ".join(map(str, sorted(anew)))
            log.warning("changes are lost, and so these tables are copied anew: %s", names)
        record = going or BackfillRecord(
            slot=frontier.slot,
            epoch=frontier.epoch,
            system_id=frontier.system_id,
            timeline=frontier.timeline,
            groups=tuple(self.environment.settings.capture.groups),
        )
        lost = {
            self.environment.topics[table]: TableBackfill(
                table=table,
                reason="changes of it are lost",
                is_excluded=True,
                topic_id=self.environment.topic_ids[self.environment.topics[table]],
            )
            for table in anew
        }
        lost = {**noted(lost_records, frontier, going), **lost}
        record = replace(record, tables={**record.tables, **lost})
        self.environment.frontiers.write_backfill(record)
        self.context.failpoint(Failpoint.LOSS_NOTED)
        return record

    def _let_follow(self, status: SlotStatus) -> None:
        """Make the slot a failover slot if it was made without."""
        may_fail_over = (
            self.environment.settings.capture.failover_slot and not self.environment.is_standby
        )
        if may_fail_over and not status.survives_failover:
            let_follow(self.environment.settings.postgres, status.name)
            log.info('standbys may follow the slot "%s" from now on', status.name)

    def _intent(self, epoch: int, start: Lsn) -> BackfillRecord:
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
        """Make a slot for a new epoch, so that no crash leaves one which the log cannot explain."""
        slot, failpoint = self.environment.settings.capture.slot, self.context.failpoint
        check_slot_unmoved(self.environment, slot_standing)
        slots = [*self.environment.settings.capture.slots]
        # Of groups that the log was begun with and the settings do not name; first, since the next
        # record does not name them either.
        for old_slot in sorted({f"{slot}_{name}" for name in slot_standing.groups} - {*slots}):
            if inspect_slot(self.environment.connection, old_slot) is not None:
                drop_slot(self.environment.connection, old_slot)
        publish(self.environment, None)
        self.environment.frontiers.write_backfill(self._intent(epoch, Lsn(0)))
        failpoint(Failpoint.SLOT_INTENDED)
        if drop:
            check_slot_unmoved(
                self.environment, slot_standing
            )  # another may have made a new one meanwhile
            for old_slot in slots:
                if inspect_slot(self.environment.connection, old_slot) is not None:
                    drop_slot(self.environment.connection, old_slot)
        temporary = self.environment.settings.capture.temporary_slot
        waits = (
            running_logged(self.environment.settings.primary)
            if self.environment.is_standby
            else nullcontext()
        )
        with waits:
            snapshot = create_slot(
                self.environment.settings.postgres,
                slot,
                temporary=temporary,
                failover=self.environment.settings.capture.failover_slot,
                stop=self.context.stop,
            )
        stack.enter_context(snapshot)
        for group in self.environment.settings.capture.slot_groups:
            # What the others have sent before that, the copies of the tables have.
            with create_slot(
                self.environment.settings.postgres, group.slot, stop=self.context.stop
            ) as of_group:
                begins = max(snapshot.consistent_point, of_group.consistent_point)
                snapshot = replace(snapshot, consistent_point=begins)
        failpoint(Failpoint.SLOT_MADE)
        self.environment.frontiers.write_backfill(self._intent(epoch, snapshot.consistent_point))
        return snapshot
