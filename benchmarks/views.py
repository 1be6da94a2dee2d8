"""How fast each sink takes a view, beside what its server takes of ready rows: `make bench-views`.

The rows are made before and kept by Spark; a rendered copy of them stands ready in this process.
The sink then opens a generation, writes it from Spark's tasks and seals it; its limit is the
quickest way that the server's own client has for rows that need no work:

| sink | limit |
|---|---|
| search | `parallel_bulk` of opensearch-py, an index of the same settings, flushed and refreshed |
| cache | a pipeline of MSET of redis-py |
| postgres | COPY of psycopg2 from lines of CSV, into a table without a key |
| upsert | the same into a table with the view's key; the view's table is new and stays |
| replace | the same; all rows of a table that stays are replaced |
| topic | a producer of confluent-kafka, of keys and values in Avro, to a topic of one partition |
| delta | Spark's own writer of a Delta table |

One run of each goes before and does not count. Of what is published the switch is timed too, and
its median is told in milliseconds. The last line is one JSON object of medians.
"""

from __future__ import annotations

import io
import json
import platform
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
import psycopg2
import pyarrow as pa
import redis
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from opensearchpy import OpenSearch
from opensearchpy.helpers import parallel_bulk
from pyarrow import csv
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from benchmarks.figures import Figures, say
from benchmarks.machine import Noise
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.kafka.clients import writing_config
from changelog.stack.stack import Stack
from replay.spark.session import SessionSettings, session
from views.sinks.base import Sink, SinkSettings
from views.sinks.make import make_sink
from views.sinks.rendering import rendered
from views.sinks.search.column_types import properties
from views.sinks.topic.records import RecordForm
from views.sinks.topic.server import FULL_S

Entries = Sequence[tuple[str, str]]
"""Ids and documents."""

KEY = ("id",)
UPSERT, REPLACE = "upsert", "replace"
IN_PLACE = {UPSERT, REPLACE}
_THREADS = 4
_CHUNK = 2_000
_MSET = 5_000
_BULK_LINE = "limit"
_WAIT_S = 60.0


def _queue(producer: Producer, topic: str, key: bytes, value: bytes | None) -> None:
    """Queue a record; wait while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, 0)
        except BufferError:
            producer.poll(FULL_S)
        else:
            return


def orders(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows like those of an order: numbers, a decimal, texts and a moment."""
    number = F.col("id")
    return spark.range(rows).select(
        number.alias("id"),
        (number % 10_007).cast("int").alias("customer_id"),
        (number % 99_991 / F.lit(100)).cast("decimal(12,2)").alias("amount"),
        F.concat(F.lit("customer "), F.sha2(number.cast("string"), 256).substr(1, 24)).alias(
            "name"
        ),
        F.when(number % 3 == 0, F.lit(None)).otherwise(F.lit("to be delivered")).alias("note"),
        F.timestamp_seconds(1_700_000_000 + number).alias("placed"),
    )


@dataclass(frozen=True)
class Bench:
    """Rows that stand ready, for Spark and for the clients of servers."""

    frame: DataFrame
    other: DataFrame
    entries: Entries
    figures: Figures

    def sink(self, kind: str, sink: Sink, generation: int, *, counts: bool) -> None:
        """Write a generation, publish it and remove the one before."""
        frame = self.frame if generation % 2 or kind != REPLACE else self.other
        began = time.monotonic()
        sink.open(generation, frame.schema)
        sink.write(frame)
        sink.seal()
        written = time.monotonic()
        sink.publish(generation)
        switched = time.monotonic()
        if kind == UPSERT:
            sink.drop()
        elif generation > 1:
            sink.discard(generation - 1)
        # What is published in place is written then.
        self._keep(kind, (switched if kind in IN_PLACE else written) - began, counts=counts)
        if counts and kind not in IN_PLACE:
            self.figures.add(f"{kind}_switch_ms", 1000 * (switched - written))

    def limit(self, kind: str, write: Callable[[Entries], None], *, counts: bool) -> None:
        """Write the ready rows by the client of a server."""
        began = time.monotonic()
        write(self.entries)
        self._keep(f"{kind}_limit", time.monotonic() - began, counts=counts)

    def _keep(self, name: str, seconds: float, *, counts: bool) -> None:
        per_s = len(self.entries) / seconds
        say(f"{name}: {per_s:,.0f} rows/s" + ("" if counts else ", not counted"))
        if counts:
            self.figures.add(f"{name}_per_s", per_s)


def search_limit(url: str, mapping: dict[str, Any]) -> Callable[[Entries], None]:
    """Return the quickest way of opensearch-py to an index like that of the sink."""
    client = OpenSearch(url, timeout=120)
    body = {
        "settings": {
            "number_of_replicas": 0,
            "refresh_interval": "-1",
            "translog.durability": "async",
        },
        "mappings": {"dynamic": False, "properties": mapping},
    }

    def write(entries: Entries) -> None:
        client.indices.delete(index=_BULK_LINE, ignore_unavailable=True)
        client.indices.create(index=_BULK_LINE, body=body)
        actions = ({"_id": name, "_source": document} for name, document in entries)
        results = parallel_bulk(
            client,
            actions,
            thread_count=_THREADS,
            chunk_size=_CHUNK,
            index=_BULK_LINE,
            expand_action_callback=_as_it_stands,
        )
        deque(results, maxlen=0)
        client.indices.flush(index=_BULK_LINE)
        client.indices.refresh(index=_BULK_LINE)

    return write


