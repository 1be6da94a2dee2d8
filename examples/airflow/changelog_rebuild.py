"""Airflow: reprocess every view each night, one task a view, so that each is tried again by itself.

Copy this file to Airflow's folder of DAGs. `rebuild-view` has to be on the PATH where tasks run.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator, dag
from airflow.sdk.exceptions import AirflowFailException

PROJECT = os.environ.get("CHANGELOG_PROJECT", "/srv/shop")
VIEWS = os.environ.get("CHANGELOG_VIEWS", "order_search customer_totals").split()
OPTIONS = os.environ.get("CHANGELOG_OPTIONS", "--from start --verify full --wait 3600")
LASTING = {2: "settings", 3: "refuted", 4: "the log can no longer give it"}
"""Exit codes that another try does not mend."""


class RebuildViewOperator(BaseOperator):
    """Rebuild, prove and publish a view; other tasks pull the JSON object of its result."""

    template_fields: Sequence[str] = ("view", "project", "options")

    def __init__(
        self,
        *,
        view: str,
        project: str = PROJECT,
        options: str = OPTIONS,
        **of_task: Any,  # noqa: ANN401 - as Airflow has them
    ) -> None:
        """Take a view's name, the project's folder and further options of `rebuild-view`."""
        super().__init__(**of_task)
        self.view, self.project, self.options = view, project, options

    def execute(self, context: object) -> dict[str, Any]:  # noqa: ARG002
        """Run the command, whose standard error is the task's log."""
        words = ["rebuild-view", self.view, "--project", self.project, *shlex.split(self.options)]
        ran = subprocess.run([*words, "--json"], stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - no shell reads them
        if ran.returncode in LASTING:
            raise AirflowFailException(f"{self.view}: {LASTING[ran.returncode]}, see the log above")
        if ran.returncode:
            raise RuntimeError(f"{self.view}: ended with {ran.returncode}")
        result: dict[str, Any] = json.loads(ran.stdout)
        return result


@dag(
    schedule="0 3 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["changelog"],
)
def changelog_rebuild() -> None:
    """Rebuild each view from topic start."""
    for view in VIEWS:
        RebuildViewOperator(
            task_id=f"rebuild_{view}",
            view=view,
            retries=3,
            retry_delay=timedelta(minutes=10),
            execution_timeout=timedelta(hours=4),
        )


changelog_rebuild()
