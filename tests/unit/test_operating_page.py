"""The page on operating names all the metrics that exist, and problems as they are said."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from changelog.capture.inspect.metrics import CaptureMetrics
from changelog.capture.state.report import CaptureReport, SnapshotProgress
from changelog.contract.base.lsn import Lsn
from tests.unit.changelog.capture.states import slot, source, status

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")


def exported():
    report = CaptureReport()
    report.frontier_written(Lsn(1), 1)
    report.snapshot = SnapshotProgress(estimate=1)
    everything = source(slot=slot(safe_bytes=1))
    registry = CollectorRegistry()
    registry.register(CaptureMetrics(report, lambda: everything, slot="s"))
    text = generate_latest(registry).decode()
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(text)
    }


def test_the_page_names_each_metric_and_no_other():
    named = set(re.findall(r"(?<!\.)\bchangelog_[a-z_]+", PAGE))  # not `changelog.changelog_signal`
    assert named == exported()


def test_the_page_names_numbers_of_status_that_exist():
    section = PAGE.partition("| number in")[2].partition("##")[0]
    names = re.findall(r"^\| `([a-z_.]+)`", section, re.MULTILINE)
    assert len(names) > 5
    found = status().to_json()
    for name in names:
        value = found
        for part in name.split("."):
            value = value[part]


@pytest.mark.parametrize(
    "changes",
    [
        {"source": source(slot=None)},
        {"source": source(slot=slot(active=False))},
        {"source": source(slot=slot(wal_status="unreserved"))},
        {"source": source(slot=slot(wal_status="lost"))},
        {"frontier": None, "lag_s": None},
    ],
    ids=str,
)
def test_each_problem_has_a_line_that_says_what_to_do(changes):
    (problem,) = status(**changes).problems
    assert f"| {problem.partition(':')[0]} |" in PAGE
