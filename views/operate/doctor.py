"""`changelog doctor`: a look at everything, with the remedy of each problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from changelog.config import BROKERS, SOURCE, Project, load_project
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.runtime.findings import Findings, Level
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.sections import warehouse_of
from views.operate.locks import look_at_locks
from views.operate.machine import look_at_machine, look_at_readers
from views.operate.other_commands import Answer, ask, note_capture, note_check, note_topics
from views.operate.served import Planning, look_at_views, refused_by_plan
from views.project.catalog import catalog_of

Asking = Callable[[Path, Mapping[str, Sequence[str]], Steps], Mapping[str, Answer]]
COMMANDS: Mapping[str, Sequence[str]] = {
    "check": ("capture", "--check"),
    "status": ("status",),
    "topics": ("topics",),
}


def examine(
    folder: Path,
    *,
    asking: Asking = ask,
    plan: Planning = refused_by_plan,
    steps: Steps = UNSEEN,
) -> Findings:
    """Look at the machine, the settings, the source, the log and the views; makes nothing.

    Args:
        folder: of the project.
        asking: asks other commands.
        plan: tells which views cannot be built.
        steps: shows how far it is.
    """
    findings = Findings()
    project = findings.ask("settings", lambda: load_project(folder, needs=[]))
    folders = [folder.resolve()]
    if project is not None:
        warehouse = warehouse_of(project)
        findings.add("settings", Level.OK, f"{folder.resolve()}, warehouse {warehouse}")
        if "://" not in warehouse:
            folders.append(Path(warehouse))
    steps.more(_looks(project))
    steps.begin("this machine")
    look_at_machine(findings, folders)
    for kept in folders[1:]:
        look_at_readers(findings, kept)
    steps.done()
    if project is None:
        return findings
    try:
        load_project(project.root, needs=[SOURCE, BROKERS])
    except ConfigurationError as error:
        error.args = (f"{error.args[0]}; nothing else was looked at",)
        findings.refused("settings", error)
        return findings
    steps.begin("source and log")
    answers = asking(folder, COMMANDS, steps)
    note_check(findings, answers["check"], answers["status"])
    note_capture(findings, answers["status"])
    note_topics(findings, answers["topics"])
    has_log = "topics" in answers["topics"].result  # else the brokers do not answer, which is told
    if has_log:
        steps.begin("locks")
        look_at_locks(findings, project)
    steps.done()
    look_at_views(findings, project, plan=plan if has_log else None, steps=steps)
    return findings


def _looks(project: Project | None) -> int:
    """Return the number of checks: of the machine, each command, locks, each view."""
    if project is None:
        return 1
    views = 0
    with suppress(ChangelogError):  # which is told when it is their turn
        views = len(catalog_of(project).names)
    return 1 + len(COMMANDS) + 1 + views
