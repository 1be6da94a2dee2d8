"""Tasks, by the kind of their connector."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from changelog.connect.jobs.capture import run_capture
from changelog.connect.jobs.rebuild import Telling, run_rebuild
from changelog.connect.rules.captures import parse_capture
from changelog.connect.rules.kinds import CAPTURE, REBUILD, kind_of
from changelog.connect.rules.rebuilds import parse_rebuild
from changelog.connect.rules.settings import parse_settings
from changelog.connect.rules.topics import check_topics
from changelog.connect.task import Share, run_task
from changelog.contract.base.connection import KafkaConnection, RegistryConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers of a worker, and the projects."""

    kafka: KafkaConnection
    group: str  # of the workers that share the tasks
    registry: RegistryConnection | None = None  # of connectors that name none; None for none
    # folder below which the projects are that it may rebuild; None for none
    projects: Path | None = None


def run_connector(
    servers: Servers,
    config: Mapping[str, str],
    share: Share,
    stop: threading.Event,
    telling: Telling,
) -> None:
    """Run a task of a connector until stopped.

    Raises ChangelogError: it cannot go on, and waiting would not help; says why.
    """
    kafka, registry = servers.kafka, servers.registry
    if kind_of(config) is CAPTURE:
        run_capture(kafka, registry, parse_capture(config), stop, started=telling.started)
    elif kind_of(config) is REBUILD:
        run_rebuild(servers.projects, parse_rebuild(config), stop, telling)
    else:
        settings = parse_settings(config)
        check_topics(settings, servers.group)
        run_task(
            kafka,
            settings,
            share,
            stop,
            registry=registry,
            started=telling.started,
            waits=telling.waits,
        )
