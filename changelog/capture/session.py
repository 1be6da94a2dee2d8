"""One life of capture: from connecting to stopping, or to the first failure.

Nothing is carried from one life to the next but what stands on the log and in the slot, so a
restart after a failure and a restart after kill -9 are the same thing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack

from changelog.capture.bulk import BulkWriter
from changelog.capture.cut import Cutter
from changelog.capture.ground import Ground, survey
from changelog.capture.messages import MessageWriter
from changelog.capture.seed import Seed, Surroundings, reach_nothing, take_snapshot
from changelog.capture.start import Fresh, Resume, SlotFacts, decide
from changelog.capture.streaming import StreamLoop
from changelog.capture.writer import RecordWriter
from changelog.config import Project
from changelog.contract.errors import UnavailableLogError
from changelog.contract.frontier import Frontier
from changelog.contract.lsn import Lsn
from changelog.contract.topic import messages_topic
from changelog.progress import Progress
from changelog.sink.producer import LogProducer
from changelog.sink.resume import last_positions
from changelog.source.assemble import Assembler
from changelog.source.connect import Connection
from changelog.source.fetch import fetch_columns
from changelog.source.message import OWN_PREFIX, emit
from changelog.source.slot import SlotStatus, check_slot, drop_slot, inspect_slot, keep_slot
from changelog.source.stream import ReplicationStream

log = logging.getLogger("changelog.capture")

STOP_S = 10.0


class CaptureSession:
    """Runs capture once.

    Attributes:
        connected: whether source, broker and registry have all answered in this life.
    """

    def __init__(self, settings: Project, around: Surroundings) -> None:
        self.connected = False
        self._settings = settings
        self._capture = settings.capture
        self._around = around

    def run(self, until: Lsn | None) -> None:
        """Begin as the log and the slot demand, then stream.

        Raises:
            UnavailableError: a server went away; a new life may succeed.
            ChangelogError: anything else.
        """
        with ExitStack() as stack:
            # First: a setting that librdkafka does not know is told before anything is made.
            producer = LogProducer(self._settings.kafka, self._capture.producer)
            stack.callback(producer.close)
            self._around.report.began(lambda: producer.queued)
            stack.callback(self._around.report.ended)
            ground = stack.enter_context(survey(self._settings))
            self.connected = True
            seed = self._begin(ground, producer)
            if seed is not None and not self._around.stop():
                self._stream(ground, producer, seed, until)

    def _begin(self, ground: Ground, producer: LogProducer) -> Seed | None:
        """Bring the log to a first exact cut of this life; None when stopped before that."""
        record = ground.frontiers.last(self._capture.slot)
        status = inspect_slot(ground.connection, self._capture.slot)
        written = last_positions(
            self._settings.kafka,
            ground.frontiers,
            record.frontier if record else None,
            [*ground.topics.values(), *ground.logs],
            ground.logs,
        )
        begin = decide(
            slot_name=self._capture.slot,
            frontier=record.frontier if record else None,
            slot=_facts(status),
            system_id=ground.system.system_id,
            timeline=ground.system.timeline,
            last_epoch=written.last_epoch,
            tables=ground.topics,
        )
        match begin:
            case Fresh(reason=reason, epoch=epoch, drop_slot=drop):
                log.info("%s: taking a snapshot of every table under epoch %d", reason, epoch)
                ground.publish(None)
                if drop:
                    drop_slot(ground.connection, self._capture.slot)
                return self._fresh(ground, producer, epoch)
            case Resume(frontier=frontier, added=added):
                assert status is not None  # noqa: S101 - decide resumes only with a slot
                check_slot(status)
                ground.check_topics(frontier)
                anew = {*added, *ground.rescoped(frontier), *ground.publish(frontier)}
                lsn = str(frontier.lsn)
                log.info("resuming at the frontier %s", lsn, extra={"lsn": lsn})
                if record is not None:
                    self._around.report.frontier_found(record)
                seed = Seed.resumed(frontier, set(ground.topics.values()), written.positions)
                if written.positions:
                    # Values fetched before the crash may come from any moment up to now.
                    seed.hold_until = ground.current_lsn()
                if not anew:
                    return seed
                return take_snapshot(
                    ground,
                    producer,
                    [ground.relations[table] for table in sorted(anew)],
                    seed,
                    self._around,
                )

    def _fresh(self, ground: Ground, producer: LogProducer, epoch: int) -> Seed | None:
        return take_snapshot(
            ground,
            producer,
            list(ground.relations.values()),
            Seed(epoch=epoch, lsn=Lsn(0)),
            self._around,
            before_close=lambda seed, slot: self._keep(ground, producer, seed, slot),
        )

    def _keep(self, ground: Ground, producer: LogProducer, seed: Seed, slot: str) -> None:
        """Write the first frontier, then make the snapshot's slot permanent.

        In this order a crash leaves no slot that the log does not explain: without the permanent
        slot the next start takes a fresh snapshot, with or without this frontier.
        """
        seed.lsn = seed.hold_until
        cutter = self._cutter(ground, producer, seed)
        seed.ts_us = time.time_ns() // 1000
        cutter.cut(seed.lsn, since=seed.since, ts_us=seed.ts_us)
        self._around.report.frontier_written(seed.lsn, seed.ts_us)
        self._around.reach("snapshot frontier written")
        keep_slot(ground.connection, slot, self._capture.slot)
        self._around.reach("slot kept")

    def _cutter(self, ground: Ground, producer: LogProducer, seed: Seed) -> Cutter:
        base = Frontier(
            slot=self._capture.slot,
            epoch=seed.epoch,
            lsn=seed.lsn,
            ts_us=seed.ts_us,
            system_id=ground.system.system_id,
            timeline=ground.system.timeline,
            cluster_id=ground.cluster_id,
            tables={topic: table for table, topic in ground.topics.items()},
            topic_ids=ground.topic_ids,
            scopes={ground.topics[table]: scope for table, scope in ground.scopes.items()},
        )
        return Cutter(
            base=base,
            log=ground.frontiers,
            producer=producer,
            check=ground.check_publication,
            partitions={topic: ground.partitions[topic] for topic in ground.unkeyed},
        )

    def _stream(self, ground: Ground, producer: LogProducer, seed: Seed, until: Lsn | None) -> None:
        progress = Progress(seed.lsn)
        progress.hold_until(seed.hold_until)
        settings = self._settings
        with ReplicationStream(
            settings.postgres,
            slot=self._capture.slot,
            publication=self._capture.publication,
            start_lsn=seed.lsn,
            status_interval=self._capture.status_interval_ms / 1000,
        ) as stream:
            waiting = _Waiting(stream.send_status, self._around.stop)
            producer.on_wait = ground.frontiers.on_wait = waiting
            writer = RecordWriter(
                log=producer,
                tables=ground.tables,
                epoch=seed.epoch,
                since=seed.since,
                partitions=ground.partitions,
                written=seed.written,
                fetch=lambda relation, key, names: fetch_columns(
                    ground.connection, relation, key, names
                ),
                dead_keys=lambda topic, since: ground.dead_keys(producer, topic, since),
                hold_until=progress.hold_until,
            )
            assembler = Assembler(ground.catalogue.resolver(ground.relations.values()))
            reach = self._around.reach
            loop = StreamLoop(
                stream=stream,
                assembler=assembler,
                writer=writer,
                bulk=BulkWriter(
                    assembler=assembler,
                    writer=writer,
                    tables=ground.tables,
                    producer=producer,
                    epoch=seed.epoch,
                    reach=None if reach is reach_nothing else reach,
                ),
                messages=MessageWriter(
                    log=producer,
                    topic=messages_topic(self._capture.topic_prefix),
                    prefixes=self._capture.messages,
                    epoch=seed.epoch,
                    partitions=ground.partitions,
                    written=seed.written,
                ),
                producer=producer,
                progress=progress,
                cutter=self._cutter(ground, producer, seed),
                report=self._around.report,
                interval_s=self._capture.frontier_interval_ms / 1000,
                nudge=lambda: _nudge(ground.connection),
                reach=reach,
            )
            log.info("streaming from %s", seed.lsn, extra={"lsn": str(seed.lsn)})
            loop.run(until, self._around.stop)


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


def _facts(status: SlotStatus | None) -> SlotFacts | None:
    if status is None:
        return None
    return SlotFacts(
        confirmed_flush_lsn=status.confirmed_flush_lsn or Lsn(0),
        lost=status.wal_status == "lost",
    )


def _nudge(connection: Connection) -> None:
    """Write a message into the WAL, so that an idle server has something to send."""
    emit(connection, OWN_PREFIX, b"", transactional=True)
