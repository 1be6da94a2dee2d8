"""This machine: versions, memory, disks, Java, and whether the compiled part is there."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from changelog.contract.base.errors import ChangelogError, StackError
from changelog.native.choice import IS_COMPILED, WHY_PYTHON
from changelog.runtime.findings import Findings, Level
from changelog.runtime.installed.versions import versions
from changelog.stack.base.places import is_read_by_all
from changelog.stack.download.jre import java_home

_LEAST_MEMORY = 4 << 30
_LEAST_DISK = 2 << 30
_JAVA_S = 30


def look_at_machine(findings: Findings, folders: Sequence[Path]) -> None:
    """Add this machine's resources to the findings.

    Args:
        findings: gets a line for each thing.
        folders: that are written to; those of one disk count once.
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
    """Have Java tell its version.

    Raises:
        StackError: there is none, or it does not run.
    """
    home = Path(os.environ["JAVA_HOME"]) if os.environ.get("JAVA_HOME") else java_home()
    try:
        subprocess.run(  # noqa: S603 - the Java that Spark takes
            [home / "bin" / "java", "-version"], check=True, capture_output=True, timeout=_JAVA_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(
            f"{home}/bin/java does not run: {error}", hint="unset JAVA_HOME: a Java comes along"
        ) from error
