"""The servers of a measurement, and capture as a process of its own on them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from psycopg2.extensions import parse_dsn

from benchmarks.machine import cpu_s, forget_peak, peak_mb
from benchmarks.orders import execute
from changelog.stack.postgres import bin_dir
from changelog.stack.stack import Stack

POSTGRES = {
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "60min",
    "wal_sender_timeout": "0",
    "autovacuum": "off",
}
DEADLINE_S = 900.0


@dataclass
class Drained:
    """How long something took, from the moment at which the slot was in use, and what it cost."""

    rows: int
    seconds: float
    from_start_s: float
    cpu_us_per_row: float
    peak_mb: float

    @property
    def per_s(self) -> float:
        """Give rows per second."""
        return self.rows / self.seconds


@dataclass
class Line:
    """A source, a broker and a registry; capture comes and goes.

    Attributes:
        stack: the servers.
        work: a folder for settings and logs.
        slot: name of the slot, and prefix of the topics.
        settings: more lines of `[capture]`.
    """

    stack: Stack
    work: Path
    slot: str
    settings: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Write the project."""
        endpoints = self.stack.endpoints()
        self.dsn, self.brokers = endpoints.postgres, endpoints.brokers
        self.topic = f"{self.slot}.orders"
        self.project = self.work / self.slot
        self.project.mkdir(parents=True)
        (self.project / "changelog.toml").write_text(
            f'postgres.dsn = "{self.dsn}"\nkafka.brokers = "{self.brokers}"\n'
            f'registry.url = "{endpoints.schema_registry}"\n'
            f'[capture]\nslot = "{self.slot}"\ntopic_prefix = "{self.slot}"\n'
            f'tables = ["public.orders"]\npartitions = 1\n{self.settings}\n',
            encoding="utf-8",
        )

    def start(self) -> int:
        """Start capture; gives its process id."""
        words = [sys.executable, "-m", "changelog", "capture", "--project", str(self.project)]
        with (self.project / "capture.log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        return self.process.pid

    def stop(self) -> None:
        """Stop capture cleanly: the slot stands at its last frontier then."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            if self.process.wait(60) != 0:
                raise SystemExit((self.project / "capture.log").read_text(encoding="utf-8"))
            self.process = None

    def forget(self) -> None:
        """Drop slot and publication."""
        self.stop()
        execute(
            self.dsn,
            f"SELECT pg_drop_replication_slot('{self.slot}')",
            f"DROP PUBLICATION {self.slot}",
        )

    def drained(self, rows: int, messages: int) -> Drained:
        """Start capture and wait until so many messages have been added to the topic."""
        with _end_of(self.brokers, self.topic) as end:
            goal = end() + messages
            began = time.monotonic()
            pid = self.start()
            forget_peak(pid)
            self._wait(lambda: self._is_active() or end() >= goal)
            active = time.monotonic()
            self._wait(lambda: end() >= goal)
            done = time.monotonic()
            spent = cpu_s(pid)
            return Drained(rows, done - active, done - began, spent / rows * 1e6, peak_mb(pid))

    def limit_s(self) -> float:
        """Give the seconds in which pg_recvlogical drains what the slot has, to nowhere."""
        copy = f"{self.slot}_copy"
        ((end,),) = execute(
            self.dsn,
            f"SELECT pg_copy_logical_replication_slot('{self.slot}', '{copy}')",
            "SELECT pg_current_wal_flush_lsn()",
        )
        at = parse_dsn(self.dsn)
        words = [str(bin_dir(16) / "pg_recvlogical"), "-h", at["host"], "-p", at["port"]]
        words += ["-U", at["user"], "-d", at["dbname"], "-S", copy, "--start", "-P", "pgoutput"]
        words += ["-o", "proto_version=1", "-o", f"publication_names={self.slot}", "-F", "0"]
        words += ["--endpos", str(end), "--no-loop", "-f", "/dev/null"]
        try:
            began = time.monotonic()
            subprocess.run(words, check=True, timeout=DEADLINE_S)
            return time.monotonic() - began
        finally:
            execute(self.dsn, f"SELECT pg_drop_replication_slot('{copy}')")

    def _is_active(self) -> bool:
        rows = execute(
            self.dsn, f"SELECT active FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        )
        return rows == [(True,)]

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if self.process is None or self.process.poll() is not None:
                raise SystemExit((self.project / "capture.log").read_text(encoding="utf-8"))
            if time.monotonic() > deadline:
                raise SystemExit(f"not done in {DEADLINE_S:.0f} s")
            time.sleep(0.01)


@contextmanager
def _end_of(brokers: str, topic: str) -> Iterator[Callable[[], int]]:
    """Give a function that asks for the end of a topic's one partition; 0 while it is not there."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench", "log_level": 0})
    place = TopicPartition(topic, 0)

    def end() -> int:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=10, cached=False)[1])
        except Exception:  # noqa: BLE001 - the topic is made by capture
            return 0

    with closing(consumer):
        yield end
