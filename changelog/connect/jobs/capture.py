"""A capture as a connector: `changelog capture` as a child process, and its slots' positions.

A capture continues where its log ends, and its slot admits one reader. So it may be killed, or
started elsewhere, at any moment.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from changelog.connect.jobs.children import ChildError, run_child
from changelog.connect.rules.addresses import without_libpq
from changelog.connect.rules.captures import CaptureJob
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.source.connect.connect import connect
from changelog.source.stream.slot import inspect_slot

_WORDS = ("changelog", "capture", "--yes", "--log-format", "json")


def run_capture(
    kafka: KafkaConnection,
    registry: RegistryConnection | None,
    job: CaptureJob,
    stop: threading.Event,
    *,
    started: Callable[[], None],
) -> None:
    """Run a capture until stopped.

    Raises ChildError: it ended by itself; the message has its error.
    """
    with tempfile.TemporaryDirectory(prefix="changelog-capture-") as folder:
        ended = run_child(
            [*_WORDS, "--project", folder],
            job.variables(kafka, registry),
            stop,
            name=job.name,
            folder=Path(folder),
            started=started,
            environment=without_libpq(os.environ),
        )
    if not ended.stopped:
        raise ChildError(
            f"capture ended with code {ended.code}: {ended.error or 'without a message'}",
            hint="remove the cause and restart the task",
        )


def capture_offsets(job: CaptureJob) -> list[dict[str, Any]]:
    """Return the position of each existing slot for `GET /connectors/{name}/offsets`.

    Raises UnavailableSourceError: no server answers; ConfigurationError: the server refuses.
    """
    with closing(connect(job.dsn)) as connection:
        statuses = [inspect_slot(connection, name) for name in job.slots]
    return [
        {
            "partition": {"server": job.prefix, "slot": status.name},
            "offset": {"lsn": int(lsn), "lsn_text": str(lsn), "active": status.active},
        }
        for status in statuses
        if status is not None and (lsn := status.confirmed_flush_lsn) is not None
    ]
