"""The loop over the stream: payloads in, records and frontiers out, acknowledgements back.

One thread does it all in one order: read, decode, write; and at most once an interval, between two
transactions: flush, ask for the end offsets, write the frontier, acknowledge.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from changelog.capture.copy.backfill import Backfill
from changelog.capture.loop.frontiers import Stream
from changelog.capture.loop.heartbeat import Heartbeat
from changelog.capture.loop.intake import StreamIntake
from changelog.capture.loop.schedule import POLL_S, FrontierSchedule, StopInPauseError
from changelog.capture.loop.schema_watch import SchemaWatch
from changelog.capture.start.attempt import Attempt
from changelog.capture.start.environment import Environment
from changelog.capture.start.roster import Roster
from changelog.capture.state.rate import Rate, Throttle, rate_of
from changelog.contract.base.lsn import Lsn
from changelog.source.stream.message import OWN_PREFIX, emit

MOST = 4000
"""Payloads that are taken at once; between two batches come frontiers, heartbeats and stops."""

OWED_NAP_S = 0.05
"""Longest sleep while the rate limit holds writing back; status messages go out in between."""

OPEN_S = 10.0
"""How long a Kafka transaction stays open when no frontier can be written: it blocks readers."""

NUDGE_S = 2.0
"""Silence after which a run with an end to reach writes to the WAL, so that the server sends it."""


@dataclass(kw_only=True, slots=True, eq=False)
class StreamLoop:
    """Runs the stream until it is asked to stop, or a frontier has passed an LSN."""

    attempt: Attempt
    stream: Stream
    intake: StreamIntake
    schedule: FrontierSchedule
    roster: Roster  # looks for tables that appear or disappear
    schemas: SchemaWatch | None  # looks for lost schemas; None if there is no registry
    backfill: Backfill  # copies tables between segments of the stream
    heartbeat: Heartbeat
    _rate: Rate = field(init=False)
    _throttle: Throttle = field(init=False)
    _last_heard: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Start with an unused rate limit."""
        self._rate = rate_of(self.attempt.settings.capture)
        self._throttle = Throttle(self._rate)

    def run(self, until: Lsn | None) -> None:
        """Stream until a stop is requested, or until a frontier has passed `until`.

        Ends with a frontier at the last complete transaction, but for a stop in the middle of a
        large one: the next start reads all of that again.

        Raises SourceError: a signal pauses the stream before `until`; ChangelogError: see
        `CaptureRun`.
        """
        self.schedule.pause.until = until
        try:
            self._stream(until)
        except StopInPauseError:
            return  # a pause is always at a frontier, so none has to be written

    def _stream(self, until: Lsn | None) -> None:
        progress, producer = self.attempt.progress, self.attempt.producer
        self.schedule.pause.hold()
        if until is not None and progress.settle() < until:
            # An idle server may hold back the last bytes of the WAL for seconds.
            _nudge(self.attempt.environment)
        while not self.attempt.context.stop():
            if self._is_over_rate():
                continue
            payloads = self.stream.poll(POLL_S, self._rate.most(MOST))
            records, size = producer.records, producer.bytes
            self.intake.take(payloads)
            self._throttle.spent(producer.records - records, producer.bytes - size)
            producer.poll()
            self.heartbeat.beat()
            self.schedule.advance(idle=not payloads)
            if producer.open_s > OPEN_S:
                producer.commit()  # without a frontier, but readers and the cleaner can go on
            if progress.between_transactions:
                self.roster.step()
                if self.schemas is not None:
                    self.schemas.step(self.attempt.ledger.absent)
                self.backfill.step()
            if until is not None:
                if progress.settle() >= until and not self.backfill.tasks.pending:
                    return
                self._nudge_when_silent(heard=bool(payloads))
        self.schedule.frontiers.write()

    def _is_over_rate(self) -> bool:
        """Sleep a moment if more was written than the rate limit allows; tell whether it did.

        Status messages and frontiers continue meanwhile.
        """
        owed_s = self._throttle.owed_s()
        if not owed_s:
            return False
        time.sleep(min(owed_s, OWED_NAP_S))
        self.stream.send_status()
        self.attempt.producer.poll()
        self.schedule.advance()
        return True

    def _nudge_when_silent(self, *, heard: bool) -> None:
        now = time.monotonic()
        if heard:
            self._last_heard = now
        elif now - self._last_heard > NUDGE_S:
            self._last_heard = now
            _nudge(self.attempt.environment)


def _nudge(environment: Environment) -> None:
    """Write an empty message into the WAL, so that an idle server sends the WAL up to it."""
    if environment.can_write:
        emit(environment.writer, OWN_PREFIX, b"", transactional=True)
