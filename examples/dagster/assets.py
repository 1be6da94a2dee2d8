"""Dagster: an asset for each view, materialised by a rebuild that has proved every row.

`dagster dev -f assets.py`. `rebuild-view` has to be on the PATH where runs are executed. What was
refuted, or what the log can no longer give, is not tried again; what failed is, three times.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess

import dagster as dg

PROJECT = os.environ.get("CHANGELOG_PROJECT", "/srv/shop")
VIEWS = os.environ.get("CHANGELOG_VIEWS", "order_search customer_totals").split()
OPTIONS = os.environ.get("CHANGELOG_OPTIONS", "--from start --verify full --wait 3600")
LASTING = {2: "settings", 3: "refuted", 4: "the log can no longer give it"}
"""Exit codes that another try does not mend."""


def asset_of(view: str) -> dg.AssetsDefinition:
    """Return the asset of a view; its metadata is what the run says of the new generation."""

    @dg.asset(
        name=view,
        group_name="changelog",
        kinds={"spark"},
        retry_policy=dg.RetryPolicy(max_retries=3, delay=600),
    )
    def rebuilt() -> dg.MaterializeResult:
        words = ["rebuild-view", view, "--project", PROJECT, *shlex.split(OPTIONS), "--json"]
        ran = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
        if ran.returncode:
            why = LASTING.get(ran.returncode, f"ended with {ran.returncode}")
            raise dg.Failure(f"{view}: {why}", allow_retries=ran.returncode not in LASTING)
        result = json.loads(ran.stdout)
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": result["rows"],
                "generation": result["generation"],
                "lsn": result["frontier"]["lsn"],
                "verified": result["verified"],
            }
        )

    return rebuilt


views = [asset_of(view) for view in VIEWS]
defs = dg.Definitions(
    assets=views,
    jobs=[dg.define_asset_job("changelog_rebuild", views)],
    schedules=[
        dg.ScheduleDefinition(
            name="nightly", job_name="changelog_rebuild", cron_schedule="0 3 * * *"
        )
    ],
)
