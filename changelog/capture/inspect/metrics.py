"""Metrics of a running capture, for Prometheus.

They are made when somebody asks, of the counts that capture keeps anyway and of one question to
the source; while nobody asks they cost nothing. The server runs in threads of its own: a capture
that waits for a broker still answers, and a source that hangs holds up none but the asker.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from importlib.metadata import version
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from psycopg2.extensions import make_dsn

from changelog.capture.state.lag import LagClock, WalMark
from changelog.capture.state.report import CaptureReport
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.contract.base.headers import Op
from changelog.contract.base.secret import redacted
from changelog.runtime.telemetry import exported
from changelog.source.connect.connect import connect
from changelog.source.connect.retention import SlotStatus, SourceState, ask_source

log = logging.getLogger("changelog.metrics")

LOOPBACK = "127.0.0.1"
SOURCE_S = 3
"""How long an answer waits for the source."""

_OPERATIONS = {
    Op.READ: "snapshot",
    Op.CREATE: "insert",
    Op.UPDATE: "update",
    Op.DELETE: "delete",
    Op.TRUNCATE: "truncate",
}
_WAL_STATUS = ("reserved", "extended", "unreserved", "lost")

Probe = Callable[[], SourceState | None]
"""Asks the source; the answer is None if there is none."""


class SourceProbe:
    """Asks the source over a connection of its own, one asker at a time."""

    def __init__(self, dsn: str, slot: str, groups: Collection[str] = ()) -> None:
        self._dsn = dsn
        self._slot = slot
        self._groups = groups
        self._turn = threading.Lock()

    def __call__(self) -> SourceState | None:
        """Ask, or return None if there is no answer."""
        if not self._turn.acquire(timeout=SOURCE_S):
            return None
        try:
            dsn = make_dsn(self._dsn, connect_timeout=SOURCE_S)
            with closing(connect(dsn, application_name="changelog metrics")) as connection:
                return ask_source(connection, self._slot, self._groups)
        except ChangelogError as error:
            log.debug("%s", redacted(str(error)))
            return None
        finally:
            self._turn.release()


class CaptureMetrics(Collector):
    """Turns the counts of a run into metrics."""

    def __init__(
        self,
        report: CaptureReport,
        probe: Probe,
        *,
        slot: str,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Prepare to be asked."""
        self._report = report
        self._probe = probe
        self._slot = slot
        self._now_s = now_s
        self._clock = LagClock()
        self._turn = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not ask the source."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return every metric as it is now."""
        source = self._probe()
        about = {"slot": self._slot, "version": version("changelog-store")}
        yield InfoMetricFamily("changelog_capture", "This capture.", value=about)
        yield from self._counts()
        yield from self._snapshot()
        yield from self._frontier()
        yield _gauge("source_up", "Whether the source has answered just now.", source is not None)
        if source is not None:
            yield from self._lag(source)
            yield from _slot_metrics(source.slot)

    def _counts(self) -> Iterator[Metric]:
        report = self._report
        for name, description, counts in (
            ("rows", "Rows captured.", report.rows),
            ("bytes", "Bytes of keys and values written for them, uncompressed.", report.bytes),
        ):
            family = CounterMetricFamily(
                f"changelog_{name}", description, labels=("table", "operation")
            )
            # The copy is one step for other threads, where a loop over the original is not.
            for (table, op), count in dict(counts).items():
                family.add_metric((str(table), _OPERATIONS[op]), count)
            yield family
        yield _count("records", "Records written by the stream.", report.records)
        yield _count("transactions", "Transactions captured.", report.transactions)
        yield _count("frontiers", "Frontiers written.", report.frontiers)
        yield _count("restarts", "Times that capture began again.", report.restarts)
        errors = CounterMetricFamily(
            "changelog_errors", "Errors that capture waited out.", labels=("kind",)
        )
        for kind, count in dict(report.errors).items():
            errors.add_metric((kind,), count)
        yield errors
        excluded = GaugeMetricFamily(
            "changelog_table_aside",
            "1 for a captured table of which no frontier speaks: it is excluded, or copied anew.",
            labels=("table",),
        )
        for table in dict(report.excluded):
            excluded.add_metric((str(table),), 1)
        yield excluded
        yield _gauge("producer_queue_records", "Records not acknowledged yet.", report.queued())

    def _snapshot(self) -> Iterator[Metric]:
        taken = self._report.snapshot
        yield _gauge("snapshot_running", "Whether a snapshot is being taken.", taken is not None)
        if taken is not None:
            yield _gauge("snapshot_rows", "Rows of that snapshot copied so far.", taken.rows)
            description = "Rows that it will have, by PostgreSQL's statistics."
            yield _gauge("snapshot_rows_estimated", description, taken.estimate)

    def _frontier(self) -> Iterator[Metric]:
        report = self._report
        if report.frontier_s:
            age_s = max(0.0, self._now_s() - report.frontier_s)
            yield _gauge("frontier_age_seconds", "Time since the last frontier.", age_s)
            yield _gauge("frontier_lsn", "LSN of the last frontier, as a number.", report.lsn)

    def _lag(self, source: SourceState) -> Iterator[Metric]:
        # The time before the LSN: a frontier written between the two makes the lag no shorter.
        ts_us = self._report.frontier_ts_us
        lsn = self._report.lsn
        now = WalMark(source.now_us, source.wal_lsn)
        yield _gauge("source_wal_lsn", "End of the source's WAL, as a number.", source.wal_lsn)
        if not lsn:
            return
        with self._turn:
            seconds = self._clock.lag_s(lsn, ts_us, now)
            self._clock.note(now)
        yield _gauge("lag_bytes", "WAL behind the last frontier.", max(0, now.lsn - lsn))
        yield _gauge("lag_seconds", "Greatest age of a commit that the log lacks.", seconds)


