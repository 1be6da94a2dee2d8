"""How fast one task of a sink writes: `make bench-connect`.

Rows of five columns (int, text, numeric, timestamptz, bool) lie on one partition, as Avro under a
registry's schema and as JSON. One task of `changelog serve` writes them to a table with a primary
key: appended, by key into an empty table, and by key over rows that are there. It counts from the
first commit until the last one, so that neither a start nor a first look at the table is in it.
Beside each, in the same run, the limit: COPY of the same rows, ready as text, into such a table.

The last line is one JSON object: rows a second, the task's own CPU time of a row, and the share of
the machine that others took.
"""

from __future__ import annotations

import io
import json
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import fastavro
import orjson
import psycopg2
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from benchmarks.figures import Figures, say
from benchmarks.line import POSTGRES
from benchmarks.machine import Noise, about
from changelog.connect.postgres.places import PLACES
from changelog.connect.postgres.target import SinkDatabase
from changelog.connect.rules.settings import parse_settings
from changelog.connect.task import TaskShare, run_task
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ChangelogError
from changelog.runtime.process.garbage_collection import collect_rarely
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack

_DEADLINE_S = 900.0
_POLL_S = 0.02
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_TABLE = "CREATE TABLE t (id int PRIMARY KEY, a text, n numeric(12,2), w timestamptz, b boolean)"
_CASES = (("insert", "insert", False), ("upsert", "upsert", False), ("over", "upsert", True))
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
_SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "a", "type": ["null", "string"]},
        {"name": "n", "type": ["null", _DECIMAL]},
        {"name": "w", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "b", "type": ["null", "boolean"]},
    ],
}


def row(number: int) -> dict[str, Any]:
    """Return a row."""
    moment = _BEGAN + timedelta(seconds=number, microseconds=number % 1_000_000)
    text = f"the text of row {number}"
    return {"id": number, "a": text, "n": Decimal(number) / 100, "w": moment, "b": number % 2 == 0}


