"""This machine, as the doctor sees it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from changelog.runtime.findings import Findings, Level
from replay.spark.files import check_writable
from views.operate import doctor
from views.operate.doctor import look_at_machine, look_at_readers


def looked(folder: Path) -> dict[str, tuple[Level, str, str]]:
    findings = Findings()
    look_at_machine(findings, [folder / "not" / "there" / "yet"])
    return {each.check: (each.state, each.text, each.hint) for each in findings.all}


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
    monkeypatch.setattr(doctor, "_java", lambda: None)
    state, said, _ = looked(tmp_path)["memory"]
    assert (state, said) == (Level.NOTE, "1,024 of 8,192 MB free; a rebuild takes 3 to 4 GB")


@pytest.mark.parametrize(("mode", "is_told"), [(0o755, True), (0o750, False), (0o700, False)])
def test_a_warehouse_that_everybody_may_read_is_told(
    mode: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """At its making, and by the doctor: under the usual umask others may."""
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)  # a test's own folder lets nobody in
        warehouse, before = Path(root) / "warehouse", os.umask(0o777 & ~mode)
        try:
            check_writable(str(warehouse))
        finally:
            os.umask(before)
        assert (f"chmod 700 {warehouse}" in caplog.text) is is_told
        findings = Findings()
        look_at_readers(findings, warehouse)
        assert [(each.check, each.state) for each in findings.all] == (
            [("warehouse", Level.NOTE)] if is_told else []
        )
        caplog.clear()
        check_writable(str(warehouse))
        assert caplog.text == "", "once"
