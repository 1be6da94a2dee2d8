"""The times at which frontiers are written, and pauses of the stream at a frontier."""

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
"""Longest wait for payloads; a stop is noticed at least this often."""

HELD_SHARE = 1 / 200
"""Share of the time in which frontiers may hold up the stream: half of 1 %, so that the delay does
not show in the 99th percentile of latencies."""

MOST_INTERVALS = 3
"""Longest pause between two frontiers, in intervals: rebuilds see nothing newer than a frontier."""

PAUSE_LOOK_S, PAUSE_SAY_S = 0.5, 60.0
"""How often a pause looks whether it has ended, and how often it logs that it lasts."""


class StopInPauseError(Exception):
    """A stop was requested, or the end was reached, while a signal paused the stream."""


@dataclass(kw_only=True, slots=True, eq=False)
class StreamPause:
    """Keeps the stream at a frontier while a signal pauses it."""

    attempt: Attempt
    stream: Stream
    signals: Signals
    frontiers: Frontiers
    backfill: Backfill
    until: Lsn | None = None  # the end to reach, if there is one

    def hold(self) -> None:
        """Stay at the frontier while a signal pauses the stream; messages already read wait.

        Raises SourceError: the run has an end that it can no longer reach; StopInPauseError: the
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
                self._end_run(self.until)
            if now >= say_at:
                say_at = now + PAUSE_SAY_S
                self._log_pause()
            self.backfill.let_go()
            self.stream.send_status()
            self.attempt.producer.poll()
            if self.frontiers.writer.worthwhile():
                self.frontiers.write()  # the same frontier again, so that it does not grow old
            time.sleep(POLL_S)

    def _end_run(self, until: Lsn) -> None:
        """End a run that has an end to reach: without an error if a frontier has passed it."""
        at = self.attempt.progress.settle()
        if at >= until and not self.backfill.tasks.pending:
            raise StopInPauseError
        raise SourceError(
            f"signal {self.signals.paused} pauses the stream at {at}: {until} is not reached",
            hint="INSERT INTO changelog.changelog_signal (kind) VALUES ('resume')",
        )

    def _log_pause(self) -> None:
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
    """Writes frontiers at most once an interval, between two transactions."""

    attempt: Attempt
    stream: Stream
    signals: Signals
    frontiers: Frontiers
    pause: StreamPause
    _next_at: float = field(init=False, default_factory=time.monotonic)

    def advance(self, *, idle: bool = False) -> None:
        """Write a frontier if the interval is over and it would differ from the last one."""
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
                pause_s = interval_s  # readers see the changes only once a frontier commits them
            self._next_at = ended + pause_s
            if not self.signals.is_due:  # the frontier that records the pause is on the log
                self.pause.hold()


def pause_after(spent_s: float, interval_s: float) -> float:
    """Return the pause after a frontier that held up the stream for `spent_s`.

    It is the interval, or longer if frontiers took more than their share of the time, because every
    change waits meanwhile; but never longer than `MOST_INTERVALS`.
    """
    return min(max(interval_s, spent_s / HELD_SHARE), MOST_INTERVALS * interval_s)
