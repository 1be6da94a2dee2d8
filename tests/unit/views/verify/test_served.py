"""What is read back from servers that lose documents, give them twice, or fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import duckdb
import httpx
import pytest

from changelog.contract.base.errors import SinkError
from views.base.address import Address
from views.verify.served import cache, search
from views.verify.served.served import read_served
from views.verify.served.threads import read_at_once
from views.verify.values.types import parse_type

COLUMNS = [("id", parse_type("int")), ("text", parse_type("string"))]
SEARCH = Address("search", {"url": "http://engine", "index": "rows"})
CACHE = Address("cache", {"url": "redis://cache", "prefix": "v:1:"})
ROWS = 50
PAGE = 7


def row(number: int) -> dict[str, Any]:
    return {"id": number, "text": f"row {number}"}


class Engine:
    """A search engine in memory; `plant` may change the answer to a page."""

    def __init__(self, plant: Callable[[int, int, dict[str, Any]], None] | None = None) -> None:
        self.open: set[str] = set()
        self.counted = ROWS
        self.asked = 0
        self._plant = plant or (lambda *_: None)
        self._lock = threading.Lock()

    def answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else {}
        with self._lock:
            return httpx.Response(200, json=self._found(request, body))

    def _found(self, request: httpx.Request, body: dict[str, Any]) -> dict[str, Any]:
        whole = {"_shards": {"failed": 0}}
        if request.method == "DELETE":
            self.open -= set(body["scroll_id"])
            return {}
        match request.url.path.rpartition("/")[2]:
            case "_refresh":
                return whole
            case "_count":
                return {**whole, "count": self.counted}
            case "scroll":
                part, most, page = map(int, body["scroll_id"].split("/"))
            case _ if "slice" in body:
                part, most, page = body["slice"]["id"], body["slice"]["max"], 0
            case _:
                return {**whole, "hits": {"hits": self._hits(range(3))}}
        numbers = range(part, ROWS, most)[page * PAGE : (page + 1) * PAGE]
        self.open.discard(f"{part}/{most}/{page}")
        scroll = f"{part}/{most}/{page + 1}"
        self.open.add(scroll)
        self.asked += 1
        found = {**whole, "_scroll_id": scroll, "hits": {"hits": self._hits(numbers)}}
        self._plant(part, page, found)
        return found

    def _hits(self, numbers: range) -> list[dict[str, Any]]:
        return [{"_id": str(number), "_source": row(number)} for number in numbers]


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        yield made


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], None]:
    def start(engine: Engine) -> None:
        client = partial(httpx.Client, transport=httpx.MockTransport(engine.answer))
        monkeypatch.setattr("views.verify.served.search.httpx.Client", client)

    return start


def test_all_documents_of_all_slices_are_read(database: Any, serve: Any) -> None:
    engine = Engine()
    serve(engine)
    assert read_served(database, "served", SEARCH, COLUMNS, ["id"]) == ROWS
    found = database.execute("SELECT id, text, __fault, __id FROM served ORDER BY id").fetchall()
    assert found == [(n, f"row {n}", None, str(n)) for n in range(ROWS)]
    assert engine.asked > 2 * search._SLICES
    assert engine.open == set(), "every scroll is closed"


def lost(part: int, page: int, answer: dict[str, Any]) -> None:
    if part == 1:
        answer["hits"]["hits"] = []


def doubled(part: int, page: int, answer: dict[str, Any]) -> None:
    if (part, page) == (1, 0):
        answer["hits"]["hits"] *= 2


def failed(part: int, page: int, answer: dict[str, Any]) -> None:
    answer["_shards"]["failed"] = int(page == 1)


def timed_out(part: int, page: int, answer: dict[str, Any]) -> None:
    answer["timed_out"] = page == 1


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lost, r"counts 50 documents and gave \d\d"),
        (doubled, r"counts 50 documents and gave 57"),
        (failed, "a shard failed"),
        (timed_out, "timed out"),
    ],
)
def test_an_engine_that_gives_other_documents_than_it_has_is_an_error(
    database: Any, serve: Any, plant: Any, said: str
) -> None:
    engine = Engine(plant)
    serve(engine)
    with pytest.raises(SinkError, match=said):
        read_served(database, "served", SEARCH, COLUMNS, ["id"])
    assert engine.open == set(), "every scroll is closed after an error too"


def test_a_slice_that_nobody_asks_for_is_noticed(
    database: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(Engine())
    monkeypatch.setattr(search, "read_at_once", lambda sources: read_at_once(sources[:-1]))
    with pytest.raises(SinkError, match="counts 50 documents and gave"):
        read_served(database, "served", SEARCH, COLUMNS, ["id"])


def test_twin_without_the_count_a_lost_slice_is_missed(database: Any, serve: Any) -> None:
    engine = Engine(lost)
    engine.counted = ROWS - len(range(1, ROWS, search._SLICES))
    serve(engine)
    assert read_served(database, "served", SEARCH, COLUMNS, ["id"]) == engine.counted


class Cache:
    """A cache in memory whose SCAN gives some keys twice."""

    def __init__(self) -> None:
        self.entries = {f"v:1:{n}".encode(): json.dumps(row(n)).encode() for n in range(ROWS)}
        self._asked: list[Any] = []

    def scan(self, cursor: int, *, match: str, count: int) -> tuple[int, list[bytes]]:
        assert match == "v:1:*"
        # Each page begins with the last keys of the one before; every other page is empty.
        keys = list(self.entries)[max(cursor // 2 * PAGE - 2, 0) :][: PAGE + 2]
        after = cursor + 1
        return (after if after // 2 * PAGE < ROWS else 0), ([] if cursor % 2 else keys)

    def mget(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.entries.get(key) for key in keys]

    def pipeline(self, *, transaction: bool) -> Pipeline:
        assert not transaction
        return Pipeline(self)

    def close(self) -> None:
        """Close nothing."""


class Pipeline:
    """Commands that are sent together."""

    def __init__(self, held: Cache) -> None:
        self._held = held
        self._answers: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        command = getattr(self._held, name)
        return lambda *given, **named: self._answers.append(command(*given, **named))

    def execute(self, *, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        return self._answers


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, bytes]:
    made = Cache()
    monkeypatch.setattr("views.verify.served.cache.redis.Redis.from_url", lambda *_, **__: made)
    return made.entries


def test_a_key_that_scan_gives_twice_is_one_row(database: Any, entries: Any) -> None:
    entries[b"v:1:3"] = b"\xff"
    assert read_served(database, "served", CACHE, COLUMNS, ["id"]) == ROWS
    found = database.execute("SELECT __id, id FROM served WHERE id IS DISTINCT FROM __id::INT")
    assert found.fetchall() == [("3", None)]


def test_twin_copies_that_stay_are_counted(
    database: Any, entries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "views.verify.served.served._without_copies", lambda database, table, rows: rows
    )
    assert read_served(database, "served", CACHE, COLUMNS, ["id"]) > ROWS


def test_keys_of_a_cache_come_as_bytes_whatever_its_settings() -> None:
    assert (cache.as_bytes("é"), cache.as_bytes(b"x")) == ("é".encode(), b"x")


def test_a_reader_that_stops_closes_its_sources() -> None:
    ended: list[int] = []

    def endless(number: int) -> Iterator[int]:
        try:
            while True:
                yield number
        finally:
            ended.append(number)

    found = read_at_once([partial(endless, 1), partial(endless, 2)])
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert sorted(ended) == [1, 2]


def test_the_error_of_one_source_ends_all() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    def endless() -> Iterator[int]:
        while True:
            yield 2

    with pytest.raises(OSError, match="gone"):
        list(read_at_once([broken, endless]))