def _slot_metrics(slot: SlotStatus | None) -> Iterator[Metric]:
    yield _gauge("slot_active", "Whether a process reads the slot.", bool(slot and slot.active))
    status = GaugeMetricFamily(
        "changelog_slot_wal_status", "1 for the slot's wal_status.", labels=("status",)
    )
    for name in _WAL_STATUS:
        status.add_metric((name,), slot is not None and slot.wal_status == name)
    yield status
    if slot is not None and slot.retained_bytes is not None:
        description = "WAL that the source keeps for the slot."
        yield _gauge("slot_retained_bytes", description, slot.retained_bytes)
    if slot is not None and slot.safe_bytes is not None:
        description = "WAL that may be written before the slot is in danger."
        yield _gauge("slot_safe_bytes", description, slot.safe_bytes)


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(f"changelog_{name}", description, value=value)


def _count(name: str, description: str, value: float) -> Metric:
    return CounterMetricFamily(f"changelog_{name}", description, value=value)


@contextmanager
def shown_metrics(metrics: Collector, *, port: int | None, address: str) -> Iterator[None]:
    """Serve metrics until the end of the block if there is a port, and send them by OTLP if asked.

    Raises ConfigurationError: as for `serve_metrics`.
    """
    served = nullcontext() if port is None else serve_metrics(metrics, port=port, address=address)
    with served, exported(metrics):
        yield


@contextmanager
def serve_metrics(
    metrics: Collector, *, port: int, address: str = LOOPBACK
) -> Iterator[tuple[str, int]]:
    """Serve metrics over HTTP until the end of the block; returns where.

    The process's own metrics (CPU, memory) are added. The port is 0 for any that is free; by
    default only this machine can ask.

    Raises ConfigurationError: the port is taken, or the address is not of this machine.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    ProcessCollector(registry=registry)
    try:
        server = MetricsServer(address, port, make_wsgi_app(registry))
    except OSError as error:
        raise ConfigurationError(
            f"metrics cannot be served at {address}:{port}: {error.strerror or error}",
            hint="choose another --metrics-port or --metrics-address",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        log.info("metrics at http://%s:%d/metrics", address, server.server_port)
        yield address, server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


MOST = 16
"""Connections at once; a further one ends the oldest."""
SILENT_S = 10.0
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves an application of WSGI, a thread for each of a few connections."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, port: int, app: App) -> None:
        """Listen.

        Raises OSError: that is not possible there.
        """
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._open: dict[int, socket.socket] = {}
        self._turn = threading.Lock()
        super().__init__((address, port), _Handler)
        self.set_app(_for_this_machine(app) if address in _LOOPBACK else app)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._turn:
                self._open.pop(id(request), None)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Begin a thread for a connection, and make room for it."""
        with self._turn:
            oldest = next(iter(self._open.values())) if len(self._open) >= MOST else None
            if oldest is not None:
                self._open.pop(id(oldest))
                _shut(oldest)
            self._open[id(request)] = request
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Log nothing about a connection that breaks off."""


class _Handler(WSGIRequestHandler):
    timeout = SILENT_S

    def log_message(self, *_: object) -> None:
        """Log no request."""


def _shut(connection: socket.socket) -> None:
    """End a connection whose thread waits for it; the thread closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _for_this_machine(app: App) -> App:
    """Return an application that answers to names of this machine alone.

    A name of another site that leads to loopback would let its pages read what is answered.
    """

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if host and _name(host) not in _LOOPBACK:
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"metrics are for this machine\n"]
        return app(environ, start)

    return answer


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
