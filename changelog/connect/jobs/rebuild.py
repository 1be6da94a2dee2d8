"""Rebuilds as a connector: `rebuild-view` as a child process, once or by a schedule.

Two runs never work at once: a task belongs to one worker, and `rebuild-view` itself locks its
views.
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
"""Characters of a run's output that are kept: the status of a task is a record on a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCallbacks:
    """The name of a run, the result of the last one, and callbacks that report its progress."""

    run: str  # identifies this run among those of its task
    last: Mapping[str, Any] | None  # the result of the last run; None before the first
    started: Callable[[], None]  # called when it works, or waits for its time
    waits: Callable[[str], None]  # called with the reason why it waits; empty once it continues
    # called with the result of a run, and the error by which it failed, empty if it did not
    ended: Callable[[Mapping[str, Any], str], None]


def run_rebuild(
    projects: Path | None, job: RebuildJob, stop: threading.Event, callbacks: RunCallbacks
) -> None:
    """Rebuild once, or at each time of the schedule until stopped.

    Raises ChildError: the only run failed; ConfigurationError: the project does not exist, or the
    worker may rebuild none.
    """
    folder = _folder(projects, job.project)
    callbacks.started()
    if not job.cron:
        _once(folder, job, stop, callbacks)
        stop.wait()
        return
    schedule = CronSchedule(job.cron, zone="UTC", where="schedule")
    while not _stopped_before(schedule.after(datetime.now(UTC)), stop):
        ended = _rebuilt(folder, job, stop)
        if not ended.stopped:
            callbacks.ended(_result(callbacks.run, ended), _why(ended))


def _once(folder: Path, job: RebuildJob, stop: threading.Event, callbacks: RunCallbacks) -> None:
    """Rebuild, unless an earlier worker has done this run: then its result still holds."""
    result = callbacks.last
    if result is None or result.get("run") != callbacks.run:
        ended = _rebuilt(folder, job, stop)
        if ended.stopped:
            return
        result = _result(callbacks.run, ended)
        callbacks.ended(result, _why(ended))
    if result["code"]:
        raise ChildError(str(result["error"]), hint="remove the cause and restart the task")


def _rebuilt(folder: Path, job: RebuildJob, stop: threading.Event) -> ExitResult:
    words = ["rebuild-view", *job.words, "--project", str(folder), "--json"]
    return run_child(words, {}, stop, name=job.name, folder=folder, started=lambda: None)


def _stopped_before(moment: datetime, stop: threading.Event) -> bool:
    remaining_s = (moment - datetime.now(UTC)).total_seconds()
    return stop.wait(max(0.0, remaining_s))


def _result(run: str, ended: ExitResult) -> dict[str, Any]:
    """Return the result of a run for the task's status: the exit code and each view's result."""
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
            "this worker may rebuild no views, because they are programs",
            hint="changelog serve --projects FOLDER allows the projects in a folder",
        )
    root = projects.resolve()
    folder = (root / project).resolve()
    if not folder.is_relative_to(root) or not folder.is_dir():
        raise ConfigurationError(f"there is no project {project} in the workers' --projects")
    return folder
