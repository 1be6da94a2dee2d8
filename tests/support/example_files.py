"""Files of `examples/` as who runs them reads them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
CRONTAB = EXAMPLES / "cron" / "changelog"
UNITS = tuple(sorted((EXAMPLES / "systemd").glob("*.service")))
TIMERS = tuple(sorted((EXAMPLES / "systemd").glob("*.timer")))
CHART = EXAMPLES / "helm" / "changelog-store"
CONTAINER = EXAMPLES / "container" / "Containerfile"
ALERTS = EXAMPLES / "monitoring" / "alerts.yaml"
ASSETS = EXAMPLES / "dagster" / "assets.py"
DAG = EXAMPLES / "airflow" / "changelog_rebuild.py"


@dataclass(frozen=True)
class CronLine:
    """One line of a system crontab: five fields, the user, the command with cron's own `%`."""

    fields: str
    user: str
    command: str


def crontab() -> tuple[dict[str, str], list[CronLine]]:
    """Return the environment that the crontab sets, and its lines."""
    environment: dict[str, str] = {}
    lines = []
    for line in CRONTAB.read_text("utf-8").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        *fields, user, command = line.split(None, 6) if line[0].isdigit() else (line,) * 7
        if line[0].isdigit():
            lines.append(CronLine(" ".join(fields), user, command))
        else:
            name, _, value = line.partition("=")
            environment[name] = value
    return environment, lines


def unit(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the sections of a unit; a key may stand there several times."""
    found: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            found[section] = []
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[section].append((key, value))
    return found


def started_by(path: Path, environment: dict[str, str]) -> list[str]:
    """Return the words that systemd would start, variables of `Environment=` in place."""
    service = unit(path)["Service"]
    values = {**dict(_set(service)), **environment}
    (line,) = [value for key, value in service if key == "ExecStart"]
    for name, value in values.items():
        line = line.replace("${" + name + "}", value)
    return shlex.split(line)


def installed(venv: Path, project: Path, logs: Path) -> dict[str, Path]:
    """Return the real paths that stand in for the paths in the examples."""
    logs.mkdir(parents=True)
    return {"/opt/changelog": venv, "/srv/shop": project, "/var/log/changelog": logs}


def _set(service: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for key, value in service:
        if key == "Environment":
            name, _, text = value.partition("=")
            yield name, text
