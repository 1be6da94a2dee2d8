"""What runs as a task, by the kind of its connector."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from changelog.connect.jobs.capture import run_capture
from changelog.connect.rules.captures import parse_capture
from changelog.connect.rules.kinds import CAPTURE, kind_of
from changelog.connect.rules.settings import parse_settings
from changelog.connect.task import Share, run_task
from changelog.contract.base.connection import KafkaConnection, RegistryConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers of a worker.

    Attributes:
        kafka: the brokers.
        registry: of connectors that name none; None for none.
    """

    kafka: KafkaConnection
    registry: RegistryConnection | None = None


def run_connector(
    servers: Servers,
    config: Mapping[str, str],
    share: Share,
    stop: threading.Event,
    *,
    started: Callable[[], None],
) -> None:
    """Run a task of a connector until stopped.

    Raises:
        ChangelogError: it cannot go on, and waiting would not help; says why.
    """
    kafka, registry = servers.kafka, servers.registry
    if kind_of(config) is CAPTURE:
        run_capture(kafka, registry, parse_capture(config), stop, started=started)
    else:
        settings = parse_settings(config)
        run_task(kafka, settings, share, stop, registry=registry, started=started)
