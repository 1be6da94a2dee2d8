"""Runs that begin by themselves, for who has no scheduler: `rebuild-view schedule`.

Each run is a process of its own, so that one that dies takes nothing along. Of one schedule there
is one run at a time: what falls due meanwhile is left out and said, and so is what fell due while
this process did not run. Runs of different schedules that share a view wait for each other as
`wait_seconds` says.
"""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.edge import tell
from views.base.sections import Planned

log = logging.getLogger("changelog.views")

_LOOK_S = 0.5
_LATE_S = 60
"""A run that begins later than so long after its time, the machine having slept, is left out."""
_END_S = 90.0
"""What a run may take to end when it is asked to."""
_OURS = ("--project", "--follow", "--list", "--history", "--help", "--version")
"""Options that a schedule cannot have: the project is known, and the others are no runs."""


@dataclass(frozen=True, slots=True)
class Due:
    """One schedule.

    Attributes:
        name: as the project calls it.
        trigger: says when it is due.
        words: the options of `rebuild-view`.
    """

    name: str
    trigger: CronTrigger
    words: tuple[str, ...]

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment at which it is due."""
        found: datetime | None = self.trigger.get_next_fire_time(moment, moment)
        return found


def due_of(planned: Mapping[str, Planned]) -> list[Due]:
    """Read the schedules of a project.

    Raises:
        ConfigurationError: there is none, or one cannot be read; it is named.
    """
    if not planned:
        raise ConfigurationError(
            "the project has no schedule",
            hint='in changelog.toml: [schedule.nightly], cron = "0 3 * * *", run = "--all"',
        )
    return [_due(name, each) for name, each in planned.items()]


def _due(name: str, planned: Planned) -> Due:
    where = f"schedule.{name}"
    try:
        trigger = CronTrigger.from_crontab(planned.cron, timezone=planned.timezone)
    except (ValueError, LookupError) as error:
        raise ConfigurationError(
            f'{where}: cron "{planned.cron}", timezone "{planned.timezone}": {error}',
            hint="minute, hour, day, month, day of the week, such as 0 3 * * *; a time zone such "
            "as Europe/Berlin",
        ) from error
    try:
        words = tuple(shlex.split(planned.run))
    except ValueError as error:
        raise ConfigurationError(f"{where}: run: {error}") from error
    if wrong := [word for word in words if word.partition("=")[0] in _OURS]:
        raise ConfigurationError(f"{where}: run cannot have {wrong[0]}")
    return Due(name, trigger, words)


class Scheduled:
    """Runs of a project, each at its times, until somebody asks to end.

    Args:
        project: its folder.
        schedules: what runs when.
        command: what `rebuild-view` is called as.
    """

    def __init__(
        self,
        project: Path,
        schedules: list[Due],
        *,
        command: tuple[str, ...] = (sys.executable, "-m", "views"),
    ) -> None:
        self._project, self._schedules, self._command = project, schedules, command
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._guard = threading.Lock()
        self._ends = False

    def run_until(self, stop: Callable[[], bool]) -> None:
        """Start what is due until `stop` says so, then end what still runs.

        Args:
            stop: tells whether somebody asked to end.
        """
        scheduler = BackgroundScheduler(timezone="UTC")
        scheduler.add_listener(self._left_out, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
        for each in self._schedules:
            scheduler.add_job(
                self._start, each.trigger, args=[each], id=each.name, max_instances=1,
                coalesce=True, misfire_grace_time=_LATE_S,
            )  # fmt: skip
        scheduler.start()
        try:
            self._say_next(scheduler)
            waiting = threading.Event()
            while not stop():
                waiting.wait(_LOOK_S)
        finally:
            self._end()
            scheduler.shutdown()

    def _say_next(self, scheduler: BackgroundScheduler) -> None:
        for job in scheduler.get_jobs():
            tell(f"schedule {job.id}: next at {job.next_run_time:%Y-%m-%d %H:%M %Z}")

    def _start(self, due: Due) -> None:
        with self._guard:
            if self._ends:
                return
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*self._command, "--project", str(self._project), *due.words]
            )
            self._running[due.name] = process
        log.info("schedule %s: rebuild-view %s", due.name, shlex.join(due.words))
        code = process.wait()
        with self._guard:
            del self._running[due.name]
        level = logging.INFO if code == 0 else logging.WARNING
        log.log(level, "schedule %s: ended with code %d", due.name, code)

    def _left_out(self, event: JobEvent) -> None:
        log.warning(
            "schedule %s: left out once: %s", event.job_id,
            "it is too late" if event.code == EVENT_JOB_MISSED else "the run before it goes on",
        )  # fmt: skip

    def _end(self) -> None:
        """Ask what runs to end, as a scheduler would that is asked itself."""
        with self._guard:
            self._ends = True
            running = dict(self._running)
        for process in running.values():
            process.terminate()
        for name, process in running.items():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                log.warning("schedule %s: is killed, since it does not end", name)
                process.kill()