def _as_it_stands(action: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Let the client send a document that is JSON already."""
    return {"index": {"_id": action["_id"]}}, action["_source"]


def cache_limit(url: str) -> Callable[[Entries], None]:
    """Return the quickest way of redis-py."""
    client = redis.Redis.from_url(url)

    def write(entries: Entries) -> None:
        pipeline = client.pipeline(transaction=False)
        for start in range(0, len(entries), _MSET):
            part = entries[start : start + _MSET]
            pipeline.mset({f"limit:{name}": document for name, document in part})
            pipeline.execute()

    return write


def postgres_limit(dsn: str, rows: pa.Table, *, key: str = "") -> Callable[[Entries], None]:
    """Return the quickest way of psycopg2 for lines that stand ready."""
    lines = io.BytesIO()
    csv.write_csv(rows, lines, csv.WriteOptions(include_header=False))
    columns = (
        f"id bigint {key}, customer_id int, amount numeric(12,2), name text, note text, "
        "placed timestamptz"
    )

    def write(entries: Entries) -> None:
        connection = psycopg2.connect(dsn)
        with connection, connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS copy_limit; CREATE TABLE copy_limit ({columns})")
            lines.seek(0)
            cursor.copy_expert("COPY copy_limit FROM STDIN (FORMAT csv)", lines, 1 << 16)
            if cursor.rowcount != len(entries):
                raise SystemExit(f"{cursor.rowcount} rows were copied, not {len(entries)}")
        connection.close()

    return write


def delta_limit(place: str, frame: DataFrame) -> Callable[[Entries], None]:
    """Return Spark's own way to a Delta table."""

    def write(_entries: Entries) -> None:
        frame.write.format("delta").save(f"{place}/{time.monotonic_ns()}")

    return write


def topic_limit(kafka: KafkaConnection, frame: DataFrame) -> Callable[[Entries], None]:
    """Return the quickest way of confluent-kafka for keys and values that stand ready."""
    form = RecordForm(frame.schema, KEY, (1, 2))
    records = form.records(frame.select(*form.columns()).toArrow())
    admin = AdminClient(kafka.client_config())

    def write(entries: Entries) -> None:
        name = f"{_BULK_LINE}-{time.monotonic_ns()}"
        admin.create_topics([NewTopic(name, 1, 1)])[name].result()
        producer = Producer(writing_config(kafka, wait_s=_WAIT_S))
        for key, value in records:
            _queue(producer, name, key, value)
        if producer.flush(_WAIT_S) or len(records) != len(entries):
            raise SystemExit("not all records were written")
        admin.delete_topics([name])[name].result()

    return write


def main(
    runs: Annotated[int, typer.Option(help="Runs; the medians are told.")] = 3,
    rows: Annotated[int, typer.Option(help="Rows of the view.")] = 1_000_000,
    sinks: Annotated[
        str, typer.Option(help="Which sinks, with commas between.")
    ] = "search,cache,postgres,upsert,replace,topic,delta",
    out: Annotated[Path | None, typer.Option(help="JSON file to bring up to date.")] = None,
) -> None:
    """Measure each sink beside the limit of its server."""
    kinds = sinks.split(",")
    with (
        tempfile.TemporaryDirectory(prefix="bench-views-") as folder,
        Stack(Path(folder) / "stack", with_=("search", "cache")) as stack,
    ):
        Path(folder).chmod(0o755)
        at = stack.endpoints()
        kafka = KafkaConnection(brokers=at.brokers)
        noise = Noise([pid for part in stack.status() if (pid := part.pid)])
        settings = SinkSettings(
            warehouse=folder,
            search_url=at.search,
            cache_url=at.cache,
            postgres_url=at.postgres,
            kafka=kafka,
            registry=RegistryConnection(url=at.schema_registry),
        )
        spark = session(SessionSettings(warehouse=folder))
        frame = orders(spark, rows).persist(StorageLevel.MEMORY_AND_DISK)
        ready = rendered(frame, KEY).toArrow().to_pydict()
        entries = list(zip(ready["id"], ready["document"], strict=True))
        other = frame.withColumn("amount", F.col("amount") + F.lit(1).cast("decimal(2,0)"))
        other = other.select(*(F.col(f.name).cast(f.dataType) for f in frame.schema.fields))
        other = other.persist(StorageLevel.MEMORY_AND_DISK)
        if REPLACE in kinds:
            other.count()
        bench = Bench(frame, other, entries, Figures())
        limits = {
            "search": search_limit(at.search or "", properties(frame.schema)),
            "cache": cache_limit(at.cache or ""),
            "postgres": postgres_limit(at.postgres, frame.toArrow()),
            UPSERT: postgres_limit(at.postgres, frame.toArrow(), key="PRIMARY KEY"),
            REPLACE: postgres_limit(at.postgres, frame.toArrow(), key="PRIMARY KEY"),
            "topic": topic_limit(kafka, frame),
            "delta": delta_limit(f"{folder}/{_BULK_LINE}", frame),
        }
        for kind in kinds:
            sink = make_sink(
                "postgres" if kind in IN_PLACE else kind,
                view=f"{kind}_rows",
                key=KEY,
                settings=settings,
                spark=spark,
                options={"mode": "upsert"} if kind in IN_PLACE else {},
            )
            for number in range(runs + 1):
                bench.limit(kind, limits[kind], counts=number > 0)
                bench.sink(kind, sink, number + 1, counts=number > 0)
        told: dict[str, Any] = dict(bench.figures.medians())
        for kind in kinds:
            told[f"{kind}_vs_limit"] = round(told[f"{kind}_per_s"] / told[f"{kind}_limit_per_s"], 3)
        told |= {"rows": rows, "runs": runs, "noise": round(noise.share(), 3)}
        told |= {"cores": psutil.cpu_count(), "machine": platform.processor()}
        spark.stop()
    if out is not None:
        before = json.loads(out.read_text("utf-8")) if out.is_file() else {}
        out.write_text(json.dumps({**before, **told}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told))


if __name__ == "__main__":
    typer.run(main)
