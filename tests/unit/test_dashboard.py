"""The dashboard for Grafana: of metrics that are exported."""

import json
import re

from grafana_foundation_sdk.models.dashboard import Dashboard, RowPanel

from scripts import dashboard
from scripts.pages import metrics

EXPORTED = set(re.findall(r"^\| `(changelog_\w+)", metrics(), re.MULTILINE))


def unknown(text: str) -> set[str]:
    return set(re.findall(r"\bchangelog_\w+", text)) - EXPORTED


def test_the_dashboard_is_new_and_grafanas_own_types_read_it() -> None:
    text = dashboard.PLACE.read_text("utf-8")
    assert text == dashboard.written(), "write it anew: make pages"
    board = Dashboard.from_json(json.loads(text))
    rows = [panel.title for panel in board.panels or [] if isinstance(panel, RowPanel)]
    assert rows == [*dashboard.PANELS]


def test_each_query_is_of_metrics_that_are_exported() -> None:
    assert EXPORTED
    assert not unknown(" ".join(dashboard.queries()))
    assert unknown("rate(changelog_row_total[5m])") == {"changelog_row_total"}
