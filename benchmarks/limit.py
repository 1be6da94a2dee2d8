"""The physical limit of a round: its rows, written by each server's own client and nothing else.

No log is read, nothing is computed or proved: rows that are served stand ready as texts, and go to
another place of the same form, over a connection that is open.

| sink | write |
|---|---|
| search | one bulk request, then a refresh, to an index of the same mapping |
| cache | MSET in a pipeline |
| postgres | COPY into a temporary table, and from there over the rows of the same keys |
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import httpx
import orjson
import psycopg2
import redis

from benchmarks.mart import SHOWN
from benchmarks.shown import Served
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.state import Endpoints

_TIMES = 9
_PREFIX = "limit_"
_KEYS = {"nation_revenue": "id", "brand_averages": "brand, size"}


def measured(at: Endpoints, target: str, rows: Mapping[str, int]) -> dict[str, float]:
    """Return the median milliseconds of a write of so many rows of each view."""
    told: dict[str, float] = {}
    for view, count in rows.items():
        kind, _ = SHOWN[view]
        prepared = {"search": _search, "cache": _cache, "postgres": _postgres}[kind]
        for write in prepared(at, target, view, max(count, 1)):
            took = []
            for _ in range(_TIMES):
                began = time.monotonic()
                write()
                took.append(time.monotonic() - began)
            told[f"limit_{view}_ms"] = 1000 * statistics.median(took)
            told[f"limit_{view}_rows"] = count
    return told


def _search(at: Endpoints, target: str, view: str, count: int) -> Iterator[Callable[[], None]]:
    with httpx.Client(base_url=str(at.search), verify=authorities(), timeout=60) as client:
        (served,) = client.get(f"/{view}/_mapping").raise_for_status().json().values()
        body = {
            "settings": {"number_of_replicas": 0, "refresh_interval": "-1"},
            "mappings": {**served["mappings"], "_meta": {}},
        }
        index = f"{_PREFIX}{view}"
        client.put(f"/{index}", json=body).raise_for_status()
        lines = b"".join(
            b'{"index":{"_id":"%d"}}\n%b\n' % (number, orjson.dumps(document))
            for number, document in enumerate(islice(Served(at, target).documents(view), count))
        )
        kind = {"content-type": "application/x-ndjson"}

        def write() -> None:
            answer = client.post(f"/{index}/_bulk", content=lines, headers=kind)
            if answer.raise_for_status().json()["errors"]:
                raise SystemExit(f"{index} refuses documents")
            client.post(f"/{index}/_refresh").raise_for_status()

        yield write
        client.delete(f"/{index}").raise_for_status()


def _cache(at: Endpoints, _target: str, view: str, count: int) -> Iterator[Callable[[], None]]:
    with closing(redis.Redis.from_url(str(at.cache))) as client:
        number = int(client.get(f"{view}:current"))  # type: ignore[arg-type]
        keys = list(islice(client.scan_iter(f"{view}:{number}:*", count=1_000), count))
        texts: Any = client.mget(keys)
        entries = {b"%b%b" % (_PREFIX.encode(), key): text or b"" for key, text in zip(
            keys, texts, strict=True
        )}  # fmt: skip

        def write() -> None:
            pipeline = client.pipeline(transaction=True)
            pipeline.mset(entries)
            pipeline.execute()

        yield write
        client.unlink(*entries)


def _postgres(_at: Endpoints, target: str, view: str, count: int) -> Iterator[Callable[[], None]]:
    with closing(psycopg2.connect(target)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            table, lines = f"{_PREFIX}{view}", io.StringIO()
            cursor.execute(f"CREATE TABLE {table} AS SELECT * FROM {view}")
            cursor.execute(f"ALTER TABLE {table} ADD PRIMARY KEY ({_KEYS[view]})")
            cursor.copy_expert(f"COPY (SELECT * FROM {table} LIMIT {count}) TO STDOUT", lines)
            columns = SHOWN[view][1].split()
            updates = ", ".join(f"{name} = excluded.{name}" for name in columns)

            def write() -> None:
                lines.seek(0)
                cursor.execute("BEGIN")
                cursor.execute(f"CREATE TEMPORARY TABLE delta (LIKE {table}) ON COMMIT DROP")
                cursor.copy_expert("COPY delta FROM STDIN", lines)
                cursor.execute(
                    f"INSERT INTO {table} SELECT * FROM delta ON CONFLICT ({_KEYS[view]}) "
                    f"DO UPDATE SET {updates}"
                )
                cursor.execute("COMMIT")

            yield write
            cursor.execute(f"DROP TABLE {table}")
