"""This machine, as the doctor sees it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from changelog.runtime.findings import Findings, Level
from views.operate import machine
from views.operate.machine import look_at_machine


def looked(folder: Path) -> dict[str, tuple[Level, str, str]]:
    findings = Findings()
    look_at_machine(findings, [folder / "not" / "there" / "yet"])
    return {each.what: (each.state, each.said, each.hint) for each in findings.all}


def test_a_full_disk_and_a_java_that_does_not_run_are_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    found = looked(tmp_path)
    assert found["disk"][0] is found["Java"][0] is Level.PROBLEM
    assert found["disk"][1].startswith("5 MB free at ")
    assert "unset JAVA_HOME" in found["Java"][2]


def test_little_memory_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=8 << 30, available=1 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(machine, "_java", lambda: None)
    state, said, _ = looked(tmp_path)["memory"]
    assert (state, said) == (Level.NOTE, "1,024 of 8,192 MB free; a rebuild takes 3 to 4 GB")
