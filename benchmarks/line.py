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

from benchmarks.machine import Memory, cpu_s
from benchmarks.orders import execute
from changelog.stack.servers.postgres import bin_dir
from changelog.stack.stack import Stack

POSTGRES = {
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "60min",
    "wal_sender_timeout": "0",
    "autovacuum": "off",
}
DEADLINE_S = 900.0
_NAP_S = 0.2


@dataclass
class Drained:
    """How long something took, and what it cost.

    Attributes:
        rows: rows that were changed or copied.
        from_start_s: seconds since capture was started as a process.
        from_active_s: seconds since its slot was in use.
        from_first_s: seconds between the first message and the last.
        cpu_us_per_row: CPU time of capture and its workers, start-up included.
        peak_mb: their greatest memory, pages that they share counted once.
        early_mb: the same of the first tenth of the messages.
    """

    rows: int
    from_start_s: float
    from_active_s: float
    from_first_s: float
    cpu_us_per_row: float
    peak_mb: float
    early_mb: float


@dataclass(frozen=True)
class Limit:
    """A slot that pg_recvlogical drains to nowhere: what the WAL sender can give at most."""

    dsn: str
    slot: str
    publication: str
    end: str

    def seconds(self) -> float:
        """Drain it, drop it, and return the time from start to end."""
        at = parse_dsn(self.dsn)
        words = [str(bin_dir(16) / "pg_recvlogical"), "-h", at["host"], "-p", at["port"]]
        words += ["-U", at["user"], "-d", at["dbname"], "-S", self.slot, "--start", "-P"]
        words += ["pgoutput", "-o", "proto_version=1", "-F", "0"]
        words += ["-o", f"publication_names={self.publication}"]
        words += ["--endpos", self.end, "--no-loop", "-f", "/dev/null"]
        began = time.monotonic()
        subprocess.run(words, check=True, timeout=DEADLINE_S)
        seconds = time.monotonic() - began
        execute(self.dsn, f"SELECT pg_drop_replication_slot('{self.slot}')")
        return seconds


@dataclass
class Line:
    """A source, a broker and a registry; capture comes and goes.

    Attributes:
        stack: the servers.
        work: a folder for settings and logs.
        slot: name of the slot, and prefix of the topics.
        settings: more lines of `[capture]`.
        table: what is captured.
    """

    stack: Stack
    work: Path
    slot: str
    settings: str = ""
    table: str = "orders"
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Write the project."""
        endpoints = self.stack.endpoints()
        self.dsn, self.brokers = endpoints.postgres, endpoints.brokers
        self.topic = f"{self.slot}.{self.table}"
        self.project = self.work / self.slot
        self.project.mkdir(parents=True)
        (self.project / "changelog.toml").write_text(
            f'postgres.dsn = "{self.dsn}"\nkafka.brokers = "{self.brokers}"\n'
            f'registry.url = "{endpoints.schema_registry}"\n'
            f'[capture]\nslot = "{self.slot}"\ntopic_prefix = "{self.slot}"\n'
            f'tables = ["public.{self.table}"]\npartitions = 1\n{self.settings}\n',
            encoding="utf-8",
        )

    def start(self) -> int:
        """Start capture; returns its process id."""
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
            before = end()
            began = time.monotonic()
            memory = Memory(self.start())
            self._wait(lambda: memory.look() or self._is_active() or end() > before)
            active = time.monotonic()
            self._wait(lambda: memory.look() or end() > before)
            first = time.monotonic()
            self._wait(lambda: memory.look() or end() >= before + messages // 10)
            early_mb = memory.peak_mb
            self._wait(lambda: memory.look() or end() >= before + messages)
            done = time.monotonic()
            spent = cpu_s(memory.pid)
            return Drained(
                rows=rows,
                from_start_s=done - began,
                from_active_s=done - active,
                from_first_s=done - first,
                cpu_us_per_row=spent / rows * 1e6,
                peak_mb=memory.peak_mb,
                early_mb=early_mb,
            )

    def settle(self) -> None:
        """Wait until the slot needs no WAL of what was drained, then stop capture.

        Else the next start would decode it once more. PostgreSQL moves `restart_lsn` to a record
        of the running transactions, and forgets those that come while it waits for an earlier
        one to be confirmed: so they are written again and again.
        """
        ((lsn,),) = execute(self.dsn, "CHECKPOINT", "SELECT pg_current_wal_insert_lsn()")
        query = (
            f"SELECT restart_lsn >= '{lsn}' FROM pg_replication_slots "
            f"WHERE slot_name = '{self.slot}'"
        )

        def settled() -> bool:
            execute(self.dsn, "SELECT pg_log_standby_snapshot()")
            time.sleep(_NAP_S)
            return execute(self.dsn, query) == [(True,)]

        self._wait(settled)
        self.stop()

    def limit(self) -> Limit:
        """Copy the slot where it stands, to be drained by another program."""
        copy = f"{self.slot}_copy_{time.monotonic_ns()}"
        ((end,),) = execute(
            self.dsn,
            f"SELECT pg_copy_logical_replication_slot('{self.slot}', '{copy}')",
            "CHECKPOINT",
            "SELECT pg_current_wal_flush_lsn()",
        )
        return Limit(self.dsn, copy, self.slot, str(end))

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
    """Return a function: the end of a topic's one partition; 0 while it is not there."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench", "log_level": 0})
    place = TopicPartition(topic, 0)

    def end() -> int:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=10, cached=False)[1])
        except Exception:  # noqa: BLE001 - the topic is made by capture
            return 0

    with closing(consumer):
        yield end