class Bench:
    """Topics with rows, and a database, on running servers."""

    def __init__(self, endpoints: Endpoints, rows: int) -> None:
        """Write the rows to the topics."""
        self._dsn, self._rows = endpoints.postgres, rows
        SinkDatabase(
            parse_settings({"name": "x", "topics": "x", "connection.url": self._dsn})
        ).close()
        self._kafka = KafkaConnection(brokers=endpoints.brokers)
        self._registry = RegistryConnection(url=endpoints.schema_registry)
        self._run = f"bench{time.time_ns()}"
        self.copy = "".join(_line(row(number)) for number in range(rows))
        self._fill("avro", self._avro())
        self._fill("json", map(_json, map(row, range(rows))))

    def _fill(self, form: str, values: Iterator[bytes]) -> None:
        topic = f"{self._run}-{form}"
        admin = AdminClient(self._kafka.client_config())
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        config = self._kafka.client_config(linger_ms=20)
        producer = Producer({**config, "queue.buffering.max.messages": 2 * self._rows})
        for value in values:
            producer.produce(topic, value=value)
        producer.flush()

    def _avro(self) -> Iterator[bytes]:
        with SchemaRegistryClient({"url": self._registry.url}) as client:
            number = client.register_schema(self._run, Schema(json.dumps(_SCHEMA), "AVRO"))
        parsed, head = fastavro.parse_schema(_SCHEMA), struct.pack(">BI", 0, number)
        for each in map(row, range(self._rows)):
            body = io.BytesIO()
            fastavro.schemaless_writer(body, parsed, each)
            yield head + body.getvalue()

    def limit(self) -> float:
        """Return the rows a second of COPY alone."""
        self.execute("DROP TABLE IF EXISTS t", _TABLE)
        with closing(psycopg2.connect(self._dsn)) as connection, connection.cursor() as cursor:
            began = time.monotonic()
            cursor.copy_expert("COPY t FROM STDIN", io.StringIO(self.copy), 1 << 20)
            connection.commit()
            return self._rows / (time.monotonic() - began)

    def task(self, form: str, mode: str, *, again: bool = False) -> tuple[float, float]:
        """Return the rows a second of one task, and its own CPU time of a row in microseconds.

        `again` leaves the rows that are there.
        """
        if not again:
            self.execute("DROP TABLE IF EXISTS t", _TABLE)
        name = f"{self._run}-{form}-{mode}-{again}-{time.time_ns()}"
        config = {"name": name, "topics": f"{self._run}-{form}", "connection.url": self._dsn}
        config |= {"target.tablename": "t", "insert.mode": mode}
        config |= {} if mode == "insert" else {"pk.fields": "id"}
        with self._running(config):
            began, first = self._place(name, least=1)
            spent = time.process_time()
            ended, last = self._place(name, least=self._rows)
            spent = time.process_time() - spent
        return (last - first) / (ended - began), spent / (last - first) * 1e6

    @contextmanager
    def _running(self, config: dict[str, str]) -> Iterator[None]:
        stop, failed = threading.Event(), list[ChangelogError]()

        def work() -> None:
            try:
                run_task(
                    self._kafka,
                    parse_settings(config),
                    TaskShare(0, 1),
                    stop,
                    registry=self._registry,
                )
            except ChangelogError as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    def _place(self, name: str, *, least: int) -> tuple[float, int]:
        """Wait until so many rows are written; return when that was seen, and how many they are."""
        deadline = time.monotonic() + _DEADLINE_S
        with closing(psycopg2.connect(self._dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            while time.monotonic() < deadline:
                cursor.execute(f"SELECT next_offset FROM {PLACES} WHERE connector = %s", (name,))
                found = cursor.fetchone()
                if found is not None and found[0] >= least:
                    return time.monotonic(), int(found[0])
                time.sleep(_POLL_S)
        raise TimeoutError(name)

    def execute(self, *statements: str) -> None:
        """Execute statements."""
        with closing(psycopg2.connect(self._dsn)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for each in statements:
                    cursor.execute(each)


def _line(said: dict[str, Any]) -> str:
    return f"{said['id']}\t{said['a']}\t{said['n']}\t{said['w'].isoformat()}\t{said['b']}\n"


def _json(said: dict[str, Any]) -> bytes:
    return orjson.dumps({**said, "n": float(said["n"])})


def measured(endpoints: Endpoints, *, rows: int, runs: int) -> dict[str, float]:
    """Return the median of each figure."""
    bench, figures = Bench(endpoints, rows), Figures()
    for number in range(runs):
        noise = Noise([])
        figures.add("copy_rows_per_s", bench.limit())
        for form in ("avro", "json"):
            for what, mode, again in _CASES:
                rate, spent = bench.task(form, mode, again=again)
                figures.add(f"{form}_{what}_rows_per_s", rate)
                figures.add(f"{form}_{what}_cpu_us", spent)
        figures.add("noise", noise.share())
        say(f"run {number + 1} of {runs}: {figures.medians()}")
    return figures.medians()


def main(
    rows: Annotated[int, typer.Option(help="Rows on each topic.")] = 500_000,
    runs: Annotated[int, typer.Option(help="The median of so many counts.")] = 3,
    running: Annotated[
        Path | None, typer.Option(help="Folder of a stack that runs; else one is started.")
    ] = None,
) -> None:
    """Measure the speed of a sink's task."""
    collect_rarely()  # as `changelog serve` does
    if running is not None:
        told = measured(Stack(running).endpoints(), rows=rows, runs=runs)
    else:
        with tempfile.TemporaryDirectory(prefix="changelog-bench-") as folder:
            Path(folder).chmod(0o755)
            with Stack(Path(folder) / "stack", postgres_settings=POSTGRES) as stack:
                told = measured(stack.endpoints(), rows=rows, runs=runs)
    print(json.dumps({**told, "rows": rows, "runs": runs, **about()}))


if __name__ == "__main__":
    typer.run(main)
