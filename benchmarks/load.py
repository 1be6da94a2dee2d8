"""How fast `changelog load` fills a table, beside COPY of rows in a file: `make bench-load`.

The log is that of `benchmarks.order_log`: rows of ten columns in Avro, two partitions, and the
tombstones of some, which are left out. Beside it stand the same rows as JSON and as CSV; of texts
keys and values are taken, beside COPY of these two columns. The measure is the server's own
`COPY … FROM 'file'` of what `COPY … TO` wrote of the loaded table, into the same table made anew.
Each is done in turn, with a checkpoint before it; one run of each goes before and does not count.

`load_vs_copy` is beside COPY's text, the form in which people have rows in files;
`load_vs_copy_binary` is beside the binary one, which the server takes quicker (decision 0106). Both
are by the command's own clock, from its first question to the servers to the last commit; those
of `command_` have its start in it too. The last line is one JSON object of medians.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import psutil
import psycopg2
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import Figures, say, tell
from benchmarks.machine import Noise
from benchmarks.order_log import PARTITIONS, Size, write
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack

_TYPES = (
    "id bigint {key}, customer_id bigint, status text, amount numeric(12,2), "
    "created_at timestamptz, updated_at timestamp, active boolean, score double precision, "
    "attrs jsonb, note text"
)
_JSON, _CSV = "orders-json", "orders-csv"
_WAIT_S = 60.0


class Bench:
    """Servers with a log, and one table that is filled again and again."""

    def __init__(self, at: Endpoints, rows: int, jobs: int) -> None:
        """Write the log."""
        self._at, self._jobs = at, jobs
        size = Size(rows, rows)
        self._size = Size(2 * size.keys - rows, rows)
        self.rows = self._size.keys
        self._stay = rows  # of these, where tombstones take rows away
        self.figures = Figures()
        write(
            KafkaConnection(brokers=at.brokers),
            RegistryConnection(url=at.schema_registry),
            self._size,
        )

    def _execute(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(psycopg2.connect(self._at.postgres)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []

    def _fresh(self, *, keyed: bool) -> None:
        self._execute("DROP TABLE IF EXISTS orders")
        self._execute("DROP TABLE IF EXISTS changelog_connect_offsets")
        self._execute(f"CREATE TABLE orders ({_TYPES.format(key='PRIMARY KEY' if keyed else '')})")
        self._execute("CHECKPOINT")

    def load(self, name: str, topic: str, *more: str, counts: bool) -> None:
        """Load a topic into the table."""
        self._fresh(keyed="upsert" in more)
        words = [sys.executable, "-m", "changelog", "load", topic, "--json", "--table", "orders"]
        words += ["--broker", self._at.brokers, "--schema-registry", self._at.schema_registry]
        words += ["--into", self._at.postgres, "--jobs", str(self._jobs), *more]
        began = time.monotonic()
        ran = subprocess.run(words, check=True, stdout=subprocess.PIPE)
        took = time.monotonic() - began
        found = json.loads(ran.stdout)
        self._check(self._stay if "upsert" in more else self.rows)
        self._keep(name, found["seconds"], counts=counts)
        self._keep(f"{name}_command", took, counts=counts)

    def copy(
        self, name: str, file: Path, options: str, *, keyed: bool, counts: bool, columns: str = ""
    ) -> None:
        """Have the server read the file."""
        self._fresh(keyed=keyed)
        began = time.monotonic()
        self._execute(f"COPY orders {columns} FROM '{file}' {options}")
        self._keep(name, time.monotonic() - began, counts=counts)
        self._check(self.rows)

    def _check(self, rows: int) -> None:
        found = self._execute("SELECT count(*), count(DISTINCT id) FROM orders")
        if found != [(rows, rows)]:
            raise SystemExit(f"the table has {found}, not {rows} rows")

    def _keep(self, name: str, seconds: float, *, counts: bool) -> None:
        per_s = self.rows / seconds
        say(f"{name}: {per_s:,.0f} rows/s" + ("" if counts else ", not counted"))
        if counts:
            self.figures.add(f"{name}_per_s", per_s)

    @property
    def topic(self) -> str:
        """Return the topic of the rows in Avro."""
        return self._size.topic

    def write_files(self, folder: Path) -> tuple[Path, Path]:
        """Write the table that was loaded: as text, and in the binary format."""
        text, binary = folder / "orders.txt", folder / "orders.bin"
        self._execute(f"COPY orders TO '{text}'")
        self._execute(f"COPY orders TO '{binary}' (FORMAT binary)")
        return text, binary

    def write_pairs(self, folder: Path) -> Path:
        """Write what a load of texts takes of the rows as JSON: the key, and the whole value."""
        file = folder / "pairs.txt"
        self._execute(f"COPY (SELECT id, row_to_json(orders)::text FROM orders) TO '{file}'")
        return file

    def write_json(self) -> None:
        """Write the rows of the table as JSON to a topic."""
        with (
            closing(psycopg2.connect(self._at.postgres)) as connection,
            connection.cursor("rows") as cursor,
        ):
            cursor.itersize = 10_000
            cursor.execute("SELECT id::text, row_to_json(orders)::text FROM orders")
            self._write(_JSON, cursor)

    def write_csv(self, folder: Path) -> None:
        """Write the rows of the table as CSV to a topic; none of them has two lines."""
        file = folder / "orders.csv"
        self._execute(f"COPY orders TO '{file}' (FORMAT csv)")
        with file.open("rb") as lines:
            bare = (line.rstrip(b"\n") for line in lines)
            self._write(_CSV, ((line.split(b",", 1)[0], line) for line in bare))

    def _write(self, topic: str, records: Iterable[tuple[str | bytes, str | bytes]]) -> None:
        kafka = KafkaConnection(brokers=self._at.brokers)
        admin = AdminClient(kafka.client_config())
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
        producer = Producer({**kafka.client_config(), "compression.type": "lz4", "linger.ms": 20})
        for key, value in records:
            while True:
                try:
                    producer.produce(topic, key=key, value=value)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(_WAIT_S):
            raise SystemExit("not all records were written")


def main(
    runs: Annotated[int, typer.Option(help="Runs; the medians are told.")] = 3,
    rows: Annotated[int, typer.Option(help="Rows that stay.")] = 2_000_000,
    jobs: Annotated[int, typer.Option(help="Jobs of the load.")] = 2,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Measure loads beside COPY of the same rows in a file."""
    with tempfile.TemporaryDirectory(prefix="bench-load-") as place:
        folder = Path(place)
        folder.chmod(0o777)  # the server writes and reads files here as another user
        with Stack(folder / "stack") as stack:
            noise = Noise([pid for part in stack.status() if (pid := part.pid)])
            bench = Bench(stack.endpoints(), rows, jobs)
            ignoring = ("--tombstones", "ignore")
            bench.load("load", bench.topic, *ignoring, counts=False)
            text, binary = bench.write_files(folder)
            pairs = bench.write_pairs(folder)
            bench.write_json()
            bench.write_csv(folder)
            for number in range(runs + 1):
                counts = number > 0
                bench.load("load", bench.topic, *ignoring, counts=counts)
                bench.copy("copy_text", text, "", keyed=False, counts=counts)
                bench.copy("copy_binary", binary, "(FORMAT binary)", keyed=False, counts=counts)
                bench.load("load_json", _JSON, counts=counts)
                bench.load("load_csv", _CSV, "--value-as", "csv", counts=counts)
                of_texts = ("--value-as=text", "--key-as=text", "--columns=id=key,note=value")
                bench.load("load_text", _JSON, *of_texts, counts=counts)
                bench.copy(
                    "copy_pairs", pairs, "", keyed=False, counts=counts, columns="(id, note)"
                )
                bench.load("load_upsert", bench.topic, "--mode", "upsert", counts=counts)
                bench.copy("copy_keyed", binary, "(FORMAT binary)", keyed=True, counts=counts)
            told: dict[str, Any] = dict(bench.figures.medians())
            told |= {"rows": bench.rows, "runs": runs, "jobs": jobs}
            told |= {"noise": round(noise.share(), 3), "cores": psutil.cpu_count()}
    for way in ("load", "load_command"):
        name = way.removeprefix("load_") + "_vs_copy"
        told[name] = round(told[f"{way}_per_s"] / told["copy_text_per_s"], 3)
        told[f"{name}_binary"] = round(told[f"{way}_per_s"] / told["copy_binary_per_s"], 3)
    for form in ("json", "csv"):
        told[f"{form}_vs_copy"] = round(told[f"load_{form}_per_s"] / told["copy_text_per_s"], 3)
    told["text_vs_copy"] = round(told["load_text_per_s"] / told["copy_pairs_per_s"], 3)
    told["upsert_vs_copy"] = round(told["load_upsert_per_s"] / told["copy_keyed_per_s"], 3)
    tell(told, out)


if __name__ == "__main__":
    typer.run(main)
