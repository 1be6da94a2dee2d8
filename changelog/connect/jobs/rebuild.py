"""Rebuilds as a connector: `rebuild-view` as a child, once or by a schedule.

Two runs at once are kept apart twice: a task belongs to one worker, and `rebuild-view` itself locks
its views.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from changelog.connect.jobs.children import ChildError, ExitResult, run_child
from changelog.connect.rules.rebuilds import RebuildJob
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted
from changelog.runtime.cron import CronSchedule

_MOST_SHOWN = 200_000
"""Of what a run says, in characters: the state of a task is a record on a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Callbacks by which a run reports its progress."""

    run: str  # names this run among all of its task
    last: Mapping[str, Any] | None  # what the last run told; None before the first
    started: Callable[[], None]  # it is at work, or waits for its time
    waits: Callable[[str], None]  # called with the reason why it waits, empty once it goes on
    # takes the result of a run, and why it failed, empty where it did not
    ended: Callable[[Mapping[str, Any], str], None]


def run_rebuild(
    projects: Path | None, job: RebuildJob, stop: threading.Event, telling: Telling
) -> None:
    """Rebuild once, or at each time of the schedule until stopped.

    Raises ChildError: the one run failed; ConfigurationError: the project is not there, or the
    worker has none.
    """
    folder = _folder(projects, job.project)
    telling.started()
    if not job.cron:
        _once(folder, job, stop, telling)
        stop.wait()
        return
    schedule = CronSchedule(job.cron, zone="UTC", where="schedule")
    while not _stopped_before(schedule.after(datetime.now(UTC)), stop):
        ended = _rebuilt(folder, job, stop)
        if not ended.stopped:
            telling.ended(_result(telling.run, ended), _why(ended))


def _once(folder: Path, job: RebuildJob, stop: threading.Event, telling: Telling) -> None:
    """Rebuild, unless a worker before has done so: then what it told still holds."""
    result = telling.last
    if result is None or result.get("run") != telling.run:
        ended = _rebuilt(folder, job, stop)
        if ended.stopped:
            return
        result = _result(telling.run, ended)
        telling.ended(result, _why(ended))
    if result["code"]:
        raise ChildError(str(result["error"]), hint="mend the cause and restart the task")


def _rebuilt(folder: Path, job: RebuildJob, stop: threading.Event) -> ExitResult:
    words = ["rebuild-view", *job.words, "--project", str(folder), "--json"]
    return run_child(words, {}, stop, name=job.name, folder=folder, started=lambda: None)


def _stopped_before(moment: datetime, stop: threading.Event) -> bool:
    remaining_s = (moment - datetime.now(UTC)).total_seconds()
    return stop.wait(max(0.0, remaining_s))


def _result(run: str, ended: ExitResult) -> dict[str, Any]:
    """Return the task's status of a run: exit code and the result of each view."""
    views = []
    for line in ended.output[:_MOST_SHOWN].splitlines():
        try:
            views.append(json.loads(redacted(line)))
        except ValueError:
            continue
    return {
        "run": run,
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": ended.code,
        "error": _why(ended),
        "views": views,
    }


def _why(ended: ExitResult) -> str:
    return f"rebuild-view ended with code {ended.code}: {ended.error}" if ended.code else ""


def _folder(projects: Path | None, project: str) -> Path:
    if projects is None:
        raise ConfigurationError(
            "this worker rebuilds nothing: a project's views are programs",
            hint="changelog serve --projects FOLDER says whose",
        )
    root = projects.resolve()
    folder = (root / project).resolve()
    if not folder.is_relative_to(root) or not folder.is_dir():
        raise ConfigurationError(f"there is no project {project} below the workers' --projects")
    return folder
