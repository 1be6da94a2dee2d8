"""The parts of one attempt, and who knows whom among them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from changelog.capture.copy.backfill import Backfill
from changelog.capture.copy.table_tasks import TableTasks
from changelog.capture.loop.attempt_start import AttemptStart
from changelog.capture.loop.frontiers import Frontiers, FrontierWriter, Stream, StreamPlace
from changelog.capture.loop.heartbeat import Heartbeat
from changelog.capture.loop.intake import StreamIntake
from changelog.capture.loop.schedule import FrontierSchedule, StreamPause
from changelog.capture.loop.schema_watch import SchemaWatch
from changelog.capture.loop.signals import Signals
from changelog.capture.loop.streaming import StreamLoop
from changelog.capture.start.attempt import Attempt
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.start.roster import Roster
from changelog.capture.state.newcomers import Newcomers
from changelog.capture.write.bulk import BulkWriter
from changelog.capture.write.messages import DdlWriter, MessageLog, MessageWriter
from changelog.capture.write.sequences import SequenceLog
from changelog.capture.write.toast import Toast
from changelog.capture.write.writer import RecordWriter
from changelog.capture.write.written import Written
from changelog.contract.log.form import Output
from changelog.contract.log.topic import ddl_topic, messages_topic, sequences_topic
from changelog.contract.rows.relation import Relation
from changelog.sink.frontier import last_values
from changelog.sink.lost_schemas import lost_schemas
from changelog.source.snapshot.sequences import read_sequences
from changelog.source.snapshot.toast import fetch_columns
from changelog.source.stream.assemble import Assembler
from changelog.source.stream.pgoutput import RelationMessage
from changelog.source.tables.filter import TableFilter


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Joins the parts of one attempt to a loop over its stream."""

    attempt: Attempt
    attempt_start: AttemptStart
    newcomers: Newcomers  # tables that appeared during earlier attempts
    begun_at: float  # when the attempt began, on the monotonic clock

    def loop(self, stream: Stream, waiting: Callable[[], None]) -> StreamLoop:
        """Return the loop over a stream; `waiting` is called while the broker is slow."""
        attempt, environment = self.attempt, self.attempt.environment
        capture, start = self.attempt.settings.capture, self.attempt.start
        written = Written(start.epoch, environment.partitions, start.written)
        writer = RecordWriter(
            log=attempt.producer,
            tables=environment.tables,
            epoch=start.epoch,
            ledger=attempt.ledger,
            written=written,
            toast=Toast(
                partial(fetch_columns, environment.connection), attempt.progress.hold_until
            ),
            dead_keys=partial(environment.dead_keys, attempt.producer, on_wait=waiting),
        )
        frontier_writer = FrontierWriter(attempt, self.attempt_start.written.ends)
        watch = CatalogueWatch(attempt)
        assembler = Assembler(self._resolver(watch), attempt.ledger.deaf_until)
        tasks = TableTasks(
            attempt,
            watch,
            self.attempt_start.tasks,
            start_lsn=self.attempt_start.start_lsn,
            stopping=self.attempt_start.stopping,
        )
        backfill = Backfill(
            attempt, tasks, writer, lose_count=frontier_writer.lose_count, keep_alive=waiting
        )
        bulk = BulkWriter(
            assembler=assembler,
            writer=writer,
            producer=attempt.producer,
            failpoint=attempt.context.failpoint,
        )
        messages, ddl = self._message_writers(written)
        start_s = time.monotonic() - self.begun_at
        roster = Roster(environment, tasks, self.newcomers, start_s=start_s)
        signals = Signals(attempt, tasks.request)
        place = StreamPlace()
        frontiers = Frontiers(
            attempt=attempt,
            stream=stream,
            place=place,
            writer=frontier_writer,
            watch=watch,
            roster=roster,
            backfill=backfill,
            sequences=self._sequences(),
            signals=signals,
        )
        pause = StreamPause(
            attempt=attempt, stream=stream, signals=signals, frontiers=frontiers, backfill=backfill
        )
        schedule = FrontierSchedule(
            attempt=attempt, stream=stream, signals=signals, frontiers=frontiers, pause=pause
        )
        intake = StreamIntake(
            attempt=attempt,
            place=place,
            assembler=assembler,
            writer=writer,
            bulk=bulk,
            messages=messages,
            ddl=ddl,
            names=environment.names,
            backfill=backfill,
            watch=watch,
            signals=signals,
            schedule=schedule,
        )
        schemas = None
        if capture.form.output is Output.AVRO:
            lost = partial(lost_schemas, attempt.settings.registry)
            schemas = SchemaWatch(lost, lambda: environment.tables.registered)
        return StreamLoop(
            attempt=attempt,
            stream=stream,
            intake=intake,
            schedule=schedule,
            roster=roster,
            schemas=schemas,
            backfill=backfill,
            heartbeat=Heartbeat(
                capture.slot, capture.heartbeat_table_s, lambda: environment.writer
            ),
        )

    def _resolver(self, watch: CatalogueWatch) -> Callable[[RelationMessage], Relation | None]:
        """Return the resolver of relations, which checks the order of their columns."""
        environment = self.attempt.environment
        resolver = environment.catalogue.resolver(environment.relations.values())

        def resolve(message: RelationMessage) -> Relation | None:
            relation = resolver(message)
            if relation is not None:
                watch.check_places(relation)
            return relation

        return resolve

    def _sequences(self) -> SequenceLog | None:
        """Return the writer of sequences' values, if the settings want it."""
        environment, capture = self.attempt.environment, self.attempt.settings.capture
        if not capture.sequences:
            return None
        topic = sequences_topic(capture.topic_prefix)
        return SequenceLog(
            log=self.attempt.producer,
            topic=topic,
            epoch=self.attempt.epoch,
            logged=last_values(self.attempt.settings.kafka, environment.frontiers, topic),
            look=partial(
                read_sequences,
                environment.connection,
                TableFilter(capture.tables, capture.exclude),
                environment.names,
            ),
        )

    def _message_writers(self, written: Written) -> tuple[MessageWriter, DdlWriter | None]:
        """Return the writers of the application's messages and, if wanted, of schema changes."""
        environment, capture = self.attempt.environment, self.attempt.settings.capture

        def to(topic: str) -> MessageLog:
            return MessageLog(
                log=self.attempt.producer,
                topic=topic,
                epoch=self.attempt.epoch,
                written=written,
            )

        messages = MessageWriter(to(messages_topic(capture.topic_prefix)), capture.messages)
        topic = ddl_topic(capture.topic_prefix)
        ddl = DdlWriter(to(topic), environment.names) if topic in environment.logs else None
        return messages, ddl
