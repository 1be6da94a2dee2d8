"""Write the dashboard of examples/monitoring for Grafana, of the metrics that docs/metrics.md has.

Each panel is one line here; `make pages` writes the JSON, and a test holds it against this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DataSourceRef

PLACE = Path(__file__).parents[1] / "examples" / "monitoring" / "dashboard.json"
_WIDTH, _HEIGHT = 8, 7
_JOB = '{job="$job"}'
PANELS = {
    "Capture": (
        ("Lag", "s", "changelog_lag_seconds{}", "{{instance}}"),
        ("Time since the last frontier", "s", "changelog_frontier_age_seconds{}", "{{instance}}"),
        ("WAL kept for the slot", "bytes", "changelog_slot_retained_bytes{}", "{{instance}}"),
        ("Rows", "cps", "sum by (operation) (rate(changelog_rows_total{}[5m]))", "{{operation}}"),
        ("Bytes", "Bps", "sum by (table) (rate(changelog_bytes_total{}[5m]))", "{{table}}"),
        ("Transactions", "cps", "rate(changelog_transactions_total{}[5m])", "{{instance}}"),
        ("WAL left until the slot is in danger", "bytes", "changelog_slot_safe_bytes{}", "left"),
        ("Errors waited out", "cps", "rate(changelog_errors_total{}[5m])", "{{kind}}"),
        ("Tables that no frontier has", "none", "changelog_table_aside{}", "{{table}}"),
        ("Rows of the snapshot", "none", "changelog_snapshot_rows{}", "copied"),
        ("Records not acknowledged", "none", "changelog_producer_queue_records{}", "{{instance}}"),
        ("Restarts", "none", "increase(changelog_restarts_total{}[15m])", "{{instance}}"),
    ),
    "Views": (
        (
            "Age of what serves",
            "s",
            "time() - changelog_view_frontier_timestamp_seconds",
            "{{view}}",
        ),
        ("Verified (1) or refuted (0)", "none", "changelog_view_verified", "{{view}}"),
        ("Mismatches", "none", "changelog_view_mismatches", "{{view}}"),
        ("Rows", "none", "changelog_view_rows", "{{view}}"),
        ("Time of the last run", "s", "changelog_view_run_seconds", "{{view}}"),
        ("Records read", "none", "changelog_view_records_read", "{{view}}"),
    ),
    "Comparisons": (
        ("Equal (1) or different (0)", "none", "changelog_verify_verified", "{{target}}"),
        ("Keys that differ", "none", "changelog_verify_mismatches", "{{target}}"),
        ("Time of a comparison", "s", "changelog_verify_seconds", "{{target}}"),
    ),
}
"""The panels of each row: title, unit, query with `{}` for the chosen job, and legend."""


def written() -> str:
    """Return the dashboard as JSON."""
    board = (
        dashboard.Dashboard("Changelog")
        .uid("changelog")
        .tags(["changelog", "postgresql", "kafka"])
        .editable()
        .refresh("30s")
        .time("now-6h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
        .with_variable(
            dashboard.TextBoxVariable("job").label("Capture's job").default_value("changelog")
        )
    )
    legend = (
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    numbers = itertools.count(1)
    for row, panels in PANELS.items():
        board = board.with_row(dashboard.Row(row).id(next(numbers)))
        for title, unit, query, name in panels:
            board = board.with_panel(
                timeseries.Panel()
                .id(next(numbers))
                .title(title)
                .unit(unit)
                .min(0)
                .span(_WIDTH)
                .height(_HEIGHT)
                .legend(legend)
                .tooltip(tooltip)
                .datasource(DataSourceRef(type_val="prometheus", uid="$datasource"))
                .with_target(
                    prometheus.Dataquery()
                    .ref_id("A")
                    .expr(query.replace("{}", _JOB))
                    .legend_format(name)
                )
            )
    return str(JSONEncoder(sort_keys=True, indent=1).encode(board.build())) + "\n"


def queries() -> Iterator[str]:
    """Yield the queries of all panels, for the job of a capture that is called `changelog`."""
    for panels in PANELS.values():
        for _, _, query, _ in panels:
            yield query.replace("{}", _JOB.replace("$job", "changelog"))
