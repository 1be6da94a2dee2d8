"""Traces and metrics for OpenTelemetry, where its environment variables ask for them.

`OTEL_EXPORTER_OTLP_ENDPOINT` names the collector, or the like for traces or metrics alone. Other
variables are the SDK's (https://opentelemetry.io/docs/specs/otel/protocol/exporter/). Without them
nothing is imported. Metrics are the ones that Prometheus gets, under the same names.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.registry import Collector

log = logging.getLogger("changelog.telemetry")

TRACES, METRICS = "TRACES", "METRICS"
_NAME = "changelog-store"
_INTERVAL_MS = 60_000.0
_LAST_MS = 10_000.0
"""How long the end of a command waits for the collector."""
_tracer: Tracer | None = None
_command: Context | None = None
"""The span of the command: the parent of spans in threads that have no other."""


def is_asked_for(signal: str) -> bool:
    """Tell whether the environment asks for traces or for metrics."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return (
        os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
        and os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") == "otlp"
        and any(map(os.environ.get, names))
    )


def _is_ready(signal: str) -> bool:
    if not is_asked_for(signal):
        return False
    if find_spec("opentelemetry") and find_spec("opentelemetry.exporter"):
        return True
    log.warning("OTEL_EXPORTER_OTLP_ENDPOINT: nothing is sent without changelog-store[otlp]")
    return False


@contextmanager
def traced(program: str) -> Iterator[None]:
    """Send a trace of the block, which runs a command, and of what `span` marks in it.

    `TRACEPARENT` in the environment names the span that it belongs to.
    """
    global _command, _tracer  # noqa: PLW0603 - of this process
    if not _is_ready(TRACES):
        yield
        return
    from opentelemetry.context import get_current  # noqa: PLC0415 - of an extra
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - likewise
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - likewise
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - likewise
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - likewise
        TraceContextTextMapPropagator,
    )

    provider = TracerProvider(resource=_resource())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = provider.get_tracer(_NAME)
    carrier = {"traceparent": os.environ.get("TRACEPARENT", "")}
    parent = TraceContextTextMapPropagator().extract(carrier)
    words = [program, *sys.argv[1:2]] if program == "changelog" else [program]
    try:
        with _tracer.start_as_current_span(" ".join(words), context=parent):
            _command = get_current()
            yield
    finally:
        _command = _tracer = None
        provider.force_flush(int(_LAST_MS))
        provider.shutdown()


def span(name: str, **attributes: str) -> AbstractContextManager[Any]:
    """Return a context whose block is a part of the trace, if there is one."""
    if _tracer is None:
        return nullcontext()
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 - of an extra

    context = None if get_current_span().get_span_context().is_valid else _command
    return _tracer.start_as_current_span(name, context=context, attributes=attributes)


@contextmanager
def exported(collector: Collector) -> Iterator[None]:
    """Send metrics, and the process's own, while the block runs and once more at its end.

    `OTEL_METRIC_EXPORT_INTERVAL` milliseconds are between them.
    """
    if not _is_ready(METRICS):
        yield
        return
    from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 - slow

    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    ended = threading.Event()
    interval_ms = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or _INTERVAL_MS)

    def export() -> None:
        while not ended.wait(interval_ms / 1000):
            _send(registry)
        _send(registry)

    thread = threading.Thread(target=export, name="telemetry", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(2 * _LAST_MS / 1000)


def send(registry: CollectorRegistry) -> None:
    """Send metrics once."""
    if _is_ready(METRICS):
        _send(registry)


def _send(registry: CollectorRegistry) -> None:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - an extra
        OTLPMetricExporter,
    )
    from opentelemetry.sdk.metrics.export import MetricExportResult  # noqa: PLC0415 - likewise

    exporter = OTLPMetricExporter()
    try:
        result = exporter.export(_metrics(registry.collect()), timeout_millis=_LAST_MS)
        if result is not MetricExportResult.SUCCESS:
            log.warning("the collector of OpenTelemetry did not take the metrics")
    finally:
        exporter.shutdown()


def _resource() -> Any:  # noqa: ANN401 - the extra's
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - likewise

    name = os.environ.get("OTEL_SERVICE_NAME", _NAME)
    return Resource.create({"service.name": name})


def _metrics(families: Iterable[Metric]) -> MetricsData:
    """Return metrics of Prometheus in the form of OTLP: counters are sums, all else gauges."""
    from opentelemetry.sdk.metrics import export as otlp  # noqa: PLC0415 - of an extra
    from opentelemetry.sdk.util.instrumentation import (  # noqa: PLC0415 - likewise
        InstrumentationScope,
    )

    now = time.time_ns()
    metrics = []
    for family in families:
        points = [
            otlp.NumberDataPoint(dict(sample.labels), 0, now, float(sample.value))
            for sample in family.samples
            if not sample.name.endswith("_created")
        ]
        data: otlp.Sum | otlp.Gauge = otlp.Gauge(points)
        if family.type == "counter":
            data = otlp.Sum(points, otlp.AggregationTemporality.CUMULATIVE, is_monotonic=True)
        metrics.append(otlp.Metric(family.name, family.documentation, "", data))
    scope = otlp.ScopeMetrics(InstrumentationScope(_NAME), metrics, "")
    return otlp.MetricsData([otlp.ResourceMetrics(_resource(), [scope], "")])
