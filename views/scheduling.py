"""Runs `rebuild-view schedule` once its options are read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from typer import Typer
from typer._click.exceptions import UsageError
from typer.main import get_command

from changelog.config import BROKERS, REGISTRY, load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.edge import stop_on_signals, tell
from views.base.sections import Schedule
from views.runs.scheduled import Due, Scheduled, due_of


def run(project: Path, app: Typer, *, next_times: bool) -> None:
    """Run the schedules of a project until a signal, or say when they are due.

    Raises ConfigurationError: the settings or a schedule cannot be used.
    """
    loaded = load_project(project, needs=[BROKERS, REGISTRY])
    schedules = due_of(loaded.section(Schedule).root)
    for schedule in schedules:
        _check(schedule, app)
    if not next_times:
        Scheduled(project.resolve(), schedules).run_until(stop_on_signals())
        return
    for schedule in schedules:
        when = f"{schedule.times.after(datetime.now(UTC)):%Y-%m-%d %H:%M %Z}"
        tell(f"schedule {schedule.name}: next at {when}: rebuild-view {' '.join(schedule.words)}")


def _check(schedule: Due, app: Typer) -> None:
    """Read a schedule's options as the command does that it starts; starts nothing."""
    words = ["--project", ".", *schedule.words]  # without a word it would show its help
    try:
        get_command(app).make_context("rebuild-view", words)
    except UsageError as error:
        message = f"schedule.{schedule.name}: run: {error.format_message()}"
        raise ConfigurationError(message) from None
