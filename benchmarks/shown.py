"""Readers of the mart's views: the newest probe of each, and all rows beside PostgreSQL's.

A reader asks each view twenty times a second for the rows that only probes touch, in a thread of
its own. `differing` compares all that is served with what the source answers, value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

import httpx
import orjson
import psycopg2
import redis

from benchmarks.mart import ANSWERS, MANY, PROBE, SHOWN
from benchmarks.probes import Reader
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.state import Endpoints

_EVERY_S = 0.05
_PAGE = 5_000
_AHEAD = 400
"""So many probes may be shown at once: each has a key of its own in the histogram."""


def reader_of(view: str, newest: Callable[[], int]) -> Reader:
    """Return a reader of a view that shows the one probe."""
    return Reader(view, lambda: {1: newest()}, _EVERY_S)


class Served:
    """The servers that show the views."""

    def __init__(self, at: Endpoints, target: str) -> None:
        self._at, self._target = at, target
        self.http = httpx.Client(base_url=str(at.search), verify=authorities(), timeout=60)

    def readers(self) -> list[Reader]:
        """Return a reader of each view."""
        cache = redis.Redis.from_url(str(self._at.cache))
        table = psycopg2.connect(self._target)
        table.autocommit = True
        counted = [MANY]

        def source(view: str, **terms: object) -> dict[str, Any]:
            return self.hit(view, terms)

        def entry(view: str, *keys: int) -> list[bytes | None]:
            number = int(cache.get(f"{view}:current"))  # type: ignore[arg-type]
            found: Any = cache.mget([f"{view}:{number}:{key}" for key in keys])
            return list(found)

        def histogram() -> int:
            first = counted[0]
            texts = entry("order_counts", *range(first, first + _AHEAD))
            counted[0] = max(first + place for place, text in enumerate(texts) if text)
            return counted[0] - MANY

        def value(query: str) -> Decimal:
            with table.cursor() as cursor:
                cursor.execute(query)
                return Decimal(cursor.fetchone()[0])  # type: ignore[index]

        newest: dict[str, Callable[[], int]] = {
            "order_documents": lambda: _whole(source("order_documents", id=PROBE)["total"]),
            "open_lines": lambda: _whole(source("open_lines", order_id=PROBE, no=1)["price"]),
            "customer_cards": lambda: _whole(
                orjson.loads(entry("customer_cards", PROBE)[0] or b"{}")["total"]
            ),
            "order_counts": histogram,
            "nation_revenue": lambda: _whole(
                value(f"SELECT revenue FROM nation_revenue WHERE id = {PROBE}") / Decimal("0.95")
            ),
            "brand_averages": lambda: _whole(
                value("SELECT quantity FROM brand_averages WHERE brand = 'probe'")
            ),
        }
        return [reader_of(view, ask) for view, ask in newest.items()]

    def hit(self, index: str, terms: Mapping[str, object]) -> dict[str, Any]:
        """Return the one document of an index that has some values."""
        wanted = [{"term": {name: value}} for name, value in terms.items()]
        body = {"query": {"bool": {"filter": wanted}}, "size": 2}
        found = self.http.post(f"/{index}/_search", json=body).raise_for_status().json()
        (only,) = found["hits"]["hits"]
        source: dict[str, Any] = only["_source"]
        return source

    def documents(self, index: str) -> Iterator[dict[str, Any]]:
        """Return all documents of an index."""
        page = self._post(f"/{index}/_search?scroll=2m", {"size": _PAGE})
        while page["hits"]["hits"]:
            yield from (hit["_source"] for hit in page["hits"]["hits"])
            page = self._post("/_search/scroll", {"scroll": "2m", "scroll_id": page["_scroll_id"]})

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        """Return all rows of a view that readers see."""
        kind, text = SHOWN[view]
        columns = text.split()
        if kind == "search":
            return [in_order(row, columns) for row in self.documents(view)]
        if kind == "postgres":
            return answer(self._target, f"SELECT {', '.join(columns)} FROM {view}")
        cache = redis.Redis.from_url(str(self._at.cache))
        number = int(cache.get(f"{view}:current"))  # type: ignore[arg-type]
        keys = list(cache.scan_iter(f"{view}:{number}:*", count=10_000))
        found: Any = cache.mget(keys)
        return [in_order(orjson.loads(text), columns) for text in found if text]

    def _post(self, path: str, body: Mapping[str, object]) -> Any:  # noqa: ANN401 - JSON
        return self.http.post(path, json=body).raise_for_status().json()


def differing(dsn: str, served: Served) -> dict[str, str]:
    """Return by view the first differences from what the source answers now; empty if none."""
    told = {}
    for view, query in ANSWERS.items():
        wanted, found = answer(dsn, query), served.rows(view)
        missing, extra = lacking(wanted, found), lacking(found, wanted)
        if missing or extra:
            told[view] = (
                f"{len(missing)} rows are missing, such as {missing[:1]}, "
                f"{len(extra)} are too many, such as {extra[:1]}"
            )
    return told


def lacking(some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows of the first list that the other one lacks, or has less often."""
    counts: dict[tuple[Any, ...], int] = {}
    for row in others:
        counts[row] = counts.get(row, 0) + 1
    left = []
    for row in some:
        if counts.get(row, 0):
            counts[row] -= 1
        else:
            left.append(row)
    return left


def answer(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query, in the form in which they are compared."""
    connection = psycopg2.connect(dsn)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(query)
            return [tuple(map(_plain, row)) for row in cursor.fetchall()]
    finally:
        connection.close()


def in_order(row: Mapping[str, object], columns: Sequence[str]) -> tuple[Any, ...]:
    """Return the values of some columns of a row, in the form in which they are compared."""
    return tuple(_plain(row.get(name)) for name in columns)


def _plain(value: object) -> object:
    """Return a value as one form of all servers: numbers as decimals, days as text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return tuple(map(_plain, value.values()))
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, (int, float, str, Decimal)):
        try:
            return Decimal(str(value)).normalize()
        except InvalidOperation:
            return value
    return value


def _whole(value: object) -> int:
    """Return a number that has to be whole: a probe's; else no probe shows.

    Raises KeyError: it is not.
    """
    number = Decimal(str(value))
    if number != number.to_integral_value():
        raise KeyError(f"{number} is no probe's")
    return int(number)
