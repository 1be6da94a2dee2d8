"""Runs that begin by themselves, for who has no scheduler: `rebuild-view schedule`.

Each run is a process of its own, so that one that dies takes nothing along. Of one schedule there
is one run at a time: what falls due meanwhile is left out and told, and what fell due while this
process did not run is left out. Runs of different schedules that share a view wait for each other
as `wait_seconds` says.
"""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.cron import CronSchedule
from changelog.runtime.edge import tell
from changelog.runtime.process.ended import wait_or_end
from views.base.sections import Planned

log = logging.getLogger("changelog.views")

_LOOK_S = 0.5
_END_S = 90.0
"""What a run may take to end when it is asked to."""
_OURS = ("--project", "--follow", "--drop", "--list", "--history", "--help", "--version")
"""Options that a schedule cannot have: the project is known, and the others are no runs."""


class Times(Protocol):
    """Says when something is due."""

    def after(self, moment: datetime) -> datetime:
        """Return the first moment that is due after another."""


@dataclass(frozen=True, slots=True)
class Due:
    """One schedule."""

    name: str  # as the project calls it
    times: Times  # when it is due
    words: tuple[str, ...]  # the options of `rebuild-view`


def due_of(planned: Mapping[str, Planned]) -> list[Due]:
    """Read the schedules of a project."""
    if not planned:
        raise ConfigurationError(
            "the project has no schedule",
            hint='in changelog.toml: [schedule.nightly], cron = "0 3 * * *", run = "--all"',
        )
    return [_due(name, schedule) for name, schedule in planned.items()]


def _due(name: str, planned: Planned) -> Due:
    where = f"schedule.{name}"
    schedule = CronSchedule(planned.cron, zone=planned.timezone, where=where)
    try:
        words = tuple(shlex.split(planned.run))
    except ValueError as error:
        raise ConfigurationError(f"{where}: run: {error}") from error
    if not words:
        raise ConfigurationError(f"{where}: run is empty", hint='such as run = "--all"')
    if wrong := [word for word in words if word.partition("=")[0] in _OURS]:
        raise ConfigurationError(f"{where}: run cannot have {wrong[0]}")
    return Due(name, schedule, words)


class Scheduled:
    """Runs of a project, each at its times, until somebody asks to end."""

    def __init__(
        self,
        project: Path,
        schedules: Sequence[Due],
        *,
        command: tuple[str, ...] = (sys.executable, "-m", "views"),
    ) -> None:
        self._project, self._schedules, self._command = project, schedules, command
        self._ends = threading.Event()

    def run_until(self, stop: Callable[[], bool]) -> None:
        """Start what is due until `stop` returns True, then end the runs under way."""
        threads = [
            threading.Thread(target=self._keep, args=[schedule], name=schedule.name)
            for schedule in self._schedules
        ]
        for thread in threads:
            thread.start()
        try:
            while not stop():
                self._ends.wait(_LOOK_S)
        finally:
            self._ends.set()
            for thread in threads:
                thread.join()

    def _keep(self, due: Due) -> None:
        """Run one schedule at its times."""
        moment = due.times.after(datetime.now(UTC))
        tell(f"schedule {due.name}: next at {moment:%Y-%m-%d %H:%M %Z}")
        while not self._ends.wait(max(0.0, (moment - datetime.now(UTC)).total_seconds())):
            self._run(due)
            if due.times.after(moment) <= datetime.now(UTC):
                log.warning("schedule %s: left out once, or more: the run went on", due.name)
            moment = due.times.after(datetime.now(UTC))

    def _run(self, due: Due) -> None:
        log.info("schedule %s: rebuild-view %s", due.name, shlex.join(due.words))
        words = [*self._command, "--project", str(self._project), *due.words]
        killed = partial(log.warning, "schedule %s: is killed, since it does not end", due.name)
        # A session of its own: a signal to the group would reach it twice, which ends it at once.
        with subprocess.Popen(words, start_new_session=True) as process:  # noqa: S603 - our own
            wait_or_end(process, self._ends, end_s=_END_S, killed=killed)
        level = logging.INFO if process.returncode == 0 else logging.WARNING
        log.log(level, "schedule %s: ended with code %d", due.name, process.returncode)
