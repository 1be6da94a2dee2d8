"""A connector's task in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from changelog.connect.rules.settings import SinkConnectorSettings
from changelog.connect.task import TaskShare, run_task
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ChangelogError

_END_S = 120


@contextmanager
def running_task(
    kafka: KafkaConnection,
    settings: SinkConnectorSettings,
    registry: RegistryConnection | None = None,
) -> Iterator[list[ChangelogError]]:
    """Run a task alone while the block runs; what has ended it is in the list that comes out."""
    stop, ended = threading.Event(), []

    def work() -> None:
        try:
            run_task(kafka, settings, TaskShare(0, 1), stop, registry=registry)
        except ChangelogError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join(_END_S)
        assert not thread.is_alive()
