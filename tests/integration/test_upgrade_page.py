"""docs/upgrade.md: an installation of before is upgraded by the page's commands, under systemd."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.captured_project import captured_database
from tests.support.page_lines import block_of
from tests.support.systemd import booted, told_by
from tests.support.wait import wait_until
from tests.support.wheels import as_here, build, cloned, install

pytestmark = pytest.mark.matrix
PAGE = Path(__file__).parents[2] / "docs" / "upgrade.md"
BEFORE = "87a5981e"
"""The commit whose wheel is there: the first one with a lock of what a user runs."""
SERVICES = ("changelog-capture.service", "changelog-follow.service")
ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, amount numeric(8, 2));
INSERT INTO orders VALUES (1, 2.50), (2, 3);
"""


def older(folder: Path, venv: Path) -> None:
    """Install the wheel of a commit of before, under a lower number, which no release has."""
    repository = cloned(folder, BEFORE)
    settings = repository / "pyproject.toml"
    text = settings.read_text("utf-8")
    assert 'version = "0.1.0"' in text
    settings.write_text(text.replace('version = "0.1.0"', 'version = "0.0.9"'), encoding="utf-8")
    build(repository)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=300)
    install(repository, venv)


def test_an_installation_is_upgraded_while_readers_read(stack, tmp_path):
    venv = tmp_path / "venv"
    older(tmp_path / "older", venv)
    newer = cloned(tmp_path / "newer")
    build(newer)
    script = as_here(block_of(PAGE, "sh", "systemctl stop").text, venv)
    with captured_database(stack, tmp_path / "shop", ORDERS, captures=False) as (project, _):
        root, errors = project.root, project.root / "errors"
        project.view("copied.sql", "-- key: id\n-- sinks: delta\nSELECT id, amount FROM orders")
        for name in ("dist", "requirements-run.lock"):
            (root / name).symlink_to(newer / name)

        def serves(rows: int) -> bool:
            is_there = DeltaTable.is_deltatable(str(project.warehouse / "copied"))
            return is_there and len(project.delta("copied")) == rows

        with booted(tmp_path / "machine", venv, root) as machine, told_by(errors):
            machine.run("systemctl", "start", *SERVICES, "changelog-rebuild.timer")
            wait_until(lambda: serves(2), 400, "the older version follows the view")
            assert "0.0.9" in machine.run("/opt/changelog/bin/changelog", "--version")

            said = machine.run(
                "env", f"PATH={venv}/bin:{os.environ['PATH']}",
                "bash", "-c", f"set -e; cd /srv/shop; {script}",
            )  # fmt: skip
            assert "0.1.0" in machine.run("/opt/changelog/bin/changelog", "--version")
            states = [state for _, state in project.history("copied")]
            assert "staged" in states, said
            project.execute("INSERT INTO orders VALUES (3, 4)")
            wait_until(lambda: serves(3), 400, "the newer version follows it")
            assert [machine.shown(each, "ActiveState") for each in SERVICES] == ["active"] * 2
            assert [machine.shown(each, "NRestarts") for each in SERVICES] == ["0", "0"]
            machine.run("systemctl", "stop", *SERVICES)
            assert [machine.shown(each, "Result") for each in SERVICES] == ["success"] * 2
