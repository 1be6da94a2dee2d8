"""What only the sinks with a server promise: search mapping, foreign names, secrets, limits."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
import redis

from changelog.contract.base.errors import SinkError, UnavailableError
from changelog.runtime.tls_trust import authorities
from views.base.cache import CacheForm
from views.sinks.base import SinkSettings
from views.sinks.cache.server import CacheClient
from views.sinks.cache.sink import EntryWriter
from views.sinks.load import load
from views.sinks.make import make_sink
from views.sinks.search.server import SearchClient
from views.sinks.search.sink import DocumentWriter

pytestmark = [pytest.mark.spark, pytest.mark.services]

CANARY = "c4n4ry-secret"

FLIGHT = """
select 1 id, 'New York' city, 12.50 price, date'2013-01-02' day,
  named_struct('name', 'United', 'seats', 180) carrier,
  array(named_struct('a', 1, 'b', 1), named_struct('a', 2, 'b', 2)) legs,
  map('x', 1) extra, double('NaN') delay, timestamp_micros(9223372036854775807) until
"""


def publish(bench, number, rows, key=("id",)):
    sink = bench.sink(key=key)
    sink.open(number, rows.schema)
    sink.write(rows)
    sink.seal()
    sink.publish(number)
    return sink


def hits(url: str, view: str, query: dict[str, Any]) -> int:
    answer = httpx.post(f"{url}/{view}/_search", json={"query": query}, verify=authorities())
    answer.raise_for_status()
    return int(answer.json()["hits"]["total"]["value"])


def legs(a: int, b: int) -> dict[str, Any]:
    """Ask for one leg that has both numbers."""
    both = [{"term": {"legs.a": a}}, {"term": {"legs.b": b}}]
    return {"nested": {"path": "legs", "query": {"bool": {"filter": both}}}}


def test_documents_can_be_searched_by_their_types(search, search_url):
    publish(search, 1, search.spark.sql(FLIGHT))
    queries: list[tuple[dict[str, Any], int]] = [
        ({"match": {"city": "york"}}, 1),
        ({"term": {"city.keyword": "New York"}}, 1),
        ({"term": {"city.keyword": "York"}}, 0),
        ({"range": {"price": {"gt": 12}}}, 1),
        ({"range": {"price": {"gt": 13}}}, 0),
        ({"range": {"day": {"gte": "2013-01-02", "lt": "2013-01-03"}}}, 1),
        ({"match": {"carrier.name": "united"}}, 1),
        (legs(1, 1), 1),
        (legs(1, 2), 0),
    ]
    for query, found in queries:
        assert hits(search_url, search.view, query) == found, query


def test_a_document_is_served_exactly_even_where_the_index_cannot_hold_a_value(search):
    publish(search, 1, search.spark.sql(FLIGHT))
    [row] = search.served(search.view)
    assert row["price"] == "12.50"
    assert (row["delay"], row["until"]) == ("NaN", "infinity")
    assert row["extra"] == {"x": 1}


def test_a_sealed_index_takes_no_more_writes(search, search_url):
    publish(search, 1, search.spark.sql("select 1 id"))
    answer = httpx.post(
        f"{search_url}/{search.view}-000001/_doc/2", json={"id": 2}, verify=authorities()
    )
    assert answer.status_code == 403
    assert search.served(search.view) == [{"id": 1}]


def test_one_refused_document_fails_the_write_and_is_named(search):
    sink = search.sink()
    rows = search.spark.sql("select if(id = 700, repeat('x', 600), cast(id as string)) id "
                            "from range(1000)")  # fmt: skip
    sink.open(1, rows.schema)
    with pytest.raises(SinkError, match=r'"x+": its id is too long'):
        sink.write(rows)
    with pytest.raises(SinkError, match="not sealed"):
        sink.publish(1)


@pytest.mark.parametrize("name", ["_id", "a.b", " "])
def test_column_names_that_mean_something_to_the_search_server_are_refused(search, name):
    with pytest.raises(SinkError, match="reserves"):
        search.sink().open(1, search.spark.sql(f"select 1 id, 2 `{name}`").schema)


def test_an_alias_or_index_of_somebody_else_is_not_touched(search, search_url):
    schema = search.spark.sql("select 1 id").schema
    httpx.put(f"{search_url}/{search.view}", verify=authorities()).raise_for_status()
    with pytest.raises(SinkError, match="is an index that was not published from here"):
        search.sink().open(1, schema)
    httpx.delete(f"{search_url}/{search.view}", verify=authorities()).raise_for_status()
    foreign = f"{search.view}-000003"
    body: dict[str, Any] = {"aliases": {search.view: {}}}
    httpx.put(f"{search_url}/{foreign}", json=body, verify=authorities()).raise_for_status()
    with pytest.raises(SinkError, match="is an alias of"):
        search.sink().open(1, schema)
    assert search.sink().generations() == []
    for act in (lambda: search.sink().discard(3), search.sink().drop):
        with pytest.raises(SinkError, match="is an alias of"):
            act()
    httpx.delete(
        f"{search_url}/{foreign}/_alias/{search.view}", verify=authorities()
    ).raise_for_status()
    search.sink().discard(3)
    search.sink().drop()
    assert httpx.get(f"{search_url}/{foreign}", verify=authorities()).status_code == 200


def test_no_other_key_of_a_cache_is_touched(cache, cache_url):
    client = redis.Redis.from_url(cache_url, decode_responses=True)
    mine = {f"{cache.view}x:1:1": "a", f"{cache.view}:note": "b"}
    client.mset(mine)
    sink = publish(cache, 1, cache.spark.range(2500))
    publish(cache, 2, cache.spark.range(3))
    sink.discard(1)
    left = set(client.scan_iter(f"{cache.view}*", count=10_000))
    entries = {f"{cache.view}:2:{n}" for n in range(3)}
    own = {f"{cache.view}:{name}" for name in ("current", "generations", "form:2", "keys:2")}
    assert left == {*mine, *entries, *own}
    sink.drop()
    assert set(client.scan_iter(f"{cache.view}*", count=10_000)) == set(mine)


def test_a_cache_that_would_evict_entries_is_refused(cache, cache_url):
    client = redis.Redis.from_url(cache_url, decode_responses=True)
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("maxmemory", str(2**40))
    try:
        with pytest.raises(SinkError, match="evicts any key"):
            cache.sink().open(1, cache.spark.range(1).schema)
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")


def test_a_full_cache_fails_the_write(cache, cache_url):
    client = redis.Redis.from_url(cache_url, decode_responses=True)
    rows = cache.spark.range(100_000).selectExpr("id", "repeat('x', 100) s")
    sink = cache.sink()
    sink.open(1, rows.schema)
    client.config_set("maxmemory", str(client.info("memory")["used_memory"] + 2**20))
    try:
        with pytest.raises(SinkError, match="is full"):
            sink.write(rows)
    finally:
        client.config_set("maxmemory", "0")
    with pytest.raises(SinkError, match="not sealed"):
        sink.publish(1)
    sink.discard(1)
    assert cache.stored(cache.view, 1) == 0


def left_by_a_late_task(cache, cache_url):
    """Let a task write when the next run has cleared up; returns the keys that are there then."""
    schema = cache.spark.range(1).schema
    cache.sink().open(1, schema)
    form = CacheForm.of(cache.view, 1)
    writer = EntryWriter(CacheClient(cache_url, 5), cache.view, 1, form)
    with writer.connected() as write:
        write([("1", '{"id":1}')])
        assert cache.stored(cache.view, 1) == 1
        cache.sink().discard(1)
        with pytest.raises(SinkError, match="not open for writing any more"):
            write([("2", '{"id":2}'), ("3", '{"id":3}')])
    client = redis.Redis.from_url(cache_url, decode_responses=True)
    return sorted(client.scan_iter(f"{cache.view}*", count=10_000))


def test_a_task_that_outlives_its_process_takes_back_what_it_wrote(cache, cache_url):
    assert left_by_a_late_task(cache, cache_url) == []


def test_twin_what_such_a_task_does_not_take_back_is_left(cache, cache_url, monkeypatch):
    monkeypatch.setattr("views.sinks.cache.sink._remove", lambda *_: None)
    assert left_by_a_late_task(cache, cache_url) != []


def absent(kind: str, spark):
    settings = SinkSettings(
        warehouse="",
        search_url=f"http://ann:{CANARY}@127.0.0.1:9",
        cache_url=f"redis://ann:{CANARY}@127.0.0.1:9/0",
        postgres_url=f"postgresql://ann:{CANARY}@127.0.0.1:9/app",
        retry_seconds=0.5,
    )
    return settings, make_sink(kind, view="v", key=("id",), settings=settings, spark=spark)


@pytest.mark.parametrize("kind", ["search", "cache", "postgres"])
def test_a_server_that_is_away_is_said_without_its_password(spark, kind):
    settings, sink = absent(kind, spark)
    with pytest.raises(UnavailableError) as caught:
        sink.open(1, spark.range(1).schema)
    assert "127.0.0.1:9" in str(caught.value)
    assert CANARY not in f"{caught.value} {settings!r} {sink!r}"


@pytest.mark.parametrize(
    "writer",
    [
        DocumentWriter(SearchClient(f"http://ann:{CANARY}@127.0.0.1:9", 0.5), "v-000001"),
        EntryWriter(
            CacheClient(f"redis://ann:{CANARY}@127.0.0.1:9/0", 0.5), "v", 1, CacheForm.of("v", 1)
        ),
    ],
    ids=["search", "cache"],
)
def test_a_server_that_goes_away_while_rows_are_written_is_said_once(spark, writer):
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9") as caught:
        load(spark.range(10), ("id",), writer)
    assert CANARY not in f"{caught.value} {writer!r}"
    assert "Traceback" not in str(caught.value)
    assert time.monotonic() - started < 30


def test_a_wrong_login_is_said(cache_url, spark):
    url = cache_url.replace("redis://", f"redis://ann:{CANARY}@")
    settings = SinkSettings(warehouse="", cache_url=url, retry_seconds=0.5)
    sink = make_sink("cache", view="v", key=("id",), settings=settings, spark=spark)
    with pytest.raises(SinkError, match="refuses the login") as caught:
        sink.published()
    assert CANARY not in str(caught.value)


def test_large_values_pass_in_batches(bench):
    rows = bench.spark.range(60).selectExpr("id", "repeat('é', 200000) s")
    sink = bench.sink()
    sink.open(1, rows.schema)
    sink.write(rows)
    address = sink.seal()
    assert sink.rows(1) == 60
    assert {(len(row["s"]), row["s"][0]) for row in bench.read(address)} == {(200_000, "é")}


def test_ids_with_any_character_are_kept(bench):
    texts = ['a"b', "a\\b", "a\nb", "*", "é😀", "a:b", " ", "../x"]
    rows = bench.spark.createDataFrame([(text,) for text in texts], "id string")
    sink = publish(bench, 1, rows)
    assert sorted(row["id"] for row in bench.served(bench.view)) == sorted(texts)
    assert sink.rows(1) == len(texts)


def test_the_json_of_a_search_document_is_the_rendered_text(search):
    publish(search, 1, search.spark.sql("select 1 id, 9007199254740993 big, date'2020-01-02' d"))
    [row] = search.served(search.view)
    assert row == {"id": 1, "big": 9007199254740993, "d": "2020-01-02"}
    assert list(row) == ["id", "big", "d"]
