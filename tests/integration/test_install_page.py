"""docs/install.md: a wheel built and installed, and completion in the shell that asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.page import script_of
from tests.support.page_lines import block_of
from tests.support.small_machine import may_mount
from tests.support.wheels import as_here, cloned

pytestmark = pytest.mark.matrix
PAGE = Path(__file__).parents[2] / "docs" / "install.md"


def test_completion_is_installed_for_the_shell_that_asks(tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    block = block_of(PAGE, "sh", "changelog --install-completion")
    ran = subprocess.run(
        ["bash"], input=script_of([block]), capture_output=True, text=True, check=False,
        cwd=tmp_path, env=environment, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = ". ./.bashrc && complete -p changelog rebuild-view"
    subprocess.run(["bash", "-c", told], cwd=tmp_path, env=environment, check=True, timeout=60)


def test_a_wheel_is_built_and_installed_in_an_environment_of_its_own(tmp_path):
    venv = tmp_path / "venv"
    block = block_of(PAGE, "sh", "make wheel")
    assert block.text.count("/opt/changelog") == 4
    script = f"set -e\n{as_here(block.text, venv)}"
    environment = {name: text for name, text in os.environ.items() if name != "VIRTUAL_ENV"}

    def bash(text, folder):
        ran = subprocess.run(
            ["bash"], input=text, capture_output=True, text=True, check=False,
            cwd=folder, env=environment, timeout=1_800,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    bash(script, cloned(tmp_path / "repository"))
    away = tmp_path / "away"
    away.mkdir()
    programs = venv / "bin"
    said = bash(f"{programs}/changelog --version && {programs}/rebuild-view --version", away)
    assert said.count("0.1.0") >= 2
    where = (
        "import changelog, changelog.native.choice as n; print(changelog.__file__, n.WHY_PYTHON)"
    )
    assert bash(f'{programs}/python -c "{where}"', away).startswith(str(venv))
    bash(f"{programs}/changelog init shop && {programs}/changelog test --project shop", away)


@pytest.mark.skipif(not may_mount(), reason="no namespaces of mounts here")
def test_a_cache_that_cannot_be_written_is_told_in_one_line():
    """As to a service, for which the machine is read-only."""
    code = "from changelog.stack.download.jre import java_home; java_home()"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # one that others cannot read is not taken for Java
        (Path(folder) / "java").mkdir(mode=0o755)
        mounts = f"mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}"
        ran = subprocess.run(
            ["unshare", "--mount", "sh", "-ec", f"{mounts}; exec {sys.executable} -c '{code}'"],
            env={**os.environ, "CHANGELOG_CACHE": folder},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert "StackError: cannot make Java's folder" in ran.stderr
    assert "changelog stack fetch --spark" in ran.stderr
