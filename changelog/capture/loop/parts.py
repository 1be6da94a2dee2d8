"""The parts of one attempt, and who knows whom among them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from changelog.capture.copy.backfill import Backfill
from changelog.capture.copy.table_tasks import TableTasks
from changelog.capture.loop.beginning import Beginning
from changelog.capture.loop.heartbeat import Heartbeat
from changelog.capture.loop.schema_watch import SchemaWatch
from changelog.capture.loop.signals import Signals
from changelog.capture.loop.streaming import StreamLoop
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.start.environment import Environment
from changelog.capture.start.roster import Roster
from changelog.capture.state.ledger import Ledger
from changelog.capture.state.newcomers import Newcomers
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
from changelog.contract.base.errors import UnavailableSourceError
from changelog.contract.log.form import Output
from changelog.contract.log.frontier import Frontier, LastCommit
from changelog.contract.log.topic import ddl_topic, messages_topic, sequences_topic
from changelog.contract.rows.relation import Relation
from changelog.sink.frontier import last_values
from changelog.sink.lost_schemas import lost_schemas
from changelog.sink.producer import LogProducer
from changelog.sink.resume import WrittenRecords
from changelog.source.snapshot.sequences import read_sequences
from changelog.source.snapshot.toast import fetch_columns
from changelog.source.stream.assemble import Assembler
from changelog.source.stream.merged import MergedStream
from changelog.source.stream.message import OWN_PREFIX, emit
from changelog.source.stream.pgoutput import RelationMessage
from changelog.source.stream.slot import inspect_slot
from changelog.source.stream.stream import ReplicationStream
from changelog.source.tables.filter import TableFilter


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Joins the parts of one attempt to a loop over its stream."""

    settings: Project  # the project
    context: Context  # report, stop, crash points
    environment: Environment  # the source and the log
    producer: LogProducer  # where the records go
    written: WrittenRecords  # the records on the log behind its last frontier
    newcomers: Newcomers  # what earlier attempts know of tables that appeared
    begun_at: float  # when the attempt began, on the monotonic clock

    def loop(
        self,
        beginning: Beginning,
        stream: ReplicationStream | MergedStream,
        waiting: Callable[[], None],
    ) -> StreamLoop:
        """Join the parts of one attempt."""
        capture, start = self.settings.capture, beginning.start_state
        failpoint = self.context.failpoint
        progress = Progress(start.lsn)
        progress.hold_until(start.hold_until)
        ledger = Ledger(start)
        writer = RecordWriter(
            log=self.producer,
            tables=self.environment.tables,
            epoch=start.epoch,
            ledger=ledger,
            partitions=self.environment.partitions,
            written=start.written,
            fetch=partial(fetch_columns, self.environment.connection),
            dead_keys=partial(self.environment.dead_keys, self.producer, on_wait=waiting),
            hold_until=progress.hold_until,
        )
        frontier_writer = self._frontier_writer(start, ledger, self._check_of())
        watch = CatalogueWatch(
            self.environment,
            start.epoch,
            progress,
            standings=self.environment.frontiers.standings(capture.slot),
            new=start.skipped,
        )
        resolver = self.environment.catalogue.resolver(self.environment.relations.values())

        def resolve(message: RelationMessage) -> Relation | None:
            relation = resolver(message)
            if relation is not None:
                watch.check_places(relation)
            return relation

        assembler = Assembler(resolve, ledger.deaf_until)
        tasks = TableTasks(
            environment=self.environment,
            start_state=start,
            tasks=beginning.tasks,
            start_lsn=beginning.start_lsn,
            progress=progress,
            ledger=ledger,
            context=self.context,
            watch=watch,
            stopping=beginning.stopping,
        )
        backfill = Backfill(
            environment=self.environment,
            epoch=start.epoch,
            tasks=tasks,
            producer=self.producer,
            writer=writer,
            progress=progress,
            ledger=ledger,
            lose_count=frontier_writer.lose_count,
            context=self.context,
            keep_alive=waiting,
        )
        bulk = BulkWriter(
            assembler=assembler,
            writer=writer,
            tables=self.environment.tables,
            producer=self.producer,
            epoch=start.epoch,
            failpoint=failpoint,
        )
        messages, ddl = self._message_writers(start)
        roster = Roster(
            self.environment,
            tasks,
            self.newcomers,
            start_s=time.monotonic() - self.begun_at,
        )
        signals = Signals(
            slot=capture.slot,
            connection=self.environment.connection,
            ledger=ledger,
            captured=lambda: self.environment.topics,
            request=tasks.request,
        )
        return StreamLoop(
            stream=stream,
            assembler=assembler,
            writer=writer,
            bulk=bulk,
            messages=messages,
            ddl=ddl,
            sequences=self._sequences(start.epoch),
            producer=self.producer,
            rate=rate_of(capture),
            progress=progress,
            frontier_writer=frontier_writer,
            interval_s=capture.frontier_interval_ms / 1000,
            ledger=ledger,
            backfill=backfill,
            names=self.environment.names,
            watch=watch,
            roster=roster,
            schemas=SchemaWatch(
                partial(lost_schemas, self.settings.registry),
                lambda: self.environment.tables.registered,
            )
            if capture.form.output is Output.AVRO
            else None,
            signals=signals,
            heartbeat=Heartbeat(
                capture.slot, capture.heartbeat_table_s, lambda: self.environment.writer
            ),
            nudge=lambda: _nudge(self.environment),
            wal_end=self.environment.current_lsn,
            report=self.context.report,
            failpoint=failpoint,
        )

    def _frontier_writer(
        self,
        start_state: StartState,
        ledger: Ledger,
        check: Callable[[], None],
    ) -> FrontierWriter:
        base = Frontier(
            slot=self.settings.capture.slot,
            epoch=start_state.epoch,
            lsn=start_state.lsn,
            ts_us=start_state.ts_us,
            commit=start_state.commit
            if start_state.has_frontier
            else LastCommit(start_state.lsn, 0),
            system_id=self.environment.system.system_id,
            timeline=self.environment.system.timeline,
            cluster_id=self.environment.cluster_id,
            tables={topic: table for table, topic in self.environment.topics.items()},
            topic_ids=self.environment.topic_ids,
            scopes={
                self.environment.topics[table]: scope
                for table, scope in self.environment.scopes.items()
            },
            grown=start_state.grown,
        )
        # Where records stand by transactions, no other capture can write any.
        alone = None if self.producer.is_transactional else SoleWriter(self.written.ends)
        return FrontierWriter(
            alone=alone,
            base=base,
            ledger=ledger,
            log=self.environment.frontiers,
            producer=self.producer,
            check=check,
            partitions={
                topic: self.environment.partitions[topic] for topic in self.environment.unkeyed
            },
            growth=GrowthWatch(
                start_state.grown,
                start_state.partitions,
                at_start=self.environment.partitions,
                begun=self.environment.current_lsn(),
                ms=start_state.ts_us // 1000 if start_state.has_frontier else None,
            ),
            timeline=lambda: self.environment.system.timeline,
            key_ids=self.environment.tables.key_ids,
        )

    def _sequences(self, epoch: int) -> SequenceLog | None:
        """Return the writer of sequences' values, if the settings want it."""
        if not self.settings.capture.sequences:
            return None
        topic = sequences_topic(self.settings.capture.topic_prefix)
        return SequenceLog(
            log=self.producer,
            topic=topic,
            epoch=epoch,
            logged=last_values(self.settings.kafka, self.environment.frontiers, topic),
            look=partial(
                read_sequences,
                self.environment.connection,
                TableFilter(self.settings.capture.tables, self.settings.capture.exclude),
                self.environment.names,
            ),
        )

    def _check_of(self) -> Callable[[], None]:
        """Return the check before each frontier: the stream is whole, and still ours."""
        slot, slots = self.settings.capture.slot, self.settings.capture.slots

        def reader() -> list[int | None]:
            statuses = [inspect_slot(self.environment.connection, slot) for slot in slots]
            return [status.active_pid if status is not None else None for status in statuses]

        ours = reader()

        def check() -> None:
            self.environment.notice_promotion()
            self.environment.check_publication()
            if reader() != ours:
                raise UnavailableSourceError(
                    f'this capture no longer reads the slot "{slot}": it was cut off'
                )

        return check

    def _message_writers(self, start: StartState) -> tuple[MessageWriter, DdlWriter | None]:
        """Return the writers of the application's messages and, if wanted, of schema changes."""

        def to(topic: str) -> MessageLog:
            return MessageLog(
                log=self.producer,
                topic=topic,
                epoch=start.epoch,
                partitions=self.environment.partitions,
                written=start.written,
            )

        prefix = self.settings.capture.topic_prefix
        messages = MessageWriter(to(messages_topic(prefix)), self.settings.capture.messages)
        if ddl_topic(prefix) not in self.environment.logs:
            return messages, None
        return messages, DdlWriter(to(ddl_topic(prefix)), self.environment.names)


def _nudge(environment: Environment) -> None:
    """Write a message into the WAL, so that an idle server sends WAL."""
    if environment.can_write:
        emit(environment.writer, OWN_PREFIX, b"", transactional=True)
