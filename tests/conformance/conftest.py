"""One bench per kind of sink: how to make the sink, and readers that share no code with it."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import httpx
import psycopg2
import pyarrow as pa
import pytest
import redis
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from psycopg2.extensions import make_dsn
from psycopg2.extras import RealDictCursor

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.ports import pick
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack
from tests.support.cache_cluster import cache_cluster
from tests.support.elasticsearch import ElasticServer
from tests.support.memory_sink import MemorySink, MemoryStore
from tests.support.sql import execute
from views.base.address import Address
from views.base.iceberg import IcebergPlace
from views.sinks.base import Sink, SinkSettings
from views.sinks.make import make_sink

Rows = list[dict[str, Any]]


@dataclass
class Bench:
    """A kind of sink, with its readers."""

    kind: str
    settings: SinkSettings
    spark: Any
    view: str
    served: Callable[[str], Rows | None]
    stored: Callable[[str, int], int]
    read: Callable[[Address], Rows]
    memory: MemoryStore | None = None
    options: dict[str, Any] = field(default_factory=dict)
    only_grows: bool = False

    def sink(
        self,
        key: tuple[str, ...] = ("id",),
        view: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> Sink:
        """Make a sink, as a new process would."""
        name = view or self.view
        if self.memory is not None:
            return MemorySink(view=name, key=key, store=self.memory)
        return make_sink(
            self.kind,
            view=name,
            key=key,
            settings=self.settings,
            spark=self.spark,
            options=self.options if options is None else options,
        )


def delta_rows(path: str, options: dict[str, str] | None = None) -> Rows | None:
    try:
        table = DeltaTable(path, storage_options=options)
    except TableNotFoundError:
        return None
    found = QueryBuilder().register("v", table).execute("select * from v").read_all()
    rows: Rows = pa.table(found).to_pylist()
    return rows


def search_rows(url: str, index: str) -> Rows | None:
    body = {"size": 10_000, "query": {"match_all": {}}}
    answer = httpx.post(f"{url}/{index}/_search", json=body, verify=authorities())
    if answer.status_code == 404:
        return None
    return [hit["_source"] for hit in answer.json()["hits"]["hits"]]


def cache_rows(client: Any, prefix: str) -> Rows:
    """Read entries of any kind; of a hash only whole numbers and texts."""
    keys = sorted(set(client.scan_iter(f"{prefix}*", count=1000)))  # a scan may give one twice
    if any(client.type(key) == "hash" for key in keys):
        found = [client.hgetall(key).items() for key in keys]
        return [{k: int(v) if v.isdigit() else v for k, v in row} for row in found]
    return [json.loads(str(client.get(key))) for key in keys]


def memory_bench(folder: Path, spark: Any, view: str) -> Bench:
    store = MemoryStore(folder)

    def served(name: str) -> Rows | None:
        try:
            return [json.loads(text) for text in store.served(name).values()]
        except KeyError:
            return None

    def stored(name: str, number: int) -> int:
        held = store.generations.get((name, number))
        return len(held.documents) if held else 0

    def read(address: Address) -> Rows:
        lines = Path(address.location["path"]).read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["row"] for line in lines]

    settings = SinkSettings(warehouse=str(folder))
    return Bench("memory", settings, spark, view, served, stored, read, store)


def delta_bench(folder: Path, spark: Any, view: str) -> Bench:
    def stored(name: str, number: int) -> int:
        return len(list((folder / name / "_generations" / f"{number:06d}").rglob("*.parquet")))

    return Bench(
        "delta",
        SinkSettings(warehouse=str(folder)),
        spark,
        view,
        lambda name: delta_rows(str(folder / name)),
        stored,
        lambda address: delta_rows(address.location["path"]) or [],
    )


def iceberg_rows(place: IcebergPlace, snapshot: int | None = None) -> Rows | None:
    if not place.is_made:
        return None
    with place.opened() as catalogue:
        if snapshot is None and not catalogue.table_exists(place.table):
            return None
        loaded = place.load(catalogue)
        assert loaded is not None
        rows: Rows = loaded[0].scan(snapshot_id=snapshot).to_arrow().to_pylist()
        return rows


def iceberg_bench(folder: Path, spark: Any, view: str, catalogue: str = "") -> Bench:
    """A catalogue of its own in a folder, or one that is named, whose tables are there."""
    home = folder / "_iceberg"

    def stored(name: str, number: int) -> int:
        return len(list(home.glob(f"views/{name}/*/{number:06d}/*.parquet")))

    def read(address: Address) -> Rows:
        place = IcebergPlace.of_location(address.location)
        return iceberg_rows(place, int(address.location["snapshot"])) or []

    return Bench(
        "iceberg",
        SinkSettings(warehouse=str(folder), iceberg_catalogue=catalogue),
        spark,
        view,
        lambda name: iceberg_rows(
            IcebergPlace(catalogue, "" if catalogue else str(home), f"views.{name}")
        ),
        stored,
        read,
    )


def search_bench(url: str, spark: Any, view: str) -> Bench:
    def stored(name: str, number: int) -> int:
        answer = httpx.get(f"{url}/{name}-{number:06d}/_count", verify=authorities())
        return 0 if answer.status_code == 404 else answer.json()["count"]

    return Bench(
        "search",
        SinkSettings(warehouse="", search_url=url),
        spark,
        view,
        lambda name: search_rows(url, name),
        stored,
        lambda address: search_rows(url, address.location["index"]) or [],
    )


def cache_bench(url: str, spark: Any, view: str, options: dict[str, Any] | None = None) -> Bench:
    if "+cluster" in url:
        client: Any = redis.RedisCluster.from_url(
            url.replace("+cluster", ""), decode_responses=True
        )
    else:
        client = redis.Redis.from_url(url, decode_responses=True)
    asked = options or {}

    def prefix(name: str, number: Any) -> str:
        tagged = f"{{{name}}}" if asked.get("hash_tag") == "view" else name
        return f"{tagged}:{number}:"

    def served(name: str) -> Rows | None:
        number = client.get(f"{name}:current")
        return None if number is None else cache_rows(client, prefix(name, number))

    return Bench(
        "cache",
        SinkSettings(warehouse="", cache_url=url),
        spark,
        view,
        served,
        lambda name, number: len(cache_rows(client, prefix(name, number))),
        lambda address: cache_rows(client, address.location["prefix"]),
        options=asked,
    )


def postgres_bench(
    url: str, connection: Any, spark: Any, view: str, options: dict[str, Any] | None = None
) -> Bench:
    def select(table: str) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return [dict(row) for row in cursor.fetchall()]

    def served(name: str) -> Rows | None:
        try:
            return select(f"public.{name}")
        except psycopg2.errors.UndefinedTable:
            return None

    def stored(name: str, number: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = "
                "to_regnamespace('changelog_views') AND relname ~ %s",
                [f"^{name}_[0-9a-f]{{8}}_{number:06d}$"],
            )
            found = cursor.fetchone()
        return 0 if found is None else len(select(f"changelog_views.{found['relname']}"))

    return Bench(
        "postgres",
        SinkSettings(warehouse="", postgres_url=url),
        spark,
        view,
        served,
        stored,
        lambda address: select(address.location["table"]),
        options=options or {},
    )


def committed(brokers: str, topic: str, *, keyed: bool = True) -> dict[bytes, bytes] | None:
    """Return the last value of each key that a reader of committed records finds.

    Of a topic without keys each value, by its offset.
    """
    records = committed_records(brokers, topic)
    if records is None:
        return None
    found: dict[bytes, bytes] = {}
    for offset, key, value in records:
        assert (key is not None) == keyed
        name = str(offset).encode() if key is None else key
        if value is None:
            assert keyed
            found.pop(name, None)
        else:
            found[name] = value
    return found


def committed_records(
    brokers: str, topic: str
) -> list[tuple[int, bytes | None, bytes | None]] | None:
    """Return offset, key and value of each record that a reader of committed ones finds."""
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    if topic not in admin.list_topics(timeout=30).topics:
        return None
    settings = {
        "bootstrap.servers": brokers,
        "log_level": 0,
        "group.id": uuid.uuid4().hex,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "enable.auto.commit": False,
    }
    found: list[tuple[int, bytes | None, bytes | None]] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return None
                raise AssertionError(error)
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.key(), message.value()))


def topic_bench(
    endpoints: Endpoints, spark: Any, view: str, options: dict[str, Any] | None = None
) -> Bench:
    registry = RegistryConnection(url=endpoints.schema_registry)
    schemas: dict[bytes, Any] = {}
    only_grows = (options or {}).get("records") == "unkeyed"

    def row(raw: bytes) -> dict[str, Any]:
        if raw.startswith(b"{"):
            found: dict[str, Any] = json.loads(raw)
            return found
        head = raw[:5]
        if head not in schemas:
            number = int.from_bytes(head[1:], "big")
            text = httpx.get(f"{registry.url}/schemas/ids/{number}").json()["schema"]
            schemas[head] = fastavro.parse_schema(json.loads(text))
        read: Any = fastavro.schemaless_reader(io.BytesIO(raw[5:]), schemas[head], None)
        return dict(read)

    def rows(topic: str) -> Rows | None:
        keyed = not only_grows or topic.count(".") > 1
        found = committed(endpoints.brokers, topic, keyed=keyed)
        return None if found is None else [row(value) for value in found.values()]

    def served(name: str) -> Rows | None:
        found = committed(endpoints.brokers, f"views.{name}.generations")
        return rows(f"views.{name}") if found and b"published" in found else None

    return Bench(
        "topic",
        SinkSettings(
            warehouse="", kafka=KafkaConnection(brokers=endpoints.brokers), registry=registry
        ),
        spark,
        view,
        served,
        lambda name, number: len(rows(f"views.{name}.{number:06d}") or []),
        lambda address: rows(address.location["topic"]) or [],
        options=options or {},
        only_grows=only_grows,
    )


@pytest.fixture
def topic(endpoints: Endpoints, spark: Any, view: str) -> Iterator[Bench]:
    made = topic_bench(endpoints, spark, view)
    yield made
    for name in (view, f"{view}_b"):
        made.sink(view=name).drop()


@pytest.fixture
def topic_json(endpoints: Endpoints, spark: Any, view: str) -> Iterator[Bench]:
    made = topic_bench(endpoints, spark, view, {"value": "json"})
    yield made
    for name in (view, f"{view}_b"):
        made.sink(view=name).drop()


@pytest.fixture
def topic_unkeyed(endpoints: Endpoints, spark: Any, view: str) -> Iterator[Bench]:
    made = topic_bench(endpoints, spark, view, {"records": "unkeyed"})
    yield made
    for name in (view, f"{view}_b"):
        made.sink(view=name).drop()


@pytest.fixture
def view() -> str:
    """A name that no other test uses: the servers are shared."""
    return f"v_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def memory(tmp_path: Path, spark: Any, view: str) -> Bench:
    return memory_bench(tmp_path, spark, view)


@pytest.fixture
def delta(tmp_path: Path, spark: Any, view: str) -> Bench:
    return delta_bench(tmp_path, spark, view)


@pytest.fixture
def iceberg(tmp_path: Path, spark: Any, view: str) -> Bench:
    return iceberg_bench(tmp_path, spark, view)


@pytest.fixture
def search_url(endpoints: Endpoints) -> str:
    assert endpoints.search
    return endpoints.search


@pytest.fixture
def cache_url(endpoints: Endpoints) -> str:
    assert endpoints.cache
    return endpoints.cache


@pytest.fixture
def search(search_url: str, spark: Any, view: str) -> Iterator[Bench]:
    yield search_bench(search_url, spark, view)
    held = httpx.get(f"{search_url}/{view}*/_settings", verify=authorities()).json()
    for index in held if isinstance(held, dict) and "error" not in held else ():
        httpx.delete(f"{search_url}/{index}", verify=authorities())


@pytest.fixture(scope="session")
def elastic_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ElasticServer(tmp_path_factory.mktemp("elastic"), pick(), pick()) as server:
        yield server.url


@pytest.fixture
def elastic(elastic_url: str, spark: Any, view: str) -> Bench:
    return search_bench(elastic_url, spark, view)


@pytest.fixture
def cache(cache_url: str, spark: Any, view: str) -> Iterator[Bench]:
    yield cache_bench(cache_url, spark, view)
    client = redis.Redis.from_url(cache_url)
    for key in client.scan_iter(f"*{view}*", count=1000):
        client.delete(key)


@pytest.fixture(scope="session")
def postgres_url(stack: Stack) -> Iterator[str]:
    """A database of its own on the stack's server."""
    endpoints = stack.endpoints()
    name = f"sink_{uuid.uuid4().hex[:10]}"
    execute(endpoints.postgres, f"CREATE DATABASE {name}")
    yield make_dsn(endpoints.postgres, dbname=name)
    execute(endpoints.postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres(postgres_url: str, spark: Any, view: str) -> Iterator[Bench]:
    connection = psycopg2.connect(postgres_url, cursor_factory=RealDictCursor)
    connection.autocommit = True
    yield postgres_bench(postgres_url, connection, spark, view)
    connection.close()


@pytest.fixture
def upserted(postgres_url: str, spark: Any, view: str) -> Iterator[Bench]:
    connection = psycopg2.connect(postgres_url, cursor_factory=RealDictCursor)
    connection.autocommit = True
    yield postgres_bench(postgres_url, connection, spark, view, {"mode": "upsert"})
    connection.close()


@pytest.fixture
def hashes(cache_url: str, spark: Any, view: str) -> Bench:
    return cache_bench(cache_url, spark, view, {"value": "hash", "hash_tag": "view"})


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cache_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture
def cluster(cluster_url: str, spark: Any, view: str) -> Bench:
    return cache_bench(cluster_url, spark, view, {"hash_tag": "key"})


@pytest.fixture(
    params=[
        "memory",
        "delta",
        "iceberg",
        pytest.param("search", marks=pytest.mark.services),
        pytest.param("cache", marks=pytest.mark.services),
        pytest.param("postgres", marks=pytest.mark.services),
        pytest.param("upserted", marks=[pytest.mark.services, pytest.mark.matrix]),
        pytest.param("topic", marks=[pytest.mark.services, pytest.mark.matrix]),
        pytest.param("topic_json", marks=[pytest.mark.services, pytest.mark.matrix]),
        pytest.param("elastic", marks=[pytest.mark.services, pytest.mark.matrix]),
        pytest.param("topic_unkeyed", marks=[pytest.mark.services, pytest.mark.matrix]),
        pytest.param("hashes", marks=[pytest.mark.services, pytest.mark.matrix]),
        pytest.param("cluster", marks=[pytest.mark.services, pytest.mark.matrix]),
    ]
)
def bench(request: pytest.FixtureRequest) -> Bench:
    made: Bench = request.getfixturevalue(request.param)
    return made
