"""A receiver of webhooks, which does as a test says and remembers all it was sent."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.support.http_listener import Quiet, listening


@dataclass
class Request:
    headers: dict[str, str]
    body: bytes

    @property
    def event(self):
        return json.loads(self.body)

    @property
    def key(self):
        return self.event["subject"]

    @property
    def row(self):
        return self.event["data"]["row"]


Answer = tuple[int, dict[str, str]]


@dataclass
class Hooks:
    """A receiver; `decide` gives the answer to each request, 200 by default."""

    url: str = ""
    decide: Callable[[Request], Answer] = lambda _: (200, {})
    requests: list[Request] = field(default_factory=list)
    taken: list[Request] = field(default_factory=list)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def rows(self):
        """Return the rows that a receiver has which keeps the last event of each key."""
        rows: dict[str, dict] = {}
        for request in list(self.taken):
            if request.row is None:
                rows.pop(request.key, None)
            else:
                rows[request.key] = request.row
        return rows

    def order_is_kept(self):
        """Tell whether no key goes back to an event that is none of its first sendings."""
        newest: dict[str, str] = defaultdict(str)
        firsts: dict[str, bytes] = {}
        for request in list(self.taken):
            event = request.event
            if event["id"] not in firsts:
                if event["sequence"] < newest[request.key]:
                    return False
                newest[request.key] = event["sequence"]
            firsts.setdefault(event["id"], request.body)
            if firsts[event["id"]] != request.body:
                return False
        return True


@contextmanager
def webhooks() -> Iterator[Hooks]:
    """Run a receiver."""
    hooks = Hooks()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:  # its sender was killed amid of it
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(headers, body)
            status, more = hooks.decide(request)
            with hooks.turn:
                hooks.requests.append(request)
                if status == 200:
                    hooks.taken.append(request)
            text = b"no row of mine, token=hunter2" if status != 200 else b""
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    with listening(Handler) as hooks.url:
        yield hooks
