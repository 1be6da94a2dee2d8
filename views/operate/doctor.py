"""`changelog doctor`: everything looked at, and for each problem what mends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from changelog.config import BROKERS, SOURCE, Project, load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.findings import Findings, Level
from replay.base.sections import warehouse_of
from views.operate.asked import Answer, ask, note_capture, note_check, note_topics
from views.operate.locks import look_at_locks
from views.operate.machine import look_at_machine
from views.operate.served import look_at_views

COMMANDS: Mapping[str, Sequence[str]] = {
    "check": ("capture", "--check"),
    "status": ("status",),
    "topics": ("topics",),
}


def examine(
    folder: Path,
    *,
    asking: Callable[[Path, Mapping[str, Sequence[str]]], Mapping[str, Answer]] = ask,
) -> Findings:
    """Look at the machine, the settings, the source, the log and the views; makes nothing.

    Args:
        folder: of the project.
        asking: asks other commands.
    """
    findings = Findings()
    project = findings.ask("settings", lambda: load_project(folder, needs=[]))
    folders = [folder.resolve()]
    if project is not None:
        warehouse = warehouse_of(project)
        findings.add("settings", Level.OK, f"{folder.resolve()}, warehouse {warehouse}")
        if "://" not in warehouse:
            folders.append(Path(warehouse))
    look_at_machine(findings, folders)
    if project is None:
        return findings
    if not _has_line(project):
        said = "the settings name no PostgreSQL and no brokers: nothing else was looked at"
        error = ConfigurationError(said, hint="changelog init, and changelog stack up")
        findings.refused("settings", error)
        return findings
    answers = asking(folder, COMMANDS)
    note_check(findings, answers["check"], answers["status"])
    note_capture(findings, answers["status"])
    note_topics(findings, answers["topics"])
    if "topics" in answers["topics"].said:  # else the brokers do not answer, which is told
        look_at_locks(findings, project)
    look_at_views(findings, project)
    return findings


def _has_line(project: Project) -> bool:
    """Tell whether the settings say where source and log are."""
    try:
        load_project(project.root, needs=[SOURCE, BROKERS])
    except ConfigurationError:
        return False
    return True
