"""Completion in shells: what is asked of the programs by the scripts that they print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def completed(program: str, line: str, folder: Path) -> list[str]:
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    ran = subprocess.run(
        [BIN / program],
        env={
            **os.environ,
            variable: "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        },
        capture_output=True, text=True, check=True, timeout=60, cwd=folder,
    )  # fmt: skip
    return ran.stdout.split()


def test_commands_options_and_views_are_completed(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    for name in ("order_search.sql", "order_sizes.py", "order_search.search.json", "routes.sql"):
        (tmp_path / "views" / name).write_text("")
    assert completed("changelog", "changelog te", tmp_path) == ["teardown", "test"]
    assert completed("changelog", "changelog teardown --ke", tmp_path) == ["--keep"]
    assert completed("rebuild-view", "rebuild-view --foll", tmp_path) == ["--follow"]
    assert completed("rebuild-view", "rebuild-view order", tmp_path) == [
        "order_search", "order_sizes",
    ]  # fmt: skip


@pytest.mark.parametrize("program", ["changelog", "rebuild-view"])
def test_each_program_prints_a_script_that_bash_takes(program: str) -> None:
    shown = subprocess.run(
        [BIN / program, "--show-completion", "bash"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    script = f"{shown.stdout}\ncomplete -p {program}"
    ran = subprocess.run(["bash"], input=script, capture_output=True, text=True, timeout=60)  # noqa: PLW1510
    assert ran.returncode == 0, ran.stderr
    assert "_completion" in ran.stdout
