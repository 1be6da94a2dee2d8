"""One attempt of capture: from connecting to stopping, or to the first failure.

An attempt takes its start from the log and the slot alone, so a restart after a failure and one
after kill -9 are the same thing. `Earlier` holds the few facts that one process hands on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from psycopg2.extras import LogicalReplicationConnection

from changelog.capture.copy.workers import worker_id
from changelog.capture.loop.attempt_start import AttemptStart, AttemptStarter
from changelog.capture.loop.parts import Parts
from changelog.capture.start.attempt import Attempt
from changelog.capture.start.environment import Environment, survey
from changelog.capture.start.outlook import check_log_unmoved, refuse_first
from changelog.capture.start.rights import Agreed, check_agreed
from changelog.capture.start.start_undo import StartUndo
from changelog.capture.state.newcomers import Newcomers
from changelog.capture.state.start_state import Context
from changelog.config import Project
from changelog.contract.base.errors import (
    ChangelogError,
    LogError,
    UnavailableLogError,
)
from changelog.contract.base.lsn import Lsn
from changelog.runtime.failpoints import Failpoint
from changelog.sink.producer import LogProducer
from changelog.source.stream.merged import MergedStream
from changelog.source.stream.pgoutput import PLUGIN_OPTIONS, ROW_OPTIONS
from changelog.source.stream.slot import check_idle, inspect_slots
from changelog.source.stream.stream import ReplicationStream

log = logging.getLogger("changelog.capture")

STOP_S = 10.0
"""How long a stop waits for a slow broker, so that it ends with a frontier."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Facts that one attempt hands on to the next."""

    undo: StartUndo  # the objects that earlier attempts have created
    newcomers: Newcomers = field(default_factory=Newcomers)  # tables that appeared meanwhile
    # topics whose broker refused a record; the next attempt handles and removes them
    refused: dict[str, ChangelogError] = field(default_factory=dict)


@dataclass(slots=True)
class CaptureSession:
    """Runs capture once."""

    settings: Project
    context: Context
    earlier: Earlier
    agreed: Agreed
    # whether source, broker and registry have all answered in this attempt
    connected: bool = field(init=False, default=False)
    _begun_at: float = field(init=False, default_factory=time.monotonic)

    def run(self, until: Lsn | None) -> None:
        """Begin as the log and the slot demand, then stream.

        Raises:
            UnavailableError: a server went away; a new attempt may succeed.
            ChangelogError: anything else.
        """
        with ExitStack() as stack:
            # First, so that a setting unknown to librdkafka is refused before anything is created.
            producer = LogProducer.open(
                self.settings.kafka,
                self.settings.capture.producer,
                transactional_id=self.settings.transactional_id,
            )
            stack.callback(producer.close)
            self.context.report.began(lambda: producer.queued)
            stack.callback(self.context.report.ended)
            environment = stack.enter_context(survey(self.settings, self.earlier.newcomers))
            self.connected = True
            self._take_over(environment, producer)
            slot_standing = refuse_first(environment)
            check_agreed(environment.connection, environment.altered, self.agreed)
            self.earlier.undo.look(environment, slot_standing)
            environment.make()
            self.earlier.undo.identities += environment.give_identity()
            self.context.report.captures(environment.captured())
            starter = AttemptStarter(environment=environment, context=self.context)
            attempt_start = starter.start(slot_standing, stack)
            self.context.failpoint(Failpoint.LOG_READ)
            start = attempt_start.start_state
            attempt = Attempt.begin(environment, self.context, producer, start)
            check_unmoved = partial(check_log_unmoved, environment, slot_standing)
            self._stream(attempt, attempt_start, check_unmoved, until)

    def _take_over(self, environment: Environment, producer: LogProducer) -> None:
        """Fence captures that died or hang, and abort the transactions that they left open.

        Also if this attempt uses no transactions: an earlier one may have, and nobody can read past
        an open transaction.

        Raises SlotBusyError: another capture is alive, and must not be thrown out;
        UnavailableLogError: a transaction of another program is open.
        """
        open_topics = environment.held_back()
        if not producer.is_transactional and not open_topics:
            return
        status = inspect_slots(environment.connection, self.settings.capture.slots)
        if status is not None:
            check_idle(status)
        if producer.is_transactional:
            producer.take_over()
            environment.frontiers.through = producer
        if open_topics:
            log.warning(
                "aborting transactions that a dead capture left open: %s", ", ".join(open_topics)
            )
            self._abort_others()
            environment.await_stable()

    def _abort_others(self) -> None:
        """Abort transactions of earlier attempts and their workers by taking over their ids."""
        kafka, name = self.settings.kafka, self.settings.name_of_transactions
        workers = range(self.settings.capture.snapshot_workers)
        others = [] if self.settings.transactional_id else [name]
        for transactional_id in [*others, *(worker_id(name, number) for number in workers)]:
            with closing(LogProducer.open(kafka, transactional_id=transactional_id)) as producer:
                producer.take_over()

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
                    self.settings.postgres,
                    slot=slot,
                    publication=publication,
                    start_lsn=start_lsn,
                    status_interval=self.settings.capture.status_interval_ms / 1000,
                    connection=connection,
                    # Every slot would send the application's messages, so only one asks for them.
                    options=PLUGIN_OPTIONS if slot == self.settings.capture.slot else ROW_OPTIONS,
                )
            )
            for slot, publication in self.settings.capture.slots.items()
        ]
        return streams[0] if len(streams) == 1 else MergedStream(streams)

    def _stream(
        self,
        attempt: Attempt,
        attempt_start: AttemptStart,
        check_unmoved: Callable[[], None],
        until: Lsn | None,
    ) -> None:
        """Stream until a frontier has passed `until`, or until a stop is requested."""
        environment, producer, start = attempt.environment, attempt.producer, attempt.start
        with ExitStack() as stack:
            stream = self._open(start.lsn, attempt_start.connection, stack)
            check_unmoved()
            waiting = _Waiting(stream.send_status, self.context.stop)
            producer.on_wait = environment.frontiers.on_wait = waiting
            environment.frontiers.connect()
            parts = Parts(
                attempt=attempt,
                attempt_start=attempt_start,
                newcomers=self.earlier.newcomers,
                begun_at=self._begun_at,
            )
            loop = parts.loop(stream, waiting)
            stack.enter_context(loop.backfill)
            for topic, count in attempt_start.written.foreign.items():
                loop.backfill.tasks.overwritten(topic, count, start.lsn)
            for table, error in attempt_start.failing.items():
                loop.backfill.tasks.failed(table, error, start.lsn)
            while self.earlier.refused:
                topic, error = self.earlier.refused.popitem()
                if topic not in environment.topics.values():
                    raise error  # the topic holds no table that could be excluded
                loop.backfill.tasks.failed(environment.table_of(topic), error, start.lsn)
            for table, why in self.earlier.newcomers.began().items():
                named = {"table": str(table)}
                log.error("the table %s is excluded: it %s", table.said, why, extra=named)
            log.info("streaming from %s", start.lsn, extra={"lsn": str(start.lsn)})
            try:
                loop.run(until)
                if until is not None:
                    producer.await_readers()
            except LogError as error:
                if type(error) is LogError:  # a subclass names its own cause; this may hide one
                    environment.refuse_gone(attempt.ledger.absent)
                raise


class _Waiting:
    """Called while the broker is slow: keeps the replication connection alive, and limits a stop.

    A requested stop waits up to `STOP_S` for the broker, so that it can end with a frontier. The
    next start sends again whatever was not acknowledged.
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
