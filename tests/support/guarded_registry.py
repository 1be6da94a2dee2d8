"""A schema registry behind TLS and a password: a proxy in front of a real one."""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.certificates import Pair

_PASSED_ON = ("Content-Type", "Accept")


class GuardedRegistry:
    """Speaks https on a port of its own, asks for user and password, hands on what is left."""

    def __init__(self, registry: str, pair: Pair, user: str, password: str) -> None:
        there = urlsplit(registry)
        wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        guard = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Authorization") != wanted:
                    # As Confluent's own registry words it.
                    self._say(401, b'{"error_code": 401, "message": "Unauthorized"}')
                    return
                guard.requests += 1
                asked = http.client.HTTPConnection(str(there.hostname), there.port, timeout=30)
                try:
                    headers = {n: self.headers[n] for n in _PASSED_ON if n in self.headers}
                    asked.request(self.command, self.path, body or None, headers)
                    found = asked.getresponse()
                    self._say(found.status, found.read(), found.getheader("Content-Type"))
                finally:
                    asked.close()

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the library's names

            def _say(self, status: int, body: bytes, kind: str | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind or "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server = _Server(("127.0.0.1", 0), Handler, context)
        self.requests = 0
        self.url = f"https://127.0.0.1:{self._server.server_port}{there.path}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address, handler, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(address, handler)

    def finish_request(self, request, client_address) -> None:
        """Shake hands in the connection's own thread; one that cannot is no concern of others."""
        request.settimeout(60)
        try:
            with self._context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
        except OSError:
            return
