"""Alerts, and the queries of the dashboard: read and tried by Prometheus' own program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from scripts import dashboard
from tests.support.debian import from_debian
from tests.support.example_files import ALERTS
from tests.support.page_lines import block_of

pytestmark = pytest.mark.matrix
DOCS = Path(__file__).parents[2] / "docs"
RULES = ALERTS.read_text("utf-8")
WELL = {
    "up": "1",
    "changelog_slot_active": "1",
    "changelog_lag_seconds": "2",
    "changelog_frontier_age_seconds": "1",
    "changelog_slot_safe_bytes": "50000000000",
    "changelog_source_wal_lsn": "0+60000",
    'changelog_slot_wal_status{status="lost"}': "0",
    "changelog_restarts_total": "1",
    'changelog_table_aside{table="orders"}': "0",
    # Seconds since 1970, which the hour begins at.
    'changelog_view_published_timestamp_seconds{view="a"}': "0+60",
    'changelog_view_verified{view="a"}': "1",
    "changelog_run_exit_code": "0",
    'changelog_verify_verified{target="b"}': "1",
    'changelog_verify_equal_timestamp_seconds{target="b"}': "0+60",
}
"""Metrics of an hour in which all is well: a value a minute, `+` its growth."""
BADLY = [
    ("CaptureDown", {"up": "0"}),
    ("CaptureDown", {"changelog_slot_active": "0"}),
    ("CaptureBehind", {"changelog_lag_seconds": "90"}),
    ("FrontierOld", {"changelog_frontier_age_seconds": "301"}),
    # A megabyte a second, and three hours of it left.
    (
        "SlotInDanger",
        {"changelog_source_wal_lsn": "0+60000000", "changelog_slot_safe_bytes": "10800000000"},
    ),
    ("SlotInDanger", {'changelog_slot_wal_status{status="lost"}': "1"}),
    ("CaptureRestarts", {"changelog_restarts_total": "0+1"}),
    ("TableLeftOut", {'changelog_table_aside{table="orders"}': "1"}),
    ("ViewOld", {'changelog_view_published_timestamp_seconds{view="a"}': "-200000"}),
    ("ViewRefuted", {'changelog_view_verified{view="a"}': "0"}),
    ("RebuildFailed", {"changelog_run_exit_code": "4"}),
    ("CopyDiffers", {'changelog_verify_verified{target="b"}': "0"}),
    ("CopyNotCompared", {'changelog_verify_equal_timestamp_seconds{target="b"}': "-9000"}),
]
LATE = "time() - changelog_view_published_timestamp_seconds"


def promtool() -> Path:
    """Return the program; skips the test where there is none and none can be had."""
    if found := shutil.which("promtool"):
        return Path(found)
    (program,) = from_debian("prometheus", "usr/bin/promtool")  # 19 MB, for one program of it
    return program


def told(folder, *words, **files):
    """Run promtool on files in a folder; returns exit code and what it says."""
    for name, text in files.items():
        (folder / f"{name}.yml").write_text(text)
    ran = subprocess.run(
        [promtool(), *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    return ran.returncode, ran.stdout + ran.stderr


def series(values):
    for name, value in values.items():
        bare, _, labels = name.partition("{")
        start, _, step = value.partition("+")
        inside = ", ".join(filter(None, ['job="changelog"', labels.rstrip("}")]))
        yield {"series": f"{bare}{{{inside}}}", "values": f"{start}+{step or 0}x60"}


def tried(folder, changed, expected):
    """Try the rules of the page on the hour of a capture: which alerts there are at its end."""
    groups = yaml.safe_load(RULES)["groups"]
    names = {rule["alert"] for group in groups for rule in group["rules"]}
    case = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [*series({**WELL, **changed})],
                "promql_expr_test": [
                    {
                        "expr": "count by (alertname) (ALERTS{alertstate='firing'})",
                        "eval_time": "1h",
                        "exp_samples": [
                            {"labels": f'{{alertname="{each}"}}', "value": 1}
                            for each in sorted(expected)
                        ],
                    }
                ],
            }
        ],
    }
    assert {*expected} <= names
    return told(folder, "test", "rules", "case.yml", rules=RULES, case=yaml.safe_dump(case))


def test_prometheus_takes_the_rules_and_nothing_fires_while_all_is_well(tmp_path):
    code, said = told(tmp_path, "check", "rules", "rules.yml", rules=RULES)
    assert (code, f"{len(BADLY) - 2} rules found" in said) == (0, True), said
    code, said = tried(tmp_path, {}, [])
    assert code == 0, said


@pytest.mark.parametrize(("alert", "changed"), BADLY, ids=lambda each: str(each)[:40])
def test_each_alert_fires_for_its_reason_and_no_other(tmp_path, alert, changed):
    code, said = tried(tmp_path, changed, [alert])
    assert code == 0, said
    code, said = tried(tmp_path, {}, [alert])
    assert code != 0, "the twin: nothing fires, and it is not told"


def test_prometheus_takes_the_queries_of_the_dashboard(tmp_path):
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(dashboard.queries())]
    text = yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]})
    code, said = told(tmp_path, "check", "rules", "rules.yml", rules=text)
    assert (code, f"{len(rules)} rules found" in said) == (0, True), said


def test_prometheus_takes_the_questions_about_views(tmp_path):
    lines = block_of(DOCS / "scheduling.md", "promql", LATE).text.splitlines()
    rules = [{"alert": f"View{n}", "expr": line} for n, line in enumerate(lines)]
    text = yaml.safe_dump({"groups": [{"name": "views", "rules": rules}]})
    code, said = told(tmp_path, "check", "rules", "rules.yml", rules=text)
    assert (code, f"{len(lines)} rules found" in said) == (0, True), said
