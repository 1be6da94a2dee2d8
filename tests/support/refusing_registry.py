"""A schema registry that can be read and takes nothing, since it is read-only or says so."""

import http.server
import threading

import httpx


class RefusingRegistry:
    """Passes on what reads, and refuses with a status what writes."""

    def __init__(self, url, status):
        class Passing(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                writes = self.command in {"POST", "PUT"} and "/compatibility/" not in self.path
                if writes:
                    self.say(status, b'{"error_code": 42205, "message": "it takes nothing"}')
                    return
                asked = httpx.request(self.command, url + self.path, content=body or None)
                self.say(asked.status_code, asked.content)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - names of the library

            def say(self, code, body):
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Passing)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
