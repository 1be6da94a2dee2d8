"""Airflow: reprocess every view each night, one task a view, so that each is tried again by itself.

Copy this file to Airflow's folder of DAGs. `rebuild-view` has to be on the PATH where tasks run.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

PROJECT = os.environ.get("CHANGELOG_PROJECT", "/srv/shop")
VIEWS = os.environ.get("CHANGELOG_VIEWS", "order_search customer_totals").split()
OPTIONS = os.environ.get("CHANGELOG_OPTIONS", "--from start --verify full --wait 3600")
LASTING = {2: "settings", 3: "refuted", 4: "the log can no longer give it"}
"""Exit codes that another try does not mend."""


@dag(
    schedule="0 3 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["changelog"],
)
def changelog_rebuild() -> None:
    """Rebuild, prove and publish each view from topic start."""

    @task(retries=3, retry_delay=timedelta(minutes=10), execution_timeout=timedelta(hours=4))
    def rebuild(view: str) -> None:
        words = ["rebuild-view", view, "--project", PROJECT, *shlex.split(OPTIONS), "--json"]
        code = subprocess.run(words, check=False).returncode  # noqa: S603 - no shell reads them
        if code in LASTING:
            raise AirflowFailException(f"{view}: {LASTING[code]}, see the log above")
        if code:
            raise RuntimeError(f"{view}: ended with {code}")

    for view in VIEWS:
        rebuild.override(task_id=f"rebuild_{view}")(view)


changelog_rebuild()
