"""Who gets metrics, and how long a connection that asks nothing is kept."""

import socket
import threading
from contextlib import contextmanager

import httpx
import pytest

from changelog.capture.inspect import metrics as metrics_server
from changelog.capture.inspect.metrics import MetricsServer


@contextmanager
def served(address="127.0.0.1"):
    def app(_environ, start):
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"metric 1\n"]

    with MetricsServer(address, 0, app) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:9464", "[::", "127.0.0.1.evil.example"]
)
def test_a_name_of_another_site_gets_nothing(name):
    with served() as port:
        url = f"http://127.0.0.1:{port}/metrics"
        assert httpx.get(url, headers={"Host": name}).status_code == 403
        assert httpx.get(url).text == "metric 1\n"
        assert httpx.get(url, headers={"Host": f"localhost:{port}"}).status_code == 200


def test_other_addresses_have_other_names():
    with served("0.0.0.0") as port:  # noqa: S104 - for one request
        url = f"http://127.0.0.1:{port}/metrics"
        assert httpx.get(url, headers={"Host": "capture.example"}).status_code == 200


def test_half_requests_keep_no_threads_and_nobody_out():
    before = threading.active_count()
    with served() as port:
        opened = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(60)]
        try:
            for each in opened:
                each.sendall(b"GET /metrics HT")
            assert httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).status_code == 200
            ended = sum(1 for each in opened[:40] if each.recv(1) == b"")
            assert ended == 40
            assert threading.active_count() <= before + 1 + metrics_server.MOST + 1
        finally:
            for each in opened:
                each.close()


def test_a_connection_that_says_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.3)
    with served() as port, socket.create_connection(("127.0.0.1", port), 10) as one:
        one.sendall(b"GET /metr")
        assert one.recv(1) == b""
