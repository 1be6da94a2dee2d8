"""The files of docs/examples.md run for real: as cron and systemd do, and by Airflow itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peer_environment import environment_of
from changelog.stack.base.places import cache_dir
from tests.support.captured_project import captured_database
from tests.support.debian import from_debian
from tests.support.example_files import ASSETS, CRONTAB, DAG, crontab, installed
from tests.support.small_machine import Daemon, small_machine
from tests.support.systemd import booted, told_by
from tests.support.wait import wait_until

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


@pytest.mark.matrix
def test_the_crontab_of_the_examples_rebuilds_each_view_once(project, tmp_path) -> None:
    """The night's line, and the one of the morning that finds nothing left to do."""
    environment, lines = crontab()
    environment |= {
        "PATH": environment["PATH"].replace("/opt/changelog/bin", str(BIN)),
        "PROJECT": str(project.root),
        "LOG": str(tmp_path / "rebuild.jsonl"),
        "CHANGELOG_CACHE": str(cache_dir()),
    }
    for line in lines:
        subprocess.run(
            [environment["SHELL"], "-c", line.command],
            env={**NOTHING, **environment}, cwd="/", timeout=300, check=True,
        )  # fmt: skip
    (result,) = [json.loads(each) for each in (tmp_path / "rebuild.jsonl").read_text().splitlines()]
    assert (result["view"], result["verified"], result["published"]) == ("copied", True, True)
    assert len(project.delta("copied")) == 2


def ended_by_cron(folder: Path, text: str, clock: str, binds: dict[str, Path]) -> int:
    """Let cron run a crontab from a moment on; return the code that its first line ends with."""
    program, session = from_debian("cron", "usr/sbin/cron", "etc/pam.d/cron")
    (clocks,) = from_debian("libfaketime", "usr/lib/*/faketime/libfaketime.so.1")
    ended = binds["/srv/shop"] / "ended"
    ended.unlink(missing_ok=True)
    daemon = Daemon(
        command=[str(program), "-f"],
        environment={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TZ": "UTC",
            # cron alone has this clock: it gives commands an environment without.
            "LD_PRELOAD": str(clocks), "FAKETIME": f"@{clock}",
        },
        files={"cron.d/changelog": text, "pam.d/cron": session.read_text("utf-8")},
        binds=binds,
    )  # fmt: skip
    with small_machine(folder, daemon):
        wait_until(ended.exists, 400, f"cron ran its line after {clock}")
    return int(ended.read_text("utf-8"))


@pytest.mark.matrix
def test_cron_itself_rebuilds_at_night_and_finds_nothing_left_in_the_morning(project, tmp_path):
    """The file as it stands in the examples, at its own times."""
    # What the line reads for its passwords also says how the line ended.
    (project.root / "secrets.env").write_text(
        "exec 2>> /srv/shop/errors\n"
        "trap 'echo $? > /srv/shop/ending && mv /srv/shop/ending /srv/shop/ended' EXIT\n",
        encoding="utf-8",
    )
    text = CRONTAB.read_text("utf-8")
    binds = installed(BIN.parent, project.root, tmp_path / "logs")
    errors, results = project.root / "errors", tmp_path / "logs" / "rebuild.jsonl"

    # Twin: without the line that says where the programs are, the shell does not find them.
    lost = "".join(line for line in text.splitlines(True) if not line.startswith("PATH="))
    assert ended_by_cron(tmp_path / "lost", lost, "2026-01-02 02:59:40", binds) == 127
    assert "rebuild-view" in errors.read_text("utf-8")
    assert results.read_text("utf-8") == ""

    code = ended_by_cron(tmp_path / "night", text, "2026-01-02 02:59:40", binds)
    assert code == 0, errors.read_text("utf-8")
    (result,) = [json.loads(each) for each in results.read_text("utf-8").splitlines()]
    assert (result["view"], result["verified"], result["published"]) == ("copied", True, True)

    code = ended_by_cron(tmp_path / "morning", text, "2026-01-02 07:29:40", binds)
    assert code == 0, errors.read_text("utf-8")
    assert len(results.read_text("utf-8").splitlines()) == 1
    assert len(project.delta("copied")) == 2


