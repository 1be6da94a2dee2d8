"""The parts of the sinks that need no server and no Spark session."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from changelog.contract.base.errors import ConfigurationError, SinkError
from replay.spark.files import uri_of
from views.base.address import Address
from views.sinks.base import SinkSettings, UnavailableSinkError
from views.sinks.load import in_batches
from views.sinks.make import make_sink
from views.sinks.options import read_options
from views.sinks.search.column_types import field_count, properties
from views.sinks.search.server import SearchClient
from views.sinks.topic.options import TopicOptions

SECRET = "c4n4ry"


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=30))), st.integers(1, 60))
def test_batches_keep_every_entry_in_order_and_within_bounds(entries, most):
    batches = list(in_batches(entries, max_bytes=most, max_entries=4))
    assert list(itertools.chain.from_iterable(batches)) == entries
    for batch in batches:
        size = sum(len(name) + len(text) for name, text in batch)
        assert 1 <= len(batch) <= 4
        assert size <= most or len(batch) == 1


def test_an_address_survives_json_and_hides_its_password():
    address = Address("search", {"url": f"http://ann:{SECRET}@es:9200", "index": "v-000001"})
    assert Address.from_json(address.as_json()) == address
    assert SECRET not in f"{address} {address!r}"
    assert "v-000001" in str(address)


def test_settings_and_servers_hide_their_passwords():
    url = f"http://ann:{SECRET}@es:9200"
    settings = SinkSettings(warehouse="w", search_url=url, cache_url=url)
    assert SECRET not in repr(settings) + repr(SearchClient(url, 1))
    assert pickle.loads(pickle.dumps(SearchClient(url, 1))).url == url  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("kind", "reason"), [("search", "no address"), ("cache", "no address"), ("x", "no sink")]
)
def test_a_sink_without_its_setting_is_refused(kind, reason):
    with pytest.raises((ConfigurationError, SinkError), match=reason):
        make_sink(kind, view="v", key=("id",), settings=SinkSettings(warehouse="w"), spark=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["es:9200", "ftp://es", ""])
def test_an_address_that_is_no_url_is_refused_at_once(url):
    with pytest.raises(ConfigurationError, match="not the address"):
        SearchClient(url, 60).request("GET", "/")


def test_a_warehouse_is_a_folder_or_a_uri(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert uri_of("lake/") == str(tmp_path / "lake")
    assert uri_of("file:/srv/lake") == "/srv/lake"
    assert uri_of("s3a://bucket/lake/") == "s3a://bucket/lake"


def test_a_mapping_follows_the_schema():
    schema = StructType(
        [
            StructField("a", StringType()),
            StructField("n", DecimalType(10, 2)),
            StructField("t", TimestampNTZType()),
            StructField("s", StructType([StructField("x", IntegerType())])),
            StructField("l", ArrayType(StructType([StructField("y", LongType())]))),
            StructField("m", MapType(StringType(), IntegerType())),
            StructField("i", ArrayType(ByteType())),
            StructField("x", BinaryType()),
            StructField("b", BooleanType()),
        ]
    )
    mapping = properties(schema)
    assert mapping["a"]["type"] == "text"
    assert mapping["a"]["fields"]["keyword"]["type"] == "keyword"
    assert mapping["n"] == {"type": "double", "ignore_malformed": True}
    assert mapping["t"]["type"] == "date"
    assert mapping["s"]["properties"]["x"]["type"] == "integer"
    assert mapping["l"]["type"] == "nested"
    assert mapping["l"]["properties"]["y"]["type"] == "long"
    assert mapping["m"] == {"type": "object", "enabled": False}
    assert (mapping["i"]["type"], mapping["x"]["type"]) == ("byte", "binary")
    assert field_count(mapping) == 12


class Scripted(BaseHTTPRequestHandler):
    """Answers bulk requests as its list says, and keeps what it was sent."""

    answers: list[tuple[int, object]]
    seen: list[list[str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).splitlines()
        self.seen.append([orjson.loads(line)["index"]["_id"] for line in body[::2]])
        status, items = self.answers.pop(0)
        content = orjson.dumps({"items": items} if isinstance(items, list) else items)
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def item(status: int, **error: str) -> dict[str, object]:
    return {"index": {"status": status, **({"error": error} if error else {})}}


@pytest.fixture
def scripted() -> Iterator[tuple[type[Scripted], str]]:
    class Handler(Scripted):
        answers: list[tuple[int, object]] = []  # noqa: RUF012 - a class for each test
        seen: list[list[str]] = []  # noqa: RUF012

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


ENTRIES = [("a", "{}"), ("b", "{}"), ("c", "{}")]
BUSY = item(429, type="rejected_execution_exception", reason="queue is full")


def test_a_busy_server_gets_the_whole_batch_again(scripted):
    handler, url = scripted
    handler.answers += [(429, {"error": "busy"}), (503, {}), (200, [item(201)] * 3)]
    with SearchClient(url, 20).bulk("v-000001") as write:
        write(ENTRIES)
    assert handler.seen == [["a", "b", "c"]] * 3


def test_only_the_documents_that_were_refused_for_now_are_sent_again(scripted):
    handler, url = scripted
    handler.answers += [
        (200, [item(201), BUSY, BUSY]),
        (200, [BUSY, item(201)]),
        (200, [item(201)]),
    ]
    with SearchClient(url, 20).bulk("v-000001") as write:
        write(ENTRIES)
    assert handler.seen == [["a", "b", "c"], ["b", "c"], ["b"]]


def test_one_document_that_is_refused_for_good_fails_the_batch_by_name(scripted):
    handler, url = scripted
    bad = item(400, type="mapper_parsing_exception", reason="no such date")
    handler.answers += [(200, [item(201), bad, item(201)])]
    with (
        SearchClient(url, 20).bulk("v-000001") as write,
        pytest.raises(SinkError, match=r'"b": mapper_parsing_exception: no such date'),
    ):
        write(ENTRIES)
    assert len(handler.seen) == 1


def test_an_answer_that_leaves_documents_out_is_not_believed(scripted):
    handler, url = scripted
    handler.answers += [(200, [item(201)] * 2)]
    with (
        SearchClient(url, 20).bulk("v-000001") as write,
        pytest.raises(SinkError, match="3 documents sent to v-000001, with 2 results"),
    ):
        write(ENTRIES)


def test_a_server_that_stays_busy_is_given_up_on(scripted):
    handler, url = scripted
    handler.answers += [(200, [BUSY] * 3)] * 100
    with (
        SearchClient(url, 0.3).bulk("v-000001") as write,
        pytest.raises(UnavailableSinkError, match=r"3 documents refused for now.*queue is full"),
    ):
        write(ENTRIES)
    assert len(handler.seen) >= 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retention_ms": 5}, 'retention_ms is for "records": "unkeyed"'),
        ({"records": "unkeyed", "retention_ms": -2}, "retention_ms"),
        ({"records": "without"}, "records"),
    ],
)
def test_options_of_a_topic_that_mean_nothing_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        read_options(TopicOptions, "v", "topic", options)
    assert TopicOptions(records="unkeyed").retention_ms == -1
