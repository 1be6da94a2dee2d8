"""`changelog doctor`: a look at everything, with the remedy of each problem."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from changelog.config import BROKERS, SOURCE, Project, load_project
from changelog.contract.base.errors import ChangelogError, ConfigurationError, StackError
from changelog.contract.log.topic import locks_topic
from changelog.native.choice import IS_COMPILED, WHY_PYTHON
from changelog.runtime.findings import Findings, Level
from changelog.runtime.installed.versions import versions
from changelog.runtime.progress.steps import UNSEEN, Steps
from changelog.stack.base.places import is_read_by_all
from changelog.stack.download.jre import java_home
from replay.base.sections import warehouse_of
from views.base.sections import LockOn, Rebuild
from views.generations.history import GenerationHistory
from views.generations.place import FOLDER
from views.leases.decide import Lock, Tenure
from views.leases.leases import described, place_of
from views.leases.topic import LeaseTopic
from views.operate.other_commands import CommandAnswer, ask, note_capture, note_check, note_topics
from views.operate.served import Planning, look_at_views, refused_by_plan
from views.project.catalog import catalog_of

Asking = Callable[[Path, Mapping[str, Sequence[str]], Steps], Mapping[str, CommandAnswer]]
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
    """Look at the machine, the settings, the source, the log and the views; makes nothing."""
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
        _look_at_locks(findings, project)
    steps.done()
    frontier = answers["status"].result.get("frontier")
    look_at_views(
        findings,
        project,
        plan=plan if has_log else None,
        epoch=frontier["epoch"] if isinstance(frontier, dict) else None,
        steps=steps,
    )
    return findings


def _looks(project: Project | None) -> int:
    """Return the number of checks: of the machine, each command, locks, each view."""
    if project is None:
        return 1
    views = 0
    with suppress(ChangelogError):  # which is told when it is their turn
        views = len(catalog_of(project).names)
    return 1 + len(COMMANDS) + 1 + views


_DOES = {"build": "is rebuilt by", "follow": "is followed by", "round": "its readers are moved by"}


def _look_at_locks(findings: Findings, project: Project) -> None:
    """Add the holders of locks of the project's warehouse to the findings; creates nothing."""
    if project.section(Rebuild).lock is LockOn.LOCAL:
        findings.add("locks", Level.OK, "hold in the project's folder alone (rebuild.lock)")
        return
    tenures = findings.ask("locks", lambda: _held(project))
    if tenures is None:
        return
    for name, tenure in tenures:
        _, view, kind = name.split("/")
        subject = f"view {view} {_DOES[kind]}" if view else "checkpoints are brought forward by"
        findings.add("locks", Level.OK, f"{subject} {described(tenure)}")
    if not tenures:
        findings.add("locks", Level.OK, f'nobody has one on "{locks_topic(project.topic_prefix)}"')


def _held(project: Project) -> list[tuple[str, Tenure]]:
    """Return the leases of the project's warehouse that are held."""
    warehouse = GenerationHistory(warehouse_of(project)).known_identity()
    if warehouse is None or not LeaseTopic.is_there(
        project.kafka, topic := locks_topic(project.topic_prefix)
    ):
        return []
    locks: dict[str, Lock] = {}
    with LeaseTopic(project.kafka, topic) as leases:
        for placed in leases.read():
            locks[placed.lock] = locks.get(placed.lock, Lock()).then(placed)
    place, now_ms = place_of(project.root / FOLDER), time.time_ns() // 1_000_000
    return [
        (name, lock.tenure)
        for name, lock in sorted(locks.items())
        if name.startswith(f"{warehouse}/")
        and lock.tenure is not None
        and lasts(lock.tenure, place, now_ms)
    ]


def lasts(tenure: Tenure, place: str, now_ms: int) -> bool:
    """Return whether a lock keeps the next run from its view.

    `tenure`: the last one of the lock. `place`: of this project's local locks, where its process
    can be looked for. `now_ms`: by this machine's clock, in place of the brokers'.
    """
    if tenure.is_over or tenure.until_ms < now_ms:
        return False
    if not place or tenure.place != place:
        return True
    try:
        os.kill(tenure.owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    return True


_LEAST_MEMORY = 4 << 30
_LEAST_DISK = 2 << 30
_JAVA_S = 30


def look_at_machine(findings: Findings, folders: Sequence[Path]) -> None:
    """Add this machine's resources to the findings.

    `findings`: gets a line for each thing. `folders`: that are written to; those of one disk count
    once.
    """
    findings.add("version", Level.OK, ", ".join(versions()))
    findings.add("machine", Level.OK, f"{os.cpu_count()} cores, {platform.platform()}")
    memory = psutil.virtual_memory()
    free_memory = f"{memory.available >> 20:,} of {memory.total >> 20:,} MB free"
    if memory.available < _LEAST_MEMORY:
        findings.add("memory", Level.NOTE, f"{free_memory}; a rebuild takes 3 to 4 GB")
    else:
        findings.add("memory", Level.OK, free_memory)
    for place, free in _disks(folders):
        _disk(findings, place, free)
    if IS_COMPILED:
        findings.add("compiled part", Level.OK, "is there")
    else:
        findings.add("compiled part", Level.NOTE, f"several times slower without: {WHY_PYTHON}")
    findings.passes("Java", _java, "runs")


def look_at_readers(findings: Findings, warehouse: Path) -> None:
    """Add who else may read the warehouse."""
    if warehouse.is_dir() and is_read_by_all(warehouse):
        readers = "every user of this machine may read views, checkpoints and history"
        findings.add("warehouse", Level.NOTE, f"{readers}: chmod 700 {warehouse} keeps them out")


def _disks(folders: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    seen: set[int] = set()
    for folder in (*folders, Path(tempfile.gettempdir())):
        place = next(existing for existing in (folder, *folder.parents) if existing.exists())
        if (device := place.stat().st_dev) not in seen:
            seen.add(device)
            yield place, shutil.disk_usage(place).free


def _disk(findings: Findings, place: Path, free: int) -> None:
    free_space = f"{free >> 20:,} MB free at {place}"
    if free >= _LEAST_DISK:
        findings.add("disk", Level.OK, free_space)
        return
    hint = "free space there, or set TMPDIR or [rebuild] warehouse to another disk"
    findings.refused("disk", ChangelogError(free_space, hint=hint))


def _java() -> None:
    """Have Java tell its version."""
    home = Path(os.environ["JAVA_HOME"]) if os.environ.get("JAVA_HOME") else java_home()
    try:
        subprocess.run(  # noqa: S603 - the Java that Spark takes
            [home / "bin" / "java", "-version"], check=True, capture_output=True, timeout=_JAVA_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(
            f"{home}/bin/java does not run: {error}", hint="unset JAVA_HOME: a Java comes along"
        ) from error
