"""docs/install.md: completion in the shell that asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.page import script_of
from tests.support.page_lines import block_of

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
