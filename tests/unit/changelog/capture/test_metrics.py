"""Metrics: made of the counts when somebody asks, and readable by Prometheus."""

import socket
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from changelog.capture.inspect.metrics import CaptureMetrics, SourceProbe, serve_metrics
from changelog.capture.state.report import CaptureReport, SnapshotProgress
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import TableName
from tests.support.scrape import samples
from tests.unit.changelog.capture.states import NOW_MS, frontier, slot, source

ODD = TableName("sales", 'or"der\n\\s')
NOW_S = NOW_MS / 1000


def scraped(report, *seen):
    """The metrics of a report, asked for once for each thing that the source says."""
    answers = iter(seen)
    made = CaptureMetrics(report, lambda: next(answers), slot="changelog", now_s=lambda: NOW_S)
    registry = CollectorRegistry()
    registry.register(made)
    found = {}
    for _ in seen:
        found = samples(generate_latest(registry).decode())
    return found


def test_rows_and_bytes_are_counted_by_table_and_operation_whatever_the_table_is_called():
    report = CaptureReport()
    report.snapshot_copied(ODD, 7, 700)
    report.rows[ODD, Op.CREATE] += 3
    report.rows[ODD, Op.UPDATE] += 2
    report.rows[ODD, Op.DELETE] += 1
    report.rows[ODD, Op.TRUNCATE] += 1
    report.errors["UnavailableLogError"] += 4
    report.restarts = 4
    found = scraped(report, None)
    rows = {
        dict(labels)["operation"]: value
        for (name, labels), value in found.items()
        if name == "changelog_rows_total" and dict(labels)["table"] == str(ODD)
    }
    assert rows == {"snapshot": 7, "insert": 3, "update": 2, "delete": 1, "truncate": 1}
    labels = (("operation", "snapshot"), ("table", str(ODD)))
    assert found["changelog_bytes_total", labels] == 700
    assert found["changelog_errors_total", (("kind", "UnavailableLogError"),)] == 4
    assert found["changelog_restarts_total", ()] == 4


def test_the_lag_in_time_uses_what_earlier_answers_saw():
    report = CaptureReport()
    report.frontier_written(Lsn(4000), NOW_MS * 1000 - 3_600_000_000)
    first = source(wal_lsn=Lsn(4000))
    later = source(wal_lsn=Lsn(5000), now_us=first.now_us + 2_000_000)
    found = scraped(report, first, later)
    assert found["changelog_lag_bytes", ()] == 1000
    assert found["changelog_lag_seconds", ()] == 2  # not the hour since the last transaction
    assert scraped(report, later)["changelog_lag_seconds", ()] == 3602


def test_after_a_resume_the_time_of_the_frontier_found_stays_until_a_later_one_is_known():
    report = CaptureReport()
    report.frontier_found(frontier(lsn=4000))
    report.frontier_written(Lsn(4000), 0)  # no transaction since the start
    later = source(wal_lsn=Lsn(5000), now_us=NOW_MS * 1000)
    assert scraped(report, later)["changelog_lag_seconds", ()] == 2


def test_before_the_first_frontier_there_is_a_snapshot_and_no_lag():
    report = CaptureReport()
    report.snapshot = SnapshotProgress(estimate=1000)
    report.snapshot_copied(ODD, 10, 100)
    found = scraped(report, source())
    assert found["changelog_snapshot_running", ()] == 1
    assert found["changelog_snapshot_rows", ()] == 10
    assert found["changelog_snapshot_rows_estimated", ()] == 1000
    assert not {"changelog_lag_bytes", "changelog_frontier_lsn"} & {name for name, _ in found}
    report.ended()
    assert scraped(report, None)["changelog_snapshot_running", ()] == 0


@pytest.mark.parametrize("wal_status", ["reserved", "extended", "unreserved", "lost", None])
def test_the_slot_s_state_is_one_of_all(wal_status):
    seen = source(slot=slot(wal_status=wal_status, safe_bytes=5) if wal_status else None)
    found = scraped(CaptureReport(), seen)
    states = {
        dict(labels)["status"]: value
        for (name, labels), value in found.items()
        if name == "changelog_slot_wal_status"
    }
    assert len(states) == 4
    assert sum(states.values()) == (1 if wal_status else 0)
    assert states.get(wal_status, 1) == 1
    assert found["changelog_slot_active", ()] == (1 if wal_status else 0)
    assert (("changelog_slot_safe_bytes", ()) in found) == bool(wal_status)


def test_every_metric_has_its_unit_in_its_name_and_a_help_text():
    registry = CollectorRegistry()
    report = CaptureReport()
    report.frontier_written(Lsn(1), 1)
    report.snapshot = SnapshotProgress(estimate=1)
    everything = source(slot=slot(safe_bytes=1))
    registry.register(CaptureMetrics(report, lambda: everything, slot="s"))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert len(families) > 15
    for family in families:
        assert family.name.startswith("changelog_")
        assert family.documentation


def test_metrics_are_served_until_the_end_and_then_no_more():
    made = CaptureMetrics(CaptureReport(), lambda: None, slot="s")
    with serve_metrics(made, port=0) as (address, port):
        with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=10) as answer:
            found = samples(answer.read().decode())
        assert found["changelog_source_up", ()] == 0
        assert ("process_resident_memory_bytes", ()) in found
    with socket.socket() as probe:
        assert probe.connect_ex((address, port)) != 0


@pytest.mark.parametrize(
    ("address", "hint"), [("127.0.0.1", "--metrics-port"), ("192.0.2.1", "--metrics-address")]
)
def test_a_port_or_address_that_cannot_be_had_is_said(address, hint):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        made = CaptureMetrics(CaptureReport(), lambda: None, slot="s")
        serving = serve_metrics(made, port=port, address=address)
        with pytest.raises(ConfigurationError, match=f"{address}:{port}") as caught, serving:
            pass
    assert hint in str(caught.value)


def test_a_probe_that_gets_no_answer_says_so_without_an_error():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        dsn = f"postgresql://u:canary@127.0.0.1:{silent.getsockname()[1]}/db"
        assert SourceProbe(dsn, "s")() is None
