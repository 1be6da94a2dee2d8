"""How soon a start says something: `make bench-start`.

`first_record_s` is the time from the start of `changelog capture` to the record of a change that
waited for it, on a log that is there; `first_record_limit_s` beside it that of a Python program
which loads the same two clients, asks PostgreSQL one thing and writes one record. `help_s` is
`changelog --help`, `python_s` a Python that does nothing. `table_s` is a Python that opens the log
and takes a table of 1,000 rows as Arrow, `row_s` one that takes a row by its key (docs/python.md);
`log_import_s` the import alone. CPU is that of the process, and what a
busy machine leaves alone. The last line is one JSON object of medians.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import psutil
import psycopg2
import typer
from confluent_kafka import Consumer, TopicPartition

from benchmarks.figures import Figures, say, tell
from benchmarks.machine import about
from changelog.stack.stack import Stack

PREFIX = f"start{os.getpid()}"
TOPIC = f"{PREFIX}.notes"
OTHER = f"{PREFIX}-bare"
MAKE = (sys.executable, "-m", "changelog", "topics", "--create")
CAPTURE = (sys.executable, "-m", "changelog", "capture")
DEADLINE_S = 60.0
ROWS = 1_000
BARE = """
import sys
import psycopg2
from confluent_kafka import Producer
connection = psycopg2.connect(sys.argv[1])
connection.cursor().execute("SELECT 1")
producer = Producer({"bootstrap.servers": sys.argv[2], "linger.ms": 0})
producer.produce(sys.argv[3], b"value", b"key")
producer.flush()
"""

IMPORT = "from replay import Log"
TABLE = f"{IMPORT}; assert Log.open({{folder!r}}).table('notes').arrow().num_rows >= {ROWS}"
ROW = f"{IMPORT}; assert Log.open({{folder!r}}).table('notes').row(7)['text'] == 'is there'"


class Topic:
    """A topic whose next record is waited for."""

    def __init__(self, brokers: str, name: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench-start"})
        self._name = name

    @contextmanager
    def expected(
        self, figures: Figures, figure: str, words: Sequence[str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process and measure until its first record is here; gives the process."""
        ends = self._ends()
        self._consumer.assign(ends)
        begun = time.monotonic()
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
            while self._consumer.poll(0.001) is None:
                if time.monotonic() > begun + DEADLINE_S:
                    process.kill()
                    raise TimeoutError(f"no record of {words[-1]}")
            figures.add(figure, time.monotonic() - begun)
            say(f"{figure}: {time.monotonic() - begun:.2f}")
            yield process

    def _ends(self) -> list[TopicPartition]:
        partitions = (
            self._consumer.list_topics(self._name, timeout=10).topics[self._name].partitions
        )
        places = [TopicPartition(self._name, number) for number in partitions]
        return [
            TopicPartition(
                self._name, each.partition, self._consumer.get_watermark_offsets(each)[1]
            )
            for each in places
        ]


def timed(figures: Figures, figure: str, words: Sequence[str]) -> None:
    """Run to the end; keep the time and the CPU."""
    begun, used = time.monotonic(), os.times()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    now = os.times()
    cpu = now.children_user + now.children_system - used.children_user - used.children_system
    figures.add(f"{figure}_s", time.monotonic() - begun)
    figures.add(f"{figure}_cpu_s", cpu)


def main(
    runs: Annotated[int, typer.Option(help="Runs; the medians are told.")] = 7,
    stack: Annotated[Path | None, typer.Option(help="A stack that runs; else its own.")] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Measure starts."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="bench-start-") as folder:
        Path(folder).chmod(0o755)
        if stack is not None:
            _measure(Stack(stack), Path(folder), figures, runs)
        else:
            with Stack(Path(folder) / "stack") as running:
                _measure(running, Path(folder), figures, runs)
    tell({**figures.medians(), "runs": runs, **about()}, out)


def _measure(stack: Stack, folder: Path, figures: Figures, runs: int) -> None:
    ends = stack.endpoints()
    (folder / "changelog.toml").write_text(
        f'postgres.dsn = "{ends.postgres}"\nkafka.brokers = "{ends.brokers}"\n'
        f'registry.url = "{ends.schema_registry}"\n[capture]\nslot = "{PREFIX}"\n'
        f'topic_prefix = "{PREFIX}"\ntables = ["public.notes"]\n'
    )
    _run(ends.postgres, "CREATE TABLE notes (id serial PRIMARY KEY, text text)")
    filled = "INSERT INTO notes (text) SELECT 'is there' FROM generate_series(1, %d)"
    _run(ends.postgres, filled % ROWS)
    project = ("--project", str(folder))
    subprocess.run([*CAPTURE, *project, "--until", "now"], check=True, stderr=subprocess.DEVNULL)
    subprocess.run([*MAKE, OTHER, *project], check=True, stdout=subprocess.DEVNULL)
    topic, other = Topic(ends.brokers, TOPIC), Topic(ends.brokers, OTHER)
    for _ in range(runs):
        timed(figures, "python", [sys.executable, "-c", "pass"])
        timed(figures, "help", [sys.executable, "-m", "changelog", "--help"])
        for figure, code in (("log_import", IMPORT), ("table", TABLE), ("row", ROW)):
            words = [sys.executable, "-c", code.format(folder=str(folder))]
            timed(figures, figure, words)
        _run(ends.postgres, "INSERT INTO notes (text) VALUES ('waits')")
        with topic.expected(figures, "first_record_s", [*CAPTURE, *project]) as process:
            used = psutil.Process(process.pid).cpu_times()
            figures.add("first_record_cpu_s", used.user + used.system)
            process.terminate()
        bare = [sys.executable, "-c", BARE, ends.postgres, ends.brokers, OTHER]
        with other.expected(figures, "first_record_limit_s", bare):
            pass
        subprocess.run([*CAPTURE, *project, "--until", "now"], check=False, capture_output=True)
    subprocess.run(
        [sys.executable, "-m", "changelog", "slot", "drop", "--yes", *project], check=True
    )
    _run(ends.postgres, "DROP TABLE notes")


def _run(dsn: str, statement: str) -> None:
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(statement)


if __name__ == "__main__":
    typer.run(main)
