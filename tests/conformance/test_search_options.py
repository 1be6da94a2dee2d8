"""What a search index's options promise: settings and fields of the author, documents as ever."""

from __future__ import annotations

from typing import Any

import duckdb
import httpx
import pytest

from changelog.contract.base.errors import SinkError
from changelog.runtime.tls_trust import authorities
from tests.conformance.test_server_sinks import FLIGHT, hits
from views.verify.served.served import read_served
from views.verify.values.types import parse_type

pytestmark = [pytest.mark.spark, pytest.mark.services]

OPTIONS: dict[str, Any] = {
    "settings": {
        "index": {"number_of_shards": 3},
        "number_of_replicas": 0,
        "refresh_interval": "7s",
        "analysis": {"analyzer": {"codes": {"type": "custom", "tokenizer": "standard"}}},
    },
    "mappings": {
        "properties": {
            "city": {"fields": {"parts": {"type": "text", "analyzer": "codes"}}},
            "price": {"type": "keyword"},
            "carrier": {"properties": {"name": {"type": "keyword"}}},
        }
    },
}


def build(bench: Any, options: dict[str, Any], rows: Any) -> Any:
    sink = bench.sink(options=options)
    sink.open(1, rows.schema)
    sink.write(rows)
    return sink.seal()


def test_the_author_says_how_documents_are_found_and_they_stay_exact(search, search_url):
    rows = search.spark.sql(FLIGHT)
    address = build(search, OPTIONS, rows)
    search.sink().publish(1)
    queries: list[tuple[dict[str, Any], int]] = [
        ({"match": {"city.parts": "York"}}, 1),
        ({"term": {"city.parts": "york"}}, 0),
        ({"term": {"carrier.name": "United"}}, 1),
        ({"term": {"carrier.name": "united"}}, 0),
        ({"range": {"carrier.seats": {"gt": 100}}}, 1),
        ({"term": {"price": "12.50"}}, 1),
        ({"term": {"price": "12.5"}}, 0),
    ]
    for query, found in queries:
        assert hits(search_url, search.view, query) == found, query
    index = address.location["index"]
    told = httpx.get(f"{search_url}/{index}/_settings", verify=authorities()).json()
    settings = told[index]["settings"]["index"]
    assert settings["number_of_shards"] == "3"
    assert settings["refresh_interval"] == "7s"
    assert settings["number_of_replicas"] == "0"
    assert settings.get("auto_expand_replicas", "false") == "false"
    columns = [(field.name, parse_type(field.dataType.simpleString())) for field in rows.schema]
    with duckdb.connect() as database:
        number = read_served(database, "t", address, columns, ["id"])
        row = database.execute("select price, city, __fault from t").fetchone()
    assert row is not None
    assert (number, str(row[0]), row[1:]) == (1, "12.50", ("New York", None))


ROUTED = "select * from values ('UA', 1, 'x'), ('UA', 2, 'y'), ('DL', 1, 'z') as t(c, n, v)"


def test_documents_are_routed_by_a_column_of_the_key_and_proved_to_be(search, search_url):
    options = {"settings": {"number_of_shards": 3}, "routing": "c"}
    rows, key = search.spark.sql(ROUTED), ("c", "n")
    sink = search.sink(key, options=options)
    sink.open(1, rows.schema)
    sink.write(rows)
    address = sink.seal()
    sink.publish(1)
    # An address says how its own generation is routed, whatever is asked for now.
    assert search.sink(key).address(1) == address
    base = f"{search_url}/{search.view}"
    with httpx.Client(verify=authorities()) as client:
        shards = client.get(f"{base}/_search_shards?routing=UA").json()["shards"]
        assert len(shards) == 1
        found = client.get(f"{base}/_search?routing=UA&q=c:UA").json()["hits"]["hits"]
        assert {hit["_source"]["v"] for hit in found} == {"x", "y"}
        columns = [(field.name, parse_type(field.dataType.simpleString())) for field in rows.schema]
        with duckdb.connect() as database:
            assert read_served(database, "t", address, columns, key) == 3
        # The twin: the same document, where a search with its routing does not look.
        index = f"{search_url}/{address.location['index']}"
        client.put(f"{index}/_settings", json={"index": {"blocks.write": False}})
        gone = client.delete(f'{index}/_doc/["UA",1]?routing=UA')
        put = client.put(f'{index}/_doc/["UA",1]?routing=DL', json={"c": "UA", "n": 1, "v": "x"})
        assert (gone.status_code, put.status_code) == (200, 201)
        with duckdb.connect() as database, pytest.raises(SinkError, match="is routed by 'DL'"):
            read_served(database, "t", address, columns, key)


def test_a_text_that_no_search_can_be_routed_by_is_refused(search):
    rows = search.spark.sql("select 'a,b' c, 1 n")
    sink = search.sink(("c", "n"), options={"routing": "c"})
    sink.open(1, rows.schema)
    with pytest.raises(SinkError, match="cannot be routed by 'a,b'"):
        sink.write(rows)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"settings": {"number_of_shards": -1}}, "number_of_shards"),
        ({"settings": {"no_such": 1}}, "no_such"),
        ({"mappings": {"properties": {"id": {"type": "nothing"}}}}, "nothing"),
        ({"mappings": {"properties": {"other": {"type": "text"}}}}, 'column for the field "other"'),
        ({"mappings": {"properties": {"id": "text"}}}, 'field "id" is no object'),
    ],
)
def test_what_the_server_refuses_names_the_file(search, options, reason):
    with pytest.raises(SinkError, match=reason) as caught:
        search.sink(options=options).open(1, search.spark.sql("select 1 id").schema)
    assert f"{search.view}.search.json" in str(caught.value)
    assert search.sink().generations() == []
