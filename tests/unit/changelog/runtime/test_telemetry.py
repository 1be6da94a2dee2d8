"""Traces and metrics by OTLP, as a collector of OpenTelemetry gets them."""

import logging

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from rich.console import Console

from changelog.runtime import telemetry
from changelog.runtime.telemetry import exported, send, traced
from tests.support.otlp import collector
from views.base.progress import Stages

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def sent(monkeypatch):
    with collector() as (url, requests):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        yield requests


def test_the_stages_of_a_run_are_spans_of_the_trace_that_the_environment_names(sent, monkeypatch):
    monkeypatch.setenv("TRACEPARENT", f"00-{TRACE}-b7ad6b7169203331-01")
    stages = Stages(Console(quiet=True))
    with pytest.raises(ValueError, match="broken"), traced("rebuild-view"):  # noqa: SIM117
        with stages.stage("replay", "reads the log", "orders"):
            raise ValueError("broken")
    spans = sent.spans()
    assert {*spans} == {"rebuild-view", "replay"}
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    assert spans["replay"].parent_span_id == spans["rebuild-view"].span_id
    assert spans["rebuild-view"].parent_span_id.hex() == "b7ad6b7169203331"
    assert {(pair.key, pair.value.string_value) for pair in spans["replay"].attributes} == {
        ("view", "orders")
    }
    assert spans["replay"].status.code == 2  # an error
    with stages.stage("replay", "reads the log"):
        pass
    assert len(sent.traces) == 1  # the trace has ended


def test_metrics_are_those_of_prometheus(sent):
    registry = CollectorRegistry()
    Counter("changelog_rows_total", "Rows.", ["table"], registry=registry).labels("orders").inc(3)
    Gauge("changelog_lag_seconds", "Lag.", registry=registry).set(1.5)
    with exported(registry):
        pass
    points = sent.points()
    assert points["changelog_rows", "orders"] == 3
    assert points["changelog_lag_seconds",] == 1.5
    assert ("process_resident_memory_bytes",) in points
    send(registry)
    assert len(sent.metrics) == 2


@pytest.mark.parametrize("name", ["OTEL_SDK_DISABLED", "OTEL_METRICS_EXPORTER"])
def test_nothing_is_sent_where_it_is_switched_off(sent, monkeypatch, name):
    monkeypatch.setenv(name, "true" if name == "OTEL_SDK_DISABLED" else "none")
    send(CollectorRegistry())
    assert not sent.metrics


def test_without_the_extra_a_warning_says_that_nothing_is_sent(sent, monkeypatch, caplog):
    monkeypatch.setattr(telemetry, "find_spec", lambda _: None)
    with caplog.at_level(logging.WARNING, "changelog"), traced("changelog"):
        pass
    assert "changelog-store[otlp]" in caplog.text
    assert not sent.traces


def test_a_collector_that_is_away_is_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with caplog.at_level(logging.WARNING, "changelog"):
        send(CollectorRegistry())
    assert "did not take the metrics" in caplog.text
