"""Runs `rebuild-view schedule` once its options are read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from changelog.config import BROKERS, REGISTRY, load_project
from changelog.runtime.edge import stop_on_signals, tell
from views.base.sections import Schedule
from views.runs.scheduled import Scheduled, due_of


def run(project: Path, *, next_times: bool) -> None:
    """Run the schedules of a project until a signal, or say when they are due.

    Args:
        project: its folder.
        next_times: say when each is due, and end.

    Raises:
        ConfigurationError: the settings or a schedule cannot be used.
    """
    loaded = load_project(project, needs=[BROKERS, REGISTRY])
    schedules = due_of(loaded.section(Schedule).root)
    if not next_times:
        Scheduled(project.resolve(), schedules).run_until(stop_on_signals())
        return
    for schedule in schedules:
        when = f"{schedule.times.after(datetime.now(UTC)):%Y-%m-%d %H:%M %Z}"
        tell(f"schedule {schedule.name}: next at {when}: rebuild-view {' '.join(schedule.words)}")
