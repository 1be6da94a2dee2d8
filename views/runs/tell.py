"""Report a run: to a command of the user's, a webhook, a file or gateway of metrics.

Whatever of it fails is a warning: it changes nothing of the run, nor of its exit code.
"""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.error import URLError

import httpx
from prometheus_client import (
    CollectorRegistry,
    Gauge,
    push_to_gateway,
    write_to_textfile,
)

from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.secret import redacted
from changelog.runtime.edge import one_line
from changelog.runtime.telemetry import METRICS, is_asked_for, send
from changelog.runtime.webhook import post
from views.base.config import RebuildSettings
from views.base.sections import Runs, Told
from views.generations.history import PUBLISHED, GenerationHistory, HistoryRow
from views.rebuild.result.report import Outcome, ViewResult

log = logging.getLogger("changelog.views")

_COMMAND_S = 60


@contextmanager
def told(views: Sequence[str], settings: RebuildSettings) -> Iterator[Callable[[Outcome], None]]:
    """Report the run in the block to the receivers in the settings, however it ends.

    Yields:
        A function that takes the outcome; a run that could not begin has none.
    """
    begun = time.monotonic()
    outcomes: list[Outcome] = []
    try:
        yield outcomes.append
    except ChangelogError as error:
        failed = (ViewResult(view=name, error=error) for name in views)
        outcomes.append(Outcome(tuple(failed), error))
        raise
    finally:
        if outcomes:
            run = _summary(
                outcomes[-1].results,
                outcomes[-1].error,
                project=str(settings.project.root),
                seconds=time.monotonic() - begun,
            )
            _tell_of(run, settings.runs, settings.warehouse)


def _tell_of(run: Mapping[str, Any], settings: Runs, warehouse: str) -> None:
    """Report a run to the receivers in the settings.

    `run`: what `_summary` says of it. `warehouse`: where the history lies, for the time at which
    each view was last published.
    """
    has_failed = run["status"] == "failed"
    if settings.on_failure and has_failed:
        _warned("on_failure", lambda: _command(settings.on_failure, run))
    if settings.webhook and (has_failed or settings.webhook_on is Told.ALWAYS):
        _warned("the webhook", lambda: post(settings.webhook, run))
    if settings.metrics_file or settings.push_gateway or is_asked_for(METRICS):
        _warned("metrics", lambda: _measured(run, settings, warehouse))


def _warned(receiver: str, tell: Callable[[], None]) -> None:
    try:
        tell()
    except (ChangelogError, OSError, subprocess.SubprocessError, httpx.HTTPError) as error:
        log.warning("%s was not told of the run: %s", receiver, one_line(error))


def _command(command: str, run: Mapping[str, Any]) -> None:
    """Run the user's command, with the object on its standard input."""
    ended = subprocess.run(  # noqa: S602 - a command line of the user's own settings
        command,
        shell=True,
        check=False,
        input=json.dumps(run) + "\n",
        text=True,
        timeout=_COMMAND_S,
        stdout=subprocess.DEVNULL,
    )
    if ended.returncode:
        raise ChangelogError(f"`{redacted(command)}` ended with {ended.returncode}")


def _measured(run: Mapping[str, Any], settings: Runs, warehouse: str) -> None:
    published = {
        row.view: row
        for row in GenerationHistory(warehouse).rows([view["view"] for view in run["views"]])
        if row.state == PUBLISHED
    }
    metrics = RunMetrics(run, published)
    if settings.metrics_file:
        metrics.write(settings.metrics_file)
    if settings.push_gateway:
        metrics.push(settings.push_gateway)
    metrics.send()


def _summary(
    results: Sequence[ViewResult],
    error: ChangelogError | None,
    *,
    project: str,
    seconds: float,
    at: datetime | None = None,
) -> dict[str, Any]:
    """Return the summary of a run as plain values.

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


# Times are moments (seconds since 1970), so that an age grows by itself between two runs: alert
# on `time() - changelog_view_published_timestamp_seconds`.
_JOB = "rebuild-view"
_OF_A_VIEW = (
    ("seconds", "changelog_view_run_seconds", "What the last run took for the view, in seconds."),
    ("rows", "changelog_view_rows", "Rows of what the last run built."),
    ("records_read", "changelog_view_records_read", "Records that the last run read."),
    ("verified", "changelog_view_verified", "1: every compared row was equal; 0: refuted."),
    ("mismatches", "changelog_view_mismatches", "Differences that the last proof found."),
    (
        "exact_until",
        "changelog_view_deadline_timestamp_seconds",
        "Until when the log can give the state that was read.",
    ),
    ("exit_code", "changelog_view_exit_code", "Why the view was not published; 0 when it was."),
)


class RunMetrics:
    """The metrics of one run.

    `run`: what `views.runs.tell` says of it. `published`: of each view the newest row of the
    history that says `published`.
    """

    def __init__(self, run: Mapping[str, Any], published: Mapping[str, HistoryRow]) -> None:
        self._registry = CollectorRegistry()
        self._run(run)
        for name, metric, text in _OF_A_VIEW:
            gauge = Gauge(metric, text, ["view"], registry=self._registry)
            for view in run["views"]:
                value = _value(view, name)
                if value is not None:
                    gauge.labels(view["view"]).set(value)
        self._served(published)

    def _run(self, run: Mapping[str, Any]) -> None:
        for name, text, value in (
            ("seconds", "What the last run took, in seconds.", run["seconds"]),
            ("exit_code", "Exit code of the last run.", run["exit_code"]),
        ):
            Gauge(f"changelog_run_{name}", text, registry=self._registry).set(value)
        ended = Gauge(
            "changelog_run_end_timestamp_seconds", "When it ended.", registry=self._registry
        )
        ended.set_to_current_time()

    def _served(self, published: Mapping[str, HistoryRow]) -> None:
        moments = Gauge(
            "changelog_view_published_timestamp_seconds",
            "When readers got the generation that serves.",
            ["view"],
            registry=self._registry,
        )
        frontiers = Gauge(
            "changelog_view_frontier_timestamp_seconds",
            "The source's time that this generation is true at.",
            ["view"],
            registry=self._registry,
        )
        for view, row in published.items():
            moments.labels(view).set(row.at.timestamp())
            if row.ts is not None:
                frontiers.labels(view).set(row.ts.timestamp())

    def write(self, path: str) -> None:
        """Write them to a file, in one step for its readers."""
        try:
            write_to_textfile(path, self._registry)
        except OSError as error:
            raise ChangelogError(f"cannot write {path}: {error.strerror}") from error

    def send(self) -> None:
        """Send them by OTLP, if the environment asks for it."""
        send(self._registry)

    def push(self, gateway: str) -> None:
        """Send them to a push gateway."""
        try:
            push_to_gateway(gateway, job=_JOB, registry=self._registry, timeout=10)
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ChangelogError(f"the push gateway did not take them: {reason}") from error


def _value(view: Mapping[str, Any], name: str) -> float | None:
    if name == "seconds":
        number = view["seconds"].get("total")
    elif name == "exit_code":
        number = view.get("exit_code", 0)
    elif name == "exact_until":
        number = view[name] and datetime.fromisoformat(view[name]).timestamp()
    else:
        number = view[name]
    return None if number is None else float(number)
