"""A capture as a connector: `changelog capture` as a child, and where its slot stands.

The log itself says where a capture goes on, and the slot lets in one reader. So it may be killed,
or be started elsewhere, at any moment.
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
from changelog.connect.rules.addresses import without_ours
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
    """Capture until stopped.

    Raises ChildError: it ended by itself; says why.
    """
    with tempfile.TemporaryDirectory(prefix="changelog-capture-") as folder:
        ended = run_child(
            [*_WORDS, "--project", folder],
            job.variables(kafka, registry),
            stop,
            name=job.name,
            folder=Path(folder),
            started=started,
            environment=without_ours(os.environ),
        )
    if not ended.stopped:
        raise ChildError(
            f"capture ended with code {ended.code}: {ended.error or 'it said nothing'}",
            hint="mend the cause and restart the task",
        )


def capture_offsets(job: CaptureJob) -> list[dict[str, Any]]:
    """Return the position of each existing slot, as `GET /connectors/{name}/offsets` has it.

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
