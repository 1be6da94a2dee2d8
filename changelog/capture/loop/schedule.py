"""The times at which frontiers are written, and the pauses for which the stream stands at one."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from changelog.capture.copy.backfill import Backfill
from changelog.capture.loop.frontiers import Frontiers, Stream
from changelog.capture.loop.signals import Signals
from changelog.capture.start.attempt import Attempt
from changelog.contract.base.errors import SourceError
from changelog.contract.base.lsn import Lsn

log = logging.getLogger("changelog.capture")

POLL_S = 0.2

HELD_SHARE = 1 / 200
"""Of the time, in which frontiers may hold the stream: half of what a 99th percentile sees."""

MOST_INTERVALS = 3

PAUSE_LOOK_S, PAUSE_SAY_S = 0.5, 60.0
"""How often a pause looks for its end, and how often it says that it holds."""


class StopInPauseError(Exception):
    """Capture was asked to stop while a signal held the stream, or had reached its end there."""


@dataclass(kw_only=True, slots=True, eq=False)
class StreamPause:
    """Holds the stream at a frontier while a signal asks for that."""

    attempt: Attempt
    stream: Stream
    signals: Signals
    frontiers: Frontiers
    backfill: Backfill
    until: Lsn | None = None  # the end to reach, if there is one

    def hold(self) -> None:
        """Stay at the frontier while a signal pauses the stream; read messages wait unwritten.

        Raises SourceError: there is an end to reach, which lies behind; StopInPauseError: the
        stream ends here.
        """
        say_at = look_at = 0.0
        while self.signals.paused is not None:
            now = time.monotonic()
            if now >= look_at and not self.signals.holds():
                return
            look_at = now + PAUSE_LOOK_S if now >= look_at else look_at
            if self.attempt.context.stop():
                raise StopInPauseError
            if self.until is not None:
                self._end(self.until)
            if now >= say_at:
                say_at = now + PAUSE_SAY_S
                self._say()
            self.backfill.let_go()
            self.stream.send_status()
            self.attempt.producer.poll()
            if self.frontiers.writer.worthwhile():
                self.frontiers.write()  # the same again, so that it can be read for as long
            time.sleep(POLL_S)

    def _end(self, until: Lsn) -> None:
        """End a run that has an end to reach: well where the frontier has passed it."""
        at = self.attempt.progress.settle()
        if at >= until and not self.backfill.tasks.pending:
            raise StopInPauseError
        raise SourceError(
            f"signal {self.signals.paused} pauses the stream at {at}: {until} is not reached",
            hint="INSERT INTO changelog.changelog_signal (kind) VALUES ('resume')",
        )

    def _say(self) -> None:
        at = self.attempt.progress.settle()
        log.warning(
            'signal %d pauses the stream at %s until a signal "resume"; the slot keeps the WAL '
            "since then, %s bytes now",
            self.signals.paused,
            at,
            f"{self.attempt.environment.current_lsn() - at:,}",
            extra={"lsn": str(at)},
        )


@dataclass(kw_only=True, slots=True, eq=False)
class FrontierSchedule:
    """Has frontiers written at most once an interval, between two transactions."""

    attempt: Attempt
    stream: Stream
    signals: Signals
    frontiers: Frontiers
    pause: StreamPause
    _next_at: float = field(init=False, default_factory=time.monotonic)

    def advance(self, *, idle: bool = False) -> None:
        """Write a frontier when the interval is over and there is news to tell."""
        attempt = self.attempt
        if idle:
            attempt.progress.idle_until(self.stream.server_wal_end)
        now = time.monotonic()
        is_time = now >= self._next_at or self.signals.is_due
        if is_time and self.frontiers.writer.worthwhile():
            self.frontiers.write()
            ended = time.monotonic()
            interval_s = attempt.settings.capture.frontier_interval_ms / 1000
            pause_s = pause_after(ended - now, interval_s)
            if attempt.producer.is_transactional:
                pause_s = interval_s  # without a frontier, nobody sees the changes
            self._next_at = ended + pause_s
            if not self.signals.is_due:  # the frontier stands that tells of a pause
                self.pause.hold()


def pause_after(spent_s: float, interval_s: float) -> float:
    """Return the pause after a frontier that held the stream for `spent_s`.

    The interval, and longer where frontiers would hold the stream for more than their share of the
    time: each change that comes meanwhile waits. No more than `MOST_INTERVALS`, though, since a
    rebuild sees nothing that is newer than the last frontier.
    """
    return min(max(interval_s, spent_s / HELD_SHARE), MOST_INTERVALS * interval_s)
