"""A server in front of fake-gcs-server that adds two calls of Google's store.

They are writes by the XML API, and listings that begin after a name; object_store uses both.
A write becomes a call of the JSON API of the server; all other calls are passed on. It is a process
of its own, because clients of the store hold Python's lock while they wait for it.
"""

from __future__ import annotations

import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree as ET

LOOPBACK = "127.0.0.1"
_OF_JSON = {"storage", "upload", "download", "batch", "_internal"}
_UPLOADS: dict[str, dict[int, bytes]] = {}
_HOPS = {"transfer-encoding", "content-length", "connection", "host"}
_STARTED = "<InitiateMultipartUploadResult><UploadId>{}</UploadId></InitiateMultipartUploadResult>"
_ENDED = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
Answer = tuple[int, list[tuple[str, str]], bytes]


class Front(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def _any(self) -> None:
        status, headers, body = self._answer(self._body())
        self.send_response(status)
        for name, text in headers:
            if name.lower() not in _HOPS:
                self.send_header(name, text)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        else:
            body = b""
            for name, text in headers:
                if name.lower() == "content-length":
                    self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _any  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> Answer:
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query, keep_blank_values=True)
        bucket, _, name = parts.path.lstrip("/").partition("/")
        if bucket in _OF_JSON:
            return self._behind(self.command, self.path, body, dict(self.headers))
        if not name and self.command == "GET":
            return self._listed(bucket, asked)
        if name and self.command in {"PUT", "POST"}:
            return self._written(bucket, unquote(name), asked, body)
        if name and self.command == "DELETE" and "uploadId" in asked:
            _UPLOADS.pop(asked["uploadId"][0])
            return 204, [], b""
        if name and self.command == "DELETE":
            path = f"/storage/v1/b/{bucket}/o/{quote(unquote(name), safe='')}"
            return self._behind("DELETE", path)
        return self._behind(self.command, self.path, body, dict(self.headers))

    def _listed(self, bucket: str, asked: dict[str, list[str]]) -> Answer:
        status, headers, text = self._behind("GET", f"/storage/v1/b/{bucket}")
        if status != 200:  # the server behind says 500 to a listing of no bucket
            return status, headers, text
        status, headers, text = self._behind("GET", self.path, b"", dict(self.headers))
        behind = asked.get("start-after", [""])[0]  # which the server behind does not know
        root = ET.fromstring(text)  # noqa: S314 - of the server behind
        for entry in root.findall("Contents"):
            if (entry.findtext("Key") or "") <= behind:
                root.remove(entry)
        return status, headers, ET.tostring(root)

    def _written(self, bucket: str, name: str, asked: dict[str, list[str]], body: bytes) -> Answer:
        if "uploads" in asked:
            upload = str(len(_UPLOADS))
            _UPLOADS[upload] = {}
            return 200, [], _STARTED.format(upload).encode()
        upload = asked.get("uploadId", [""])[0]
        if upload and "partNumber" in asked:
            _UPLOADS[upload][int(asked["partNumber"][0])] = body
            return 200, [("ETag", '"e"')], b""
        if upload:
            body = b"".join(part for _, part in sorted(_UPLOADS[upload].items()))
        match = self.headers.get("x-goog-if-generation-match")
        only = "" if match is None else f"&ifGenerationMatch={match}"
        target = quote(name, safe="")
        if source := self.headers.get("x-goog-copy-source"):
            of, _, old = unquote(source).partition("/")
            status, headers, text = self._behind(
                "POST",
                f"/storage/v1/b/{of}/o/{quote(old, safe='')}/copyTo/b/{bucket}/o/{target}?{only}",
                b"{}",
                {"Content-Type": "application/json"},
            )
        else:
            status, headers, text = self._behind(
                "POST",
                f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={target}{only}",
                body,
                {"Content-Type": "application/octet-stream"},
            )
        if status != 200:
            return status, headers, text
        return 200, [("ETag", '"e"')], _ENDED.encode() if upload else b""

    def _behind(
        self, command: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        kept = {name: text for name, text in (headers or {}).items() if name.lower() not in _HOPS}
        line = http.client.HTTPConnection(LOOPBACK, int(sys.argv[2]), timeout=60)
        try:
            line.request(command, path, body, kept)
            answer = line.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            line.close()


if __name__ == "__main__":
    ThreadingHTTPServer((LOOPBACK, int(sys.argv[1])), Front).serve_forever()
