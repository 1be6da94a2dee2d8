"""Files of `examples/`: each read by what would read it, each command one that exists."""

from __future__ import annotations

import ast
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import typer
import yaml

from changelog.runtime.cron import CronSchedule
from tests.support.example_files import (
    CONTAINER,
    DAG,
    MANIFESTS,
    TIMERS,
    UNITS,
    crontab,
    started_by,
    unit,
)

KUBERNETES = "1.33"


def known_options(name: str, words: list[str]) -> set[str]:
    if name == "rebuild-view":
        from views.cli import app

        found = typer.main.get_command(app)
    else:
        from changelog.cli import app as changelog_app

        group = typer.main.get_command(changelog_app)
        found = group.get_command(group.make_context(name, [], resilient_parsing=True), words[0])  # type: ignore[attr-defined]
        assert found is not None, words
    return {option for parameter in found.params for option in parameter.opts}


def check(words: list[str]) -> None:
    """Check that a command and its options exist."""
    name, rest = Path(words[0]).name, words[1:]
    options = {word.partition("=")[0] for word in rest if word.startswith("--")}
    assert name in {"rebuild-view", "changelog"}
    assert options, words
    assert options <= known_options(name, rest), words


def test_the_crontab_has_times_and_commands_that_exist() -> None:
    environment, lines = crontab()
    assert environment["PATH"].split(":")[0] == "/opt/changelog/bin"
    assert len(lines) == 2
    for line in lines:
        CronSchedule(line.fields)
        assert "%" not in line.command, "cron takes it for the end of the line"
        secrets, command = line.command.split("; ")
        assert secrets == '. "$PROJECT/secrets.env"'
        check(shlex.split(command.partition(">>")[0]))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_start_commands_that_exist(path: Path) -> None:
    check(started_by(path, {}))
    service = dict(unit(path)["Service"])
    assert service["User"] == "changelog"
    assert "2" in service["RestartPreventExitStatus"].split()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_has_nothing_to_say_against_the_units(tmp_path: Path) -> None:
    """Commands of a place that is not there are put where there are some."""
    placed = []
    for path in [*UNITS, *TIMERS]:
        text = path.read_text("utf-8").replace(
            "/opt/changelog/bin/", f"{Path(sys.executable).parent}/"
        )
        (tmp_path / path.name).write_text(text, encoding="utf-8")
        placed.append(str(tmp_path / path.name))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *placed],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    ours = [line for line in ran.stderr.splitlines() if "changelog-" in line]
    assert ours == []


def documents() -> list[dict]:
    return list(yaml.safe_load_all(MANIFESTS.read_text("utf-8")))


def test_manifests_are_what_kubernetes_takes() -> None:
    found = documents()
    assert [each["kind"] for each in found] == ["CronJob", "Deployment"]
    for each in found:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    broken = documents()[0]
    broken["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"][0]["action"] = 7
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def test_containers_start_commands_that_exist() -> None:
    job, deployment = documents()
    for template in (
        job["spec"]["jobTemplate"]["spec"]["template"],
        deployment["spec"]["template"],
    ):
        (container,) = template["spec"]["containers"]
        check([*container["command"], *container["args"]])
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_a_linter_has_nothing_to_say_against_the_container_file() -> None:
    """And its twin sees what is wrong with one that runs as root by a tag that moves."""
    hadolint = Path(sys.executable).parent / "hadolint"
    subprocess.run([hadolint, CONTAINER], check=True, timeout=60)
    ran = subprocess.run(
        [hadolint, "-"], input="FROM python:latest\nRUN cd /tmp\n", text=True,
        stdout=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert "DL3007" in ran.stdout


def test_the_container_starts_a_command_that_exists() -> None:
    text = CONTAINER.read_text("utf-8")
    assert 'ENTRYPOINT ["changelog"]' in text
    assert "USER 10001" in text
    from changelog.stack.cli import app

    fetch = typer.main.get_command(app).get_command(None, "fetch")  # type: ignore[attr-defined]
    assert "--spark" in {option for each in fetch.params for option in each.opts}
    assert "changelog stack fetch --spark" in text


def test_the_dag_names_options_that_exist() -> None:
    """Airflow itself parses and runs it in a test of the long matrix."""
    texts = [
        n.value for n in ast.walk(ast.parse(DAG.read_text("utf-8"))) if isinstance(n, ast.Constant)
    ]
    options = next(t for t in texts if isinstance(t, str) and t.startswith("--from start"))
    check(["rebuild-view", "--project", "x", "--json", *shlex.split(options)])