@pytest.mark.matrix
def test_systemd_itself_runs_the_units(project, tmp_path) -> None:
    """A night that is made up for, a capture and a follower that end when they are asked to."""
    (project.root / "secrets.env").write_text("UNUSED=1\n", encoding="utf-8")
    said, errors = project.root / "said", project.root / "errors"

    def is_done() -> bool:
        state = machine.shown("changelog-rebuild.service", "ActiveState")
        return said.exists() and state == "inactive"

    with booted(tmp_path / "machine", BIN.parent, project.root, days_off=2) as machine:
        machine.run("systemctl", "start", "changelog-rebuild.timer")
        with told_by(errors):
            wait_until(is_done, 400, "the night is made up for")
        assert machine.shown("changelog-rebuild.service", "Result") == "success"
        (result,) = [json.loads(each) for each in said.read_text("utf-8").splitlines()]
        assert (result["view"], result["verified"], result["published"]) == ("copied", True, True)

        going = ("changelog-capture.service", "changelog-follow.service")
        machine.run("systemctl", "start", *going)
        project.execute("INSERT INTO orders VALUES (3, 4)")
        with told_by(errors):
            wait_until(lambda: len(project.delta("copied")) == 3, 400, "the new row is served")
        machine.run("systemctl", "stop", *going)
        assert [machine.shown(each, "Result") for each in going] == ["success", "success"]

        # Twin: what cannot be mended by another try is not tried again.
        settings = project.root / "changelog.toml"
        whole = settings.read_text("utf-8")
        settings.write_text("unknown = 1\n" + whole, encoding="utf-8")
        machine.run("systemctl", "start", "changelog-rebuild.service", code=1)
        settings.write_text(whole, encoding="utf-8")
        assert machine.shown("changelog-rebuild.service", "ExecMainStatus") == "2"
        state = machine.shown("changelog-rebuild.service", "ActiveState")
        assert state == "failed", "no other start is awaited"


@pytest.mark.matrix
def test_airflow_parses_and_runs_the_dag_of_the_examples(project, tmp_path) -> None:
    """Airflow lives in an environment of its own: it wants other versions than we have."""
    commands, home = environment_of(tmp_path / "venv", "apache-airflow>=3.0,<4"), tmp_path / "home"
    (home / "dags").mkdir(parents=True)
    shutil.copy(DAG, home / "dags")
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "CHANGELOG_PROJECT": str(project.root),
        "CHANGELOG_VIEWS": "copied",
        "PATH": f"{commands}:{BIN}:/usr/bin:/bin",
    }

    def airflow(*words: str) -> str:
        ran = subprocess.run(
            [str(commands / "airflow"), *words],
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


@pytest.mark.matrix
def test_dagster_materialises_the_assets_of_the_examples(project, tmp_path) -> None:
    commands, home = environment_of(tmp_path / "venv", "dagster>=1.12,<2"), tmp_path / "home"
    home.mkdir()
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "CHANGELOG_PROJECT": str(project.root),
        "CHANGELOG_VIEWS": "copied",
        "PATH": f"{commands}:{BIN}:/usr/bin:/bin",
    }

    def materialise(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(commands / "dagster"), "asset", "materialize", "--select", "copied", "-f", ASSETS],
            env=environment | more, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    ran = materialise()
    assert ran.returncode == 0, ran.stderr
    assert len(project.delta("copied")) == 2
    ran = materialise(CHANGELOG_OPTIONS="--as-of 0/1")
    assert ran.returncode != 0, "Twin: a run that failed makes no asset"
    assert "the log can no longer give it" in ran.stderr
    assert "STEP_UP_FOR_RETRY" not in ran.stderr, "another try does not mend it"
