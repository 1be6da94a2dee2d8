"""A catalogue of Iceberg by the calls of its REST protocol; the tables are those of a file."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

_CODES = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
}


class RestCatalogue:
    """Answers until it is closed; `refuses` tells which calls get another status."""

    def __init__(self, folder: Path) -> None:
        self.catalogue = SqlCatalog(
            "rest", uri=f"sqlite:///{folder}/rest.db", warehouse=str(folder)
        )
        self.refuses: Callable[[str, str], int] = lambda _method, _path: 0
        self.calls: list[tuple[str, str]] = []
        self._lock = threading.Lock()  # SQLite has one writer
        served = self

        class Asked(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with served._lock:
                    code, found = served.answer(self.command, unquote(self.path), body)
                data = b"" if found is None else json.dumps(found).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - names of the library

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Asked)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.catalogue.close()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        self.calls.append((method, path))
        if code := self.refuses(method, path):
            return code, _error("Refused", "it takes nothing", code)
        try:
            found = self._result(method, path.removeprefix("/v1/").split("?")[0], body)
        except tuple(_CODES) as error:
            code = _CODES[type(error)]
            return code, _error(type(error).__name__, str(error), code)
        return (204, None) if found is None else (200, found)

    def _result(self, method: str, path: str, body: bytes) -> Any:
        if path == "config":
            return {"defaults": {}, "overrides": {}}
        if path == "tables/rename":
            names = json.loads(body)
            self.catalogue.rename_table(*(_name(names[end]) for end in ("source", "destination")))
            return None
        _, namespace, *rest = path.split("/")
        if not rest:
            return {"namespace": [namespace], **self._properties(namespace)}
        if method == "POST" and len(rest) == 1:
            asked = json.loads(body)
            return _shown(
                self.catalogue.create_table(
                    (namespace, asked["name"]),
                    Schema.model_validate(asked["schema"]),
                    asked.get("location"),
                    properties=asked["properties"],
                )
            )
        name = (namespace, rest[1])
        if method == "DELETE":
            self.catalogue.drop_table(name)
            return None
        table = self.catalogue.load_table(name)
        if method == "POST":
            request = CommitTableRequest.model_validate_json(body)
            self.catalogue.commit_table(table, request.requirements, request.updates)
            table = self.catalogue.load_table(name)
        return _shown(table)

    def _properties(self, namespace: str) -> dict[str, Any]:
        return {"properties": self.catalogue.load_namespace_properties(namespace)}


def _name(identifier: dict[str, Any]) -> tuple[str, ...]:
    return (*identifier["namespace"], identifier["name"])


def _shown(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }


def _error(kind: str, message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}
