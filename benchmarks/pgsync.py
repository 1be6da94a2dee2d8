"""pgsync beside our followed views: the order documents, from the same source to the same server.

pgsync is another program that keeps documents of joined tables in OpenSearch: triggers of its own,
logical decoding, a queue in Redis, and a query against the source for the keys that changed. It is
installed from the package index into an environment of its own, and runs with the settings that its
documentation has as defaults; its queue is a database of the cache's server.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from psycopg2.extensions import parse_dsn

from benchmarks import peer_environment
from changelog.stack.base.state import Endpoints

VERSION = "7.3.0"
INDEX = "pgsync_orders"
_QUEUE = "5"
"""The number of the database for its queue; ours are in another."""
_LONG_S = 600.0


def _child(table: str, columns: list[str], kind: str, keys: tuple[str, str], label: str) -> Any:  # noqa: ANN401 - JSON
    """Return a node below another; `keys`: the column of the child, and that of its parent."""
    child, parent = keys
    return {
        "table": table,
        "label": label,
        "columns": columns,
        "relationship": {
            "variant": "object",
            "type": kind,
            "foreign_key": {"child": [child], "parent": [parent]},
        },
    }


def schema(database: str) -> list[dict[str, Any]]:
    """Return its description of the order documents."""
    nation = _child("nations", ["id", "name"], "one_to_one", ("id", "nation_id"), "nation")
    customer = _child("customers", ["id", "name"], "one_to_one", ("id", "customer_id"), "customer")
    part = _child("parts", ["id", "name"], "one_to_one", ("id", "part_id"), "part")
    lines = _child("lines", ["no", "quantity"], "one_to_many", ("order_id", "id"), "lines")
    root = {
        "table": "orders",
        "columns": ["id", "status", "total", "day"],
        "children": [{**customer, "children": [nation]}, {**lines, "children": [part]}],
    }
    return [{"database": database, "index": INDEX, "nodes": root}]


def installed(place: Path) -> Path:
    """Install it below a folder, unless it is there; returns the folder of its commands."""
    return peer_environment.installed(place, "pgsync", VERSION)


def variables(at: Endpoints) -> Mapping[str, str]:
    """Return its settings: addresses, and nothing that its documentation has a default for."""
    source, search, cache = parse_dsn(at.postgres), urlsplit(at.search), urlsplit(at.cache)
    return {
        **os.environ,
        "PG_HOST": source["host"],
        "PG_PORT": source["port"],
        "PG_USER": source["user"],
        "PG_PASSWORD": source.get("password", ""),
        "PG_DATABASE": source["dbname"],
        "ELASTICSEARCH": "False",
        "OPENSEARCH": "True",
        "ELASTICSEARCH_HOST": str(search.hostname),
        "ELASTICSEARCH_PORT": str(search.port),
        "ELASTICSEARCH_SCHEME": "http",
        "ELASTICSEARCH_USE_SSL": "False",
        "REDIS_HOST": str(cache.hostname),
        "REDIS_PORT": str(cache.port),
        "REDIS_DB": _QUEUE,
    }


@contextmanager
def syncing(
    commands: Path, at: Endpoints, folder: Path, documents: list[dict[str, Any]] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Prepare the source for it, and run it as a daemon; ended by a signal.

    `documents`: its description of them, those of the orders by default.
    """
    config = folder / "pgsync.json"
    documents = documents or schema(parse_dsn(at.postgres)["dbname"])
    config.write_text(json.dumps(documents), encoding="utf-8")
    settings, log = variables(at), folder / "pgsync.log"
    with log.open("ab") as out:
        words = [str(commands / "bootstrap"), "--config", str(config)]
        subprocess.run(
            words, env=settings, cwd=folder, stdout=out, stderr=out, check=True, timeout=_LONG_S
        )
        words = [str(commands / "pgsync"), "--config", str(config), "--daemon"]
        process = subprocess.Popen(words, env=settings, cwd=folder, stdout=out, stderr=out)
        try:
            yield process
            if process.poll() is not None:
                raise SystemExit(log.read_text(encoding="utf-8")[-3000:])
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            words = [str(commands / "bootstrap"), "--config", str(config), "--teardown"]
            subprocess.run(words, env=settings, cwd=folder, stdout=out, stderr=out, check=False)
            time.sleep(1)
