"""The summary of a run for other programs: one JSON object. Pure."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.edge import one_line
from views.rebuild.result.report import ViewResult


def summary(
    results: Sequence[ViewResult],
    error: ChangelogError | None,
    *,
    project: str,
    seconds: float,
    at: datetime | None = None,
) -> dict[str, Any]:
    """Return the summary of a run as plain values.

    Args:
        results: one for each view.
        error: the worst of theirs, None when all is well.
        project: the folder of the project.
        seconds: that the run took.
        at: when it ended, now by default.

    Returns:
        `status` (`done` or `failed`), `exit_code`, `error`, `failed` (names of views), and `views`
        with the objects of `--json` but for their certificates.
    """
    failed = [result.view for result in results if result.error is not None]
    return {
        "status": "done" if error is None else "failed",
        "exit_code": 0 if error is None else error.exit_code,
        "error": None if error is None else one_line(error),
        "failed": failed,
        "at": (at or datetime.now(UTC)).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "host": socket.gethostname(),
        "project": project,
        "views": [
            {name: value for name, value in result.to_json().items() if name != "certificates"}
            for result in results
        ],
    }
