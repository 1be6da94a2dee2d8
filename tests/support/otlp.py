"""A collector of OpenTelemetry, as far as a test asks it."""

import gzip
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_listener import Quiet, listening


@dataclass
class Requests:
    """The requests that a collector has got."""

    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)

    def spans(self):
        """Return the spans by their names."""
        return {
            span.name: span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }

    def points(self):
        """Return values by name and labels, of the last request."""
        (resource,) = self.metrics[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {
            (metric.name, *(label.value.string_value for label in point.attributes)): (
                point.as_double or point.as_int
            )
            for metric in scope.metrics
            for point in (*metric.sum.data_points, *metric.gauge.data_points)
        }


@contextmanager
def collector():
    """Run a collector; gives its address and what it gets."""
    requests = Requests()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                requests.traces.append(ExportTraceServiceRequest.FromString(body))
            else:
                requests.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

    with listening(Handler) as url:
        yield url, requests
