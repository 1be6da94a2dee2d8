"""Files of `examples/`: each read by what would read it, each command one that exists."""

from __future__ import annotations

import ast
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import typer
import yaml

from changelog.runtime.cron import CronSchedule
from tests.support.example_files import (
    CHART,
    CONTAINER,
    DAG,
    TIMERS,
    UNITS,
    crontab,
    started_by,
    unit,
)
from tests.support.page_lines import block_of
from views.project.sql import parse_sql_view

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


def helm(*words: str, code: int = 0) -> str:
    command = [str(Path(sys.executable).parent / "helm"), *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


def rendered(*settings: str) -> dict[str, dict]:
    """Render the chart; returns its documents by kind and the end of their names."""
    words = [word for setting in settings for word in ("--set-json", setting)]
    texts = yaml.safe_load_all(helm("template", "shop", str(CHART), *words))
    return {
        f"{text['kind']} {text['metadata']['name'].removeprefix('shop-changelog-store')}": text
        for text in texts
    }


def pod_of(document: dict) -> dict:
    spec = document["spec"]
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    pod: dict = spec["template"]["spec"]
    return pod


STARTED = ("StatefulSet", "Deployment", "CronJob")


def test_the_chart_renders_what_kubernetes_takes() -> None:
    helm("lint", "--strict", str(CHART))
    whole = rendered("serve.enabled=true", 'project.views={"a.sql": "-- key: id\\nSELECT 1"}')
    assert sorted(whole) == [
        "ConfigMap -project", "ConfigMap -views", "CronJob -rebuild-nightly", "Deployment -serve",
        "PersistentVolumeClaim ", "PodDisruptionBudget -capture", "PodDisruptionBudget -serve",
        "Service -capture", "Service -serve", "StatefulSet -capture", "StatefulSet -follow-all",
    ]  # fmt: skip
    for document in whole.values():
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    broken = whole["CronJob -rebuild-nightly"]
    broken["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"][0]["action"] = 7
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def test_the_pods_of_the_chart_start_commands_that_exist_and_may_do_little() -> None:
    whole = rendered("serve.enabled=true")
    pods = {name: pod_of(document) for name, document in whole.items() if name.startswith(STARTED)}
    assert len(pods) == 4
    for name, pod in pods.items():
        (container,) = pod["containers"]
        check(container["command"])
        assert container["envFrom"] == [{"secretRef": {"name": "changelog-secrets"}}], name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        assert pod["securityContext"]["runAsUser"] == 10001, "the user of the container file"
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}, name
    assert whole["StatefulSet -capture"]["spec"]["replicas"] == 1
    job = whole["CronJob -rebuild-nightly"]["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    (rule,) = job["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    names = [container["name"] for container in pods["CronJob -rebuild-nightly"]["containers"]]
    assert [rule["onExitCodes"]["containerName"]] == names
    for service in ("capture", "serve"):
        selected = whole[f"Service -{service}"]["spec"]["selector"]
        kind = "StatefulSet" if service == "capture" else "Deployment"
        labels = whole[f"{kind} -{service}"]["spec"]["template"]["metadata"]["labels"]
        assert selected.items() <= labels.items()
        ports = pods[f"{kind} -{service}"]["containers"][0]["ports"]
        assert whole[f"Service -{service}"]["spec"]["ports"][0]["targetPort"] == ports[0]["name"]


def test_the_values_on_the_page_make_a_project(tmp_path: Path) -> None:
    values = tmp_path / "shop.yaml"
    page = Path(__file__).parents[2] / "docs" / "kubernetes.md"
    values.write_text(block_of(page, "yaml", "image:").text, encoding="utf-8")
    texts = yaml.safe_load_all(helm("template", "shop", str(CHART), "--values", str(values)))
    data = {text["metadata"]["name"]: text["data"] for text in texts if text["kind"] == "ConfigMap"}
    settings = tomllib.loads(data["shop-changelog-store-project"]["changelog.toml"])
    assert settings["rebuild"] == {"warehouse": "s3://lake/warehouse"}
    for name, text in data["shop-changelog-store-views"].items():
        assert parse_sql_view("order_totals", Path(name), text).key == ("customer",)


def test_values_that_mean_nothing_are_refused_by_name() -> None:
    for setting, named in {
        "capture.replicas=2": "replicas",
        "followers=[{}]": "name",
        'project.views={"../a.sql": ""}': "../a.sql",
    }.items():
        told = helm("template", "shop", str(CHART), "--set-json", setting, code=1)
        assert named in told, told


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
