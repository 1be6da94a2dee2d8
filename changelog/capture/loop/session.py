"""One attempt of capture: from connecting to stopping, or to the first failure.

Nothing is carried from one attempt to the next but what stands on the log and in the slot, so a
restart after a failure and a restart after kill -9 are the same thing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from psycopg2.extras import LogicalReplicationConnection

from changelog.capture.copy.backfill import Backfill
from changelog.capture.copy.table_task import TableTask, table_tasks
from changelog.capture.copy.table_tasks import TableTasks
from changelog.capture.copy.workers import worker_id
from changelog.capture.loop.heartbeat import Heartbeat
from changelog.capture.loop.schema_watch import SchemaWatch
from changelog.capture.loop.signals import Signals
from changelog.capture.loop.streaming import StreamLoop
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.start.decide import Adopt, Continue, Fresh, Resume
from changelog.capture.start.environment import Environment, survey
from changelog.capture.start.lost_beginnings import Loss, losses, noted, restarted
from changelog.capture.start.outlook import (
    SlotStanding,
    check_log_unmoved,
    check_slot_unmoved,
    known_keys,
    refuse_first,
    skipped_tables,
    uncarried,
)
from changelog.capture.start.rights import Agreed, check_agreed, nobody_agrees
from changelog.capture.start.roster import Roster
from changelog.capture.start.start_undo import StartUndo
from changelog.capture.state.ledger import Ledger
from changelog.capture.state.newcomers import Newcomers
from changelog.capture.state.policy import Reaction
from changelog.capture.state.progress import Progress
from changelog.capture.state.rate import rate_of
from changelog.capture.state.start_state import Context, StartState
from changelog.capture.write.bulk import BulkWriter
from changelog.capture.write.frontier_writer import FrontierWriter
from changelog.capture.write.messages import DdlWriter, MessageLog, MessageWriter
from changelog.capture.write.sequences import SequenceLog
from changelog.capture.write.topic_watch import GrowthWatch, SoleWriter
from changelog.capture.write.writer import RecordWriter
from changelog.config import Project
from changelog.contract.base.errors import (
    ChangelogError,
    LogError,
    UnavailableLogError,
    UnavailableSourceError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.backfill import BackfillRecord, TableBackfill
from changelog.contract.log.form import Output
from changelog.contract.log.frontier import Frontier, LastCommit
from changelog.contract.log.topic import ddl_topic, messages_topic, sequences_topic
from changelog.contract.rows.relation import Relation, TableName
from changelog.runtime.failpoints import Failpoint
from changelog.sink.frontier import last_values
from changelog.sink.producer import LogProducer
from changelog.sink.resume import WrittenRecords, last_positions
from changelog.source.connect.standby import running_logged
from changelog.source.snapshot.sequences import read_sequences
from changelog.source.snapshot.toast import fetch_columns
from changelog.source.stream.assemble import Assembler
from changelog.source.stream.merged import MergedStream
from changelog.source.stream.message import OWN_PREFIX, emit
from changelog.source.stream.pgoutput import PLUGIN_OPTIONS, ROW_OPTIONS, RelationMessage
from changelog.source.stream.slot import (
    ExportedSnapshot,
    SlotStatus,
    check_idle,
    check_slot,
    create_slot,
    drop_slot,
    inspect_slot,
    inspect_slots,
    let_follow,
)
from changelog.source.stream.stream import ReplicationStream
from changelog.source.tables.filter import TableFilter

log = logging.getLogger("changelog.capture")

STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Beginning:
    """How an attempt begins.

    Attributes:
        start_state: from where it streams.
        tasks: the tables that have to be copied.
        start_lsn: where the slot began, as far as that is known.
        connection: which has to read the slot, since it is temporary; or None.
        stopping: tables that end capture unless the WAL asks for a copy of them.
        failing: tables that cannot go on as they are on the log.
    """

    start_state: StartState
    tasks: list[TableTask]
    start_lsn: Lsn
    connection: LogicalReplicationConnection | None = None
    stopping: Mapping[TableName, ChangelogError] = field(default_factory=dict)
    failing: Mapping[TableName, ChangelogError] = field(default_factory=dict)


class CaptureSession:
    """Runs capture once.

    Attributes:
        connected: whether source, broker and registry have all answered in this attempt.
    """

    def __init__(
        self,
        settings: Project,
        context: Context,
        refused: dict[str, ChangelogError],
        newcomers: Newcomers | None = None,
        *,
        undo: StartUndo | None = None,
        agreed: Agreed = nobody_agrees,
    ) -> None:
        """Prepare an attempt.

        Args:
            settings: the project.
            context: report, console, stop, crash points.
            refused: topics that took no record of an earlier attempt; emptied when that is noted.
            newcomers: what earlier attempts know of tables that appeared.
            undo: what earlier attempts have made, and this one does.
            agreed: gives whether tables may be altered.
        """
        self._newcomers = newcomers or Newcomers()
        self._undo = undo or StartUndo(has_begun=lambda: True)
        self._agreed = agreed
        self._begun_at = time.monotonic()
        self.connected = False
        self._refused = refused
        self._settings = settings
        self._capture = settings.capture
        self._context = context
        self._written = WrittenRecords({}, 0)

    def run(self, until: Lsn | None) -> None:
        """Begin as the log and the slot demand, then stream.

        Raises:
            UnavailableError: a server went away; a new attempt may succeed.
            ChangelogError: anything else.
        """
        with ExitStack() as stack:
            # First: a setting that librdkafka does not know is told before anything is made.
            producer = LogProducer.open(
                self._settings.kafka,
                self._capture.producer,
                transactional_id=self._settings.transactional_id,
            )
            stack.callback(producer.close)
            self._context.report.began(lambda: producer.queued)
            stack.callback(self._context.report.ended)
            environment = stack.enter_context(survey(self._settings, self._newcomers))
            self.connected = True
            self._take_over(environment, producer)
            slot_standing = refuse_first(environment)
            check_agreed(environment.connection, environment.altered, self._agreed)
            self._undo.look(environment, slot_standing)
            environment.make()
            self._undo.identities += environment.give_identity()
            beginning = self._begin(environment, slot_standing, stack)
            self._context.failpoint(Failpoint.LOG_READ)
            self._stream(
                environment,
                producer,
                beginning,
                partial(check_log_unmoved, environment, slot_standing),
                until,
            )

    def _take_over(self, environment: Environment, producer: LogProducer) -> None:
        """Fence captures that were thought dead, and abort the transactions that they left open.

        Without transactions of our own too: behind one that is open nobody reads any more, and an
        earlier attempt may have used them.

        Raises:
            SlotBusyError: another capture is alive: it is not to be thrown out.
            UnavailableLogError: a transaction of somebody else is open.
        """
        open_topics = environment.held_back()
        if not producer.is_transactional and not open_topics:
            return
        status = inspect_slots(environment.connection, self._capture.slots)
        if status is not None:
            check_idle(status)
        if producer.is_transactional:
            producer.take_over()
            environment.frontiers.through = producer
        if open_topics:
            log.warning(
                "taking back what a capture that died has left open: %s", ", ".join(open_topics)
            )
            self._abort_others()
            environment.await_stable()

    def _abort_others(self) -> None:
        """Abort transactions that earlier attempts and their workers may have left open."""
        kafka, name = self._settings.kafka, self._settings.name_of_transactions
        workers = range(self._capture.snapshot_workers)
        others = [] if self._settings.transactional_id else [name]
        for transactional_id in [*others, *(worker_id(name, number) for number in workers)]:
            with closing(LogProducer.open(kafka, transactional_id=transactional_id)) as producer:
                producer.take_over()

    def _begin(
        self, environment: Environment, slot_standing: SlotStanding, stack: ExitStack
    ) -> Beginning:
        """Decide how to begin, and make missing objects; the stack closes opened connections."""
        capture = self._capture
        record, backfill, status = slot_standing.record, slot_standing.backfill, slot_standing.slot
        topics = environment.topics.values()
        written = last_positions(
            self._settings.kafka,
            environment.frontiers,
            slot_standing.frontier,
            [*topics, *environment.logs],
            backfill=backfill,
            # After a failover the log may hold what the server has lost.
            wal_end=environment.current_lsn if slot_standing.is_of(environment.system) else None,
        )
        self._written = written
        begin = slot_standing.beginning(environment, written)
        match begin:
            case Fresh(reason=reason, epoch=epoch, drop_slot=drop):
                copying = "no table is copied" if capture.skip_snapshot else "copying every table"
                level = logging.INFO if record is None else logging.WARNING
                log.log(level, "%s: a fresh log under epoch %d, %s", reason, epoch, copying)
                snapshot = self._make_slot(environment, slot_standing, epoch, stack, drop=drop)
                if not capture.temporary_slot:
                    snapshot.close()
                start = snapshot.consistent_point
                first = self._first(environment, StartState(epoch=epoch, lsn=start), None)
                return replace(
                    first, connection=snapshot.connection if capture.temporary_slot else None
                )
            case Adopt(epoch=epoch, lsn=start):
                assert status is not None  # noqa: S101 - decide adopts a slot that is there
                check_slot(status)
                environment.publish(None, as_it_is=True)
                log.info("a fresh log under epoch %d, on a slot of others, from %s", epoch, start)
                environment.frontiers.write_backfill(self._intent(environment, epoch, start))
                return self._first(environment, StartState(epoch=epoch, lsn=start), None)
            case Continue(record=first):
                return self._continued(environment, first, status, written)
            case Resume():
                if record is not None:
                    self._context.report.frontier_found(record)
                return self._resumed(
                    environment, begin, slot_standing.going(begin), status, written
                )

    def _continued(
        self,
        environment: Environment,
        first: BackfillRecord,
        status: SlotStatus | None,
        written: WrittenRecords,
    ) -> Beginning:
        """Continue the first copy of the tables."""
        assert status is not None  # noqa: S101 - decide continues only with a slot
        check_slot(status)
        self._let_follow(environment, status)
        first = restarted(environment, first)
        refiltered = environment.publish(None, first).refiltered
        start = first.start_lsn or status.confirmed_flush_lsn or Lsn(0)
        log.info("going on with the snapshot of epoch %d", first.epoch, extra={"lsn": str(start)})
        start_state = StartState(
            epoch=first.epoch,
            lsn=start,
            written=written.positions,
            hold_until=written.passed_at(first.epoch),
        )
        return self._first(environment, start_state, first, refiltered)

    def _first(
        self,
        environment: Environment,
        start_state: StartState,
        backfill: BackfillRecord | None,
        refiltered: Collection[TableName] = (),
    ) -> Beginning:
        """Begin before the first frontier: with every table to be copied, or none."""
        if self._capture.skip_snapshot:
            start_state.skip(environment.topics.values(), self._written.ends)
            return Beginning(start_state, [], start_state.lsn)
        tasks = table_tasks(environment, set(environment.topics), None, backfill, refiltered)
        return Beginning(start_state, tasks, start_state.lsn)

    def _resumed(
        self,
        environment: Environment,
        begin: Resume,
        going: BackfillRecord | None,
        status: SlotStatus | None,
        written: WrittenRecords,
    ) -> Beginning:
        """Continue at the last frontier."""
        assert status is not None  # noqa: S101 - decide resumes only with a slot
        check_slot(status)
        self._let_follow(environment, status)
        frontier = begin.frontier
        if frontier.timeline != environment.system.timeline:
            log.warning(
                "timeline %d follows %d (failover), and has all that the log holds: going on",
                environment.system.timeline,
                frontier.timeline,
            )
        uncaptured = set(frontier.tables.values()) - {*environment.topics, *environment.refused}
        for table in sorted(uncaptured):
            log.warning("table %s is not captured any more: frontiers leave it out", table.said)
        going = restarted(environment, going) if going is not None else None
        lost_records = losses(environment, frontier, going)
        going = self._mended(
            environment, frontier, going, environment.check_topics(frontier), lost_records
        )
        refiltered = environment.publish(frontier, going).refiltered
        log.info("resuming at the frontier %s", frontier.lsn, extra={"lsn": str(frontier.lsn)})
        environment.tables.key_ids = {
            **known_keys(environment, frontier),
            **environment.tables.key_ids,
        }
        start_state = StartState.resumed(
            frontier, set(environment.topics.values()), written.positions
        )
        start_state.hold_until = written.passed_at(frontier.epoch)
        skipped = skipped_tables(environment, begin, going)
        start_state.skip([environment.topics[table] for table in skipped.new], written.ends)
        start_state.uncopied |= {environment.topics[table] for table in skipped.kept}
        for table in sorted(skipped.new):
            log.info("table %s is new, and not copied: its topic gets changes alone", table.said)
        rescoped = environment.rescoped(frontier, skipped.kept)
        anew = {*begin.added, *rescoped, *refiltered} - skipped.new - skipped.kept
        start_state.resend_grown(environment.partitions)
        tasks = table_tasks(environment, anew, frontier, going, refiltered)
        stopping = {
            loss.table: loss.explained() for loss in lost_records if loss.answer is Reaction.STOP
        }
        for error in stopping.values():
            log.warning("%s; capture ends unless the WAL brings a request for it", error.args[0])
        start = going.start_lsn if going is not None else Lsn(0)
        copied = {task.relation.name for task in tasks}
        failing = {t: e for t, e in uncarried(environment, begin).items() if t not in copied}
        return Beginning(start_state, tasks, start, stopping=stopping, failing=failing)

    def _mended(
        self,
        environment: Environment,
        frontier: Frontier,
        going: BackfillRecord | None,
        anew: set[TableName],
        lost_records: Sequence[Loss],
    ) -> BackfillRecord | None:
        """Write down which tables have lost changes, before that can no longer be seen."""
        if self._capture.on_incompatible == "resnapshot":
            anew = anew | environment.unpublished(frontier, going)
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
            groups=tuple(self._capture.groups),
        )
        lost = {
            environment.topics[table]: TableBackfill(
                table=table,
                reason="changes of it are lost",
                is_excluded=True,
                topic_id=environment.topic_ids[environment.topics[table]],
            )
            for table in anew
        }
        lost = {**noted(lost_records, frontier, going), **lost}
        record = replace(record, tables={**record.tables, **lost})
        environment.frontiers.write_backfill(record)
        self._context.failpoint(Failpoint.LOSS_NOTED)
        return record

    def _let_follow(self, environment: Environment, status: SlotStatus) -> None:
        """Make the slot a failover slot if it was made without."""
        may_fail_over = self._capture.failover_slot and not environment.is_standby
        if may_fail_over and not status.survives_failover:
            let_follow(self._settings.postgres, status.name)
            log.info('standbys may follow the slot "%s" from now on', status.name)

    def _intent(self, environment: Environment, epoch: int, start: Lsn) -> BackfillRecord:
        return BackfillRecord(
            slot=self._capture.slot,
            epoch=epoch,
            system_id=environment.system.system_id,
            timeline=environment.system.timeline,
            start_lsn=start,
            groups=tuple(self._capture.groups),
        )

    def _make_slot(
        self,
        environment: Environment,
        slot_standing: SlotStanding,
        epoch: int,
        stack: ExitStack,
        *,
        drop: bool,
    ) -> ExportedSnapshot:
        """Make a slot for a new epoch, so that no crash leaves one which the log cannot explain."""
        slot, failpoint = self._capture.slot, self._context.failpoint
        check_slot_unmoved(environment, slot_standing)
        slots = [*self._capture.slots]
        # Of groups that the log was begun with and the settings do not name; first, since the next
        # record does not name them either.
        for old_slot in sorted({f"{slot}_{name}" for name in slot_standing.groups} - {*slots}):
            if inspect_slot(environment.connection, old_slot) is not None:
                drop_slot(environment.connection, old_slot)
        environment.publish(None)
        environment.frontiers.write_backfill(self._intent(environment, epoch, Lsn(0)))
        failpoint(Failpoint.SLOT_INTENDED)
        if drop:
            check_slot_unmoved(
                environment, slot_standing
            )  # another may have made a new one meanwhile
            for old_slot in slots:
                if inspect_slot(environment.connection, old_slot) is not None:
                    drop_slot(environment.connection, old_slot)
        temporary = self._capture.temporary_slot
        waits = running_logged(self._settings.primary) if environment.is_standby else nullcontext()
        with waits:
            snapshot = create_slot(
                self._settings.postgres,
                slot,
                temporary=temporary,
                failover=self._capture.failover_slot,
                stop=self._context.stop,
            )
        stack.enter_context(snapshot)
        for group in self._capture.slot_groups:
            # What the others have sent before that, the copies of the tables have.
            with create_slot(
                self._settings.postgres, group.slot, stop=self._context.stop
            ) as of_group:
                begins = max(snapshot.consistent_point, of_group.consistent_point)
                snapshot = replace(snapshot, consistent_point=begins)
        failpoint(Failpoint.SLOT_MADE)
        environment.frontiers.write_backfill(
            self._intent(environment, epoch, snapshot.consistent_point)
        )
        return snapshot

    def _frontier_writer(
        self,
        environment: Environment,
        producer: LogProducer,
        start_state: StartState,
        ledger: Ledger,
        check: Callable[[], None],
    ) -> FrontierWriter:
        base = Frontier(
            slot=self._capture.slot,
            epoch=start_state.epoch,
            lsn=start_state.lsn,
            ts_us=start_state.ts_us,
            commit=start_state.commit
            if start_state.has_frontier
            else LastCommit(start_state.lsn, 0),
            system_id=environment.system.system_id,
            timeline=environment.system.timeline,
            cluster_id=environment.cluster_id,
            tables={topic: table for table, topic in environment.topics.items()},
            topic_ids=environment.topic_ids,
            scopes={
                environment.topics[table]: scope for table, scope in environment.scopes.items()
            },
            grown=start_state.grown,
        )
        # Where records stand by transactions, no other capture can write any.
        alone = None if producer.is_transactional else SoleWriter(self._written.ends)
        return FrontierWriter(
            alone=alone,
            base=base,
            ledger=ledger,
            log=environment.frontiers,
            producer=producer,
            check=check,
            partitions={topic: environment.partitions[topic] for topic in environment.unkeyed},
            growth=GrowthWatch(
                start_state.grown,
                start_state.partitions,
                at_start=environment.partitions,
                begun=environment.current_lsn(),
                ms=start_state.ts_us // 1000 if start_state.has_frontier else None,
            ),
            timeline=lambda: environment.system.timeline,
            key_ids=environment.tables.key_ids,
        )

    def _sequences(
        self, environment: Environment, producer: LogProducer, epoch: int
    ) -> SequenceLog | None:
        """Return the writer of sequences' values, if the settings want it."""
        if not self._capture.sequences:
            return None
        topic = sequences_topic(self._capture.topic_prefix)
        return SequenceLog(
            log=producer,
            topic=topic,
            epoch=epoch,
            logged=last_values(self._settings.kafka, environment.frontiers, topic),
            look=partial(
                read_sequences,
                environment.connection,
                TableFilter(self._capture.tables, self._capture.exclude),
                environment.names,
            ),
        )

    def _check_of(self, environment: Environment) -> Callable[[], None]:
        """Return the check before each frontier: the stream is whole, and still ours."""
        slot, slots = self._capture.slot, self._capture.slots

        def reader() -> list[int | None]:
            statuses = [inspect_slot(environment.connection, slot) for slot in slots]
            return [status.active_pid if status is not None else None for status in statuses]

        ours = reader()

        def check() -> None:
            environment.notice_promotion()
            environment.check_publication()
            if reader() != ours:
                raise UnavailableSourceError(
                    f'this capture no longer reads the slot "{slot}": it was cut off'
                )

        return check

    def _open(
        self,
        start_lsn: Lsn,
        connection: LogicalReplicationConnection | None,
        stack: ExitStack,
    ) -> ReplicationStream | MergedStream:
        """Open the slot's stream, merged with the streams of the groups of tables."""
        streams = [
            stack.enter_context(
                ReplicationStream.open(
                    self._settings.postgres,
                    slot=slot,
                    publication=publication,
                    start_lsn=start_lsn,
                    status_interval=self._capture.status_interval_ms / 1000,
                    connection=connection,
                    # Messages of the application come in each slot that asks for them.
                    options=PLUGIN_OPTIONS if slot == self._capture.slot else ROW_OPTIONS,
                )
            )
            for slot, publication in self._capture.slots.items()
        ]
        return streams[0] if len(streams) == 1 else MergedStream(streams)

    def _stream(
        self,
        environment: Environment,
        producer: LogProducer,
        beginning: Beginning,
        check_unmoved: Callable[[], None],
        until: Lsn | None,
    ) -> None:
        """Stream until `until`, or until capture is asked to stop."""
        start = beginning.start_state
        with ExitStack() as stack:
            stream = self._open(start.lsn, beginning.connection, stack)
            check_unmoved()
            waiting = _Waiting(stream.send_status, self._context.stop)
            producer.on_wait = environment.frontiers.on_wait = waiting
            environment.frontiers.connect()
            loop = self._loop(environment, producer, beginning, stream, waiting)
            stack.enter_context(loop.backfill)
            for topic, count in self._written.foreign.items():
                loop.backfill.tasks.overwritten(topic, count, start.lsn)
            for table, error in beginning.failing.items():
                loop.backfill.tasks.failed(table, error, start.lsn)
            while self._refused:
                topic, error = self._refused.popitem()
                if topic not in environment.topics.values():
                    raise error  # no table's
                loop.backfill.tasks.failed(environment.table_of(topic), error, start.lsn)
            for table, why in self._newcomers.began().items():
                named = {"table": str(table)}
                log.error("the table %s is excluded: it %s", table.said, why, extra=named)
            log.info("streaming from %s", start.lsn, extra={"lsn": str(start.lsn)})
            try:
                loop.run(until, self._context.stop)
                if until is not None:
                    producer.await_readers()
            except LogError as error:
                if type(error) is LogError:  # a subclass names its own cause
                    environment.refuse_gone(loop.ledger.absent)
                raise

    def _loop(
        self,
        environment: Environment,
        producer: LogProducer,
        beginning: Beginning,
        stream: ReplicationStream | MergedStream,
        waiting: Callable[[], None],
    ) -> StreamLoop:
        """Join the parts of one attempt."""
        capture, start = self._capture, beginning.start_state
        failpoint = self._context.failpoint
        progress = Progress(start.lsn)
        progress.hold_until(start.hold_until)
        ledger = Ledger(start)
        writer = RecordWriter(
            log=producer,
            tables=environment.tables,
            epoch=start.epoch,
            ledger=ledger,
            partitions=environment.partitions,
            written=start.written,
            fetch=partial(fetch_columns, environment.connection),
            dead_keys=partial(environment.dead_keys, producer, on_wait=waiting),
            hold_until=progress.hold_until,
        )
        frontier_writer = self._frontier_writer(
            environment, producer, start, ledger, self._check_of(environment)
        )
        watch = CatalogueWatch(
            environment,
            start.epoch,
            progress,
            standings=environment.frontiers.standings(capture.slot),
            new=start.skipped,
        )
        resolver = environment.catalogue.resolver(environment.relations.values())

        def resolve(message: RelationMessage) -> Relation | None:
            relation = resolver(message)
            if relation is not None:
                watch.check_places(relation)
            return relation

        assembler = Assembler(resolve, ledger.deaf_until)
        tasks = TableTasks(
            environment=environment,
            start_state=start,
            tasks=beginning.tasks,
            start_lsn=beginning.start_lsn,
            progress=progress,
            ledger=ledger,
            context=self._context,
            watch=watch,
            stopping=beginning.stopping,
        )
        backfill = Backfill(
            environment=environment,
            epoch=start.epoch,
            tasks=tasks,
            producer=producer,
            writer=writer,
            progress=progress,
            ledger=ledger,
            lose_count=frontier_writer.lose_count,
            context=self._context,
            keep_alive=waiting,
        )
        bulk = BulkWriter(
            assembler=assembler,
            writer=writer,
            tables=environment.tables,
            producer=producer,
            epoch=start.epoch,
            failpoint=failpoint,
        )
        messages, ddl = self._message_writers(environment, producer, start)
        roster = Roster(
            environment,
            tasks,
            self._newcomers,
            start_s=time.monotonic() - self._begun_at,
        )
        signals = Signals(
            slot=capture.slot,
            connection=environment.connection,
            ledger=ledger,
            captured=lambda: environment.topics,
            request=tasks.request,
        )
        return StreamLoop(
            stream=stream,
            assembler=assembler,
            writer=writer,
            bulk=bulk,
            messages=messages,
            ddl=ddl,
            sequences=self._sequences(environment, producer, start.epoch),
            producer=producer,
            rate=rate_of(capture),
            progress=progress,
            frontier_writer=frontier_writer,
            interval_s=capture.frontier_interval_ms / 1000,
            ledger=ledger,
            backfill=backfill,
            names=environment.names,
            watch=watch,
            roster=roster,
            schemas=SchemaWatch(self._lost_schemas, lambda: environment.tables.registered)
            if capture.form.output is Output.AVRO
            else None,
            signals=signals,
            heartbeat=Heartbeat(
                capture.slot, capture.heartbeat_table_s, lambda: environment.writer
            ),
            nudge=lambda: _nudge(environment),
            wal_end=environment.current_lsn,
            report=self._context.report,
            failpoint=failpoint,
        )

    def _lost_schemas(self, topics: Mapping[str, int | None]) -> list[str]:
        """Return the topics whose schemas the registry does not have; asks in another thread."""
        from changelog.sink.registry import Registry  # noqa: PLC0415 - a third of a start

        with closing(Registry(self._settings.registry)) as registry:
            return registry.lost(topics)

    def _message_writers(
        self, environment: Environment, producer: LogProducer, start: StartState
    ) -> tuple[MessageWriter, DdlWriter | None]:
        """Return the writers of the application's messages and, if wanted, of schema changes."""

        def to(topic: str) -> MessageLog:
            return MessageLog(
                log=producer,
                topic=topic,
                epoch=start.epoch,
                partitions=environment.partitions,
                written=start.written,
            )

        prefix = self._capture.topic_prefix
        messages = MessageWriter(to(messages_topic(prefix)), self._capture.messages)
        is_wanted = ddl_topic(prefix) in environment.logs
        return messages, DdlWriter(to(ddl_topic(prefix)), environment.names) if is_wanted else None


class _Waiting:
    """Called while the broker is slow: keeps the replication connection, and ends a stop.

    A stop that was asked for waits for the broker a while, so that it ends with a frontier; a
    broker that stays away does not keep it for ever. What was not acknowledged comes again.
    """

    def __init__(self, send_status: Callable[[], None], stop: Callable[[], bool]) -> None:
        self._send_status = send_status
        self._stop = stop
        self._give_up_at: float | None = None

    def __call__(self) -> None:
        self._send_status()
        if self._give_up_at is None:
            if self._stop():
                self._give_up_at = time.monotonic() + STOP_S
        elif time.monotonic() > self._give_up_at:
            raise UnavailableLogError(f"stopped, though the broker has not answered for {STOP_S} s")


def _nudge(environment: Environment) -> None:
    """Write a message into the WAL, so that an idle server sends WAL."""
    if environment.can_write:
        emit(environment.writer, OWN_PREFIX, b"", transactional=True)
