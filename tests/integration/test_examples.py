"""The files of docs/examples.md run for real: as cron and systemd do, and by Airflow itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.captured_project import captured_database
from tests.support.example_files import DAG, UNITS, crontab, started_by

BIN = Path(sys.executable).parent
NOTHING = {"HOME": "/nonexistent", "LOGNAME": "changelog", "SHELL": "/bin/sh"}
"""What cron and systemd give a command beside what is set for it."""
ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, amount numeric(8, 2));
INSERT INTO orders VALUES (1, 2.50), (2, 3);
"""


@pytest.fixture
def project(stack, tmp_path):
    with captured_database(stack, tmp_path / "project", ORDERS) as (made, _):
        made.view("copied.sql", "-- key: id\n-- sinks: delta\nSELECT id, amount FROM orders")
        (made.root / "secrets.env").write_text("export UNUSED=1\n", encoding="utf-8")
        yield made


def test_the_crontab_of_the_examples_rebuilds_each_view_once(project, tmp_path) -> None:
    """The night's line, and the one of the morning that finds nothing left to do."""
    environment, lines = crontab()
    environment |= {
        "PATH": environment["PATH"].replace("/opt/changelog/bin", str(BIN)),
        "PROJECT": str(project.root),
        "LOG": str(tmp_path / "rebuild.jsonl"),
    }
    for line in lines:
        subprocess.run(
            [environment["SHELL"], "-c", line.command],
            env={**NOTHING, **environment}, cwd="/", timeout=300, check=True,
        )  # fmt: skip
    (result,) = [json.loads(each) for each in (tmp_path / "rebuild.jsonl").read_text().splitlines()]
    assert (result["view"], result["verified"], result["published"]) == ("copied", True, True)
    assert len(project.delta("copied")) == 2


@pytest.mark.matrix
def test_the_unit_of_the_examples_rebuilds_each_view(project) -> None:
    (rebuilds,) = [path for path in UNITS if path.name == "changelog-rebuild.service"]
    first, *words = started_by(rebuilds, {"PROJECT": str(project.root)})
    ran = subprocess.run(
        [str(BIN / Path(first).name), *words],
        env={**NOTHING, "PATH": "/usr/bin:/bin"}, cwd="/", timeout=300, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(ran.stdout)["published"] is True


@pytest.mark.matrix
def test_airflow_parses_and_runs_the_dag_of_the_examples(project, tmp_path) -> None:
    """Airflow lives in an environment of its own: it wants other versions than we have."""
    venv, home = tmp_path / "venv", tmp_path / "airflow"
    uv = str(BIN / "uv")
    subprocess.run([uv, "venv", "--python", sys.executable, str(venv)], check=True, timeout=120)
    subprocess.run(
        [uv, "pip", "install", "--python", str(venv / "bin" / "python"), "apache-airflow>=3.0,<4"],
        check=True, timeout=900,
    )  # fmt: skip
    (home / "dags").mkdir(parents=True)
    shutil.copy(DAG, home / "dags")
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "CHANGELOG_PROJECT": str(project.root),
        "CHANGELOG_VIEWS": "copied",
        "PATH": f"{venv / 'bin'}:{BIN}:/usr/bin:/bin",
    }

    def airflow(*words: str) -> str:
        ran = subprocess.run(
            [str(venv / "bin" / "airflow"), *words],
            env=environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    airflow("db", "migrate")
    airflow("dags", "reserialize")
    assert "changelog_rebuild" in airflow("dags", "list", "--output", "json")
    assert "No data found" in airflow("dags", "list-import-errors")
    airflow("dags", "test", "changelog_rebuild", "2026-01-02")
    assert len(project.delta("copied")) == 2
