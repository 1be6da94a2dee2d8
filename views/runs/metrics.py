"""Metrics of a run for Prometheus: a file for the node exporter's textfile collector, or a gateway.

Times are moments (seconds since 1970), so that an age grows by itself between two runs: alert on
`time() - changelog_view_published_timestamp_seconds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.error import URLError

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    push_to_gateway,
    write_to_textfile,
)

from changelog.contract.base.errors import ChangelogError
from views.generations.history import HistoryRow

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

    Args:
        run: what `views.runs.summary` says of it.
        published: of each view the newest row of the history that says `published`.
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
        """Write them to a file, in one step for its readers.

        Raises:
            ChangelogError: it cannot be written.
        """
        try:
            write_to_textfile(path, self._registry)
        except OSError as error:
            raise ChangelogError(f"cannot write {path}: {error.strerror}") from error

    def push(self, gateway: str) -> None:
        """Send them to a push gateway.

        Raises:
            ChangelogError: it does not answer, or does not take them.
        """
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
