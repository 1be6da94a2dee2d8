"""How fast a rebuild is, beside its limit and the job most people write: `make bench-replay`.

Each size has a log of its own (`benchmarks.order_log`), which is kept in `--logs` for the next
time. For the first size everything is measured, for the others the rebuild, its limit, and the
rebuild with its proof (`verified_vs_rebuild`); all other rebuilds are published without. All parts
of a run share one Spark session, in which each log was rebuilt once; figures named `cold` are of
`rebuild-view` as a process of its own, and so is the peak of memory. At last a table of the first
size's shape is captured, and refreshed (`benchmarks.refresh`).

The last line is one JSON object of medians. `--out` keeps it, with the sizes that were measured
before, and draws the chart of all sizes beside it.
"""

from __future__ import annotations

import io
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from pyspark.sql import SparkSession

from benchmarks import bare_spark, order_log, refresh
from benchmarks.chart import kept
from benchmarks.figures import Figures, say
from benchmarks.machine import LONG_LOOK_S, Memory, Spent, cpu_s, measured
from benchmarks.order_log import Size
from benchmarks.spark_jobs import FinalRows, Jobs, digest
from changelog.config import BROKERS, REGISTRY, load_project
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.log.frontier import Frontier
from changelog.runtime.process.garbage_collection import collect_rarely
from changelog.stack.base.places import cache_dir
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack
from replay.spark.session import session
from views.base.config import RebuildSettings
from views.cli import app

VIEW = "orders_copy"
PER_KEY = 5
MANY_PER_KEY = 20
SMALL = Size(records=5_000, live=1_000)
LOOK_S = 0.05
TIGHT = 10
LEAST_HEAP_MB = 450
"""What Spark asks for, of which it sets 300 MiB apart."""
LEAST_TOPIC = 4
"""Less than so many times the heap is no test of anything."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log that stands, and the project that rebuilds its view."""

    size: Size
    frontier: Frontier
    project: Path

    @property
    def table(self) -> Path:
        """Return the view as a Delta table."""
        return self.project / "warehouse" / VIEW

    def words(self, verify: str) -> list[str]:
        """Return the arguments of the command."""
        words = [VIEW, "--project", str(self.project), "--keep", "1", "--json"]
        return [*words, "--verify", verify]

    def forget(self) -> None:
        """Let the next rebuild be a first one."""
        shutil.rmtree(self.project / "warehouse", ignore_errors=True)


class Bench:
    """The measurements, on servers that run."""

    def __init__(self, endpoints: Endpoints, work: Path) -> None:
        self.kafka = KafkaConnection(brokers=endpoints.brokers)
        self.registry = RegistryConnection(url=endpoints.schema_registry)
        self.work = work
        self.all: dict[str, Figures] = {}
        self._session: SparkSession | None = None

    def log(self, size: Size) -> Log:
        """Return a log, written unless it is there."""
        say(f"the log of {size.records:,} records, {size.live:,} live keys")
        frontier = order_log.write(self.kafka, self.registry, size)
        return Log(size, frontier, self._project(size, size.prefix))

    def with_heap(self, log: Log, heap_mb: int) -> Log:
        """Return the same log with a project of its own, whose session has so much heap."""
        text = f'[spark.settings]\n"spark.driver.memory" = "{heap_mb}m"\n'
        name = f"{log.size.prefix}_{heap_mb}m"
        return replace(log, project=self._project(log.size, name, text))

    def _project(self, size: Size, name: str, text: str = "") -> Path:
        project = self.work / name
        (project / "views").mkdir(parents=True)
        (project / "changelog.toml").write_text(
            f'kafka.brokers = "{self.kafka.brokers}"\nregistry.url = "{self.registry.url}"\n'
            f'[capture]\nslot = "{size.prefix}"\ntopic_prefix = "{size.prefix}"\n{text}',
            encoding="utf-8",
        )
        (project / "views" / f"{VIEW}.sql").write_text(
            "-- key: id\n-- sinks: delta\nSELECT * FROM orders\n", encoding="utf-8"
        )
        return project

    def spark(self, log: Log) -> SparkSession:
        """Return the one session, made as the command makes it."""
        if self._session is None:
            self._session = session(
                RebuildSettings(
                    project=load_project(log.project, needs=[BROKERS, REGISTRY])
                ).session()
            )
            self.rebuild(log)  # what only a first job does is measured by the cold command
        return self._session

    def warm(self, logs: list[Log]) -> None:
        """Rebuild each once: the first tasks of a size run on code that is not compiled yet."""
        for log in logs:
            log.forget()
            self.rebuild(log)

    def figures(self, log: Log) -> Figures:
        """Return what was measured of a log."""
        return self.all.setdefault(log.size.prefix, Figures())

    def part(self, log: Log, name: str, job: Callable[[], object]) -> Spent:
        """Measure one job in the session."""
        jvm = self.spark(log).sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        with measured(jvm) as spent:
            job()
        self._keep(log, name, spent)
        return spent

    def _keep(self, log: Log, name: str, spent: Spent) -> None:
        figures = self.figures(log)
        figures.add(f"{name}_s", spent.seconds)
        figures.add(f"{name}_cpu_s", spent.cpu_s)
        figures.add(f"{name}_peak_mb", spent.peak_mb)
        say(
            f"{log.size.records:,} records, {name}: {spent.seconds:.2f} s, "
            f"{spent.cpu_s:.1f} s of CPU, {spent.peak_mb:.0f} MB"
        )

    def rebuild(self, log: Log, verify: str = "none") -> dict[str, Any]:
        """Run the command in this process, from its words to its result."""
        said = io.StringIO()
        with redirect_stdout(said):
            app(log.words(verify), standalone_mode=False)
        result: dict[str, Any] = json.loads(said.getvalue())
        if not result["published"]:
            raise SystemExit(f"not published: {said.getvalue()}")
        return result

    def cold(self, log: Log, name: str = "cold") -> None:
        """Run the command as a process of its own: session, memory and all."""
        log.forget()
        words = ["-c", "from views.cli import main; main()", *log.words("none")]
        out = self._alone(log, name, words)
        self.figures(log).add("session_start_s", json.loads(out)["seconds"]["session"])

    def bare(self, log: Log) -> None:
        """Run the least job on Spark and Delta as a process of its own."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            self._alone(log, "bare", ["-m", bare_spark.__name__, f"{folder}/table"])

    def _alone(self, log: Log, name: str, words: list[str]) -> bytes:
        """Measure a process of Python with these arguments; returns what it printed."""
        began = time.monotonic()
        process = psutil.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        memory, cpu = Memory(process.pid, every_s=LONG_LOOK_S), 0.0
        while process.poll() is None:  # its one line of output waits in the pipe
            memory.look()
            cpu = max(cpu, cpu_s(process.pid))
            time.sleep(LOOK_S)
        seconds = time.monotonic() - began
        out: bytes = process.stdout.read()
        if process.returncode != 0:
            raise SystemExit(f"{name} ended with {process.returncode}: {out.decode()}")
        self._keep(log, name, Spent(seconds, cpu, memory.peak_mb))
        return out


def main(
    runs: Annotated[int, typer.Option(help="Runs; the medians are told.")] = 3,
    sizes: Annotated[str, typer.Option(help="Millions of records; all parts of the first.")] = "5",
    logs: Annotated[
        Path | None, typer.Option(help="Folder that keeps servers and logs.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file to bring up to date, with a chart beside it.")
    ] = None,
) -> None:
    """Measure rebuilds beside their limit, the naive job and decoding."""
    collect_rarely()  # as the command does
    first, *more = (_size(float(millions), PER_KEY) for millions in sizes.split(","))
    with tempfile.TemporaryDirectory(prefix="bench-replay-") as folder:
        # Under root the servers run as another user.
        Path(folder).chmod(0o755)
        with Stack(logs or cache_dir() / "bench-replay") as stack:
            bench = Bench(stack.endpoints(), Path(folder))
            many, small = _size(first.records / 1e6, MANY_PER_KEY), SMALL
            told = _measured(bench, [first, *more], many, small, runs)
    _add_refreshes(told, first, runs)
    told |= {"runs": runs, "cores": psutil.cpu_count(), "memory_mb": _memory_mb()}
    told |= {"machine": platform.processor() or platform.machine()}
    if out is not None:
        told = kept(out, told)
    print(json.dumps(told))


def _size(millions: float, per_key: int) -> Size:
    records = round(millions * 1_000_000)
    return Size(records=records, live=records // per_key)


def _measured(
    bench: Bench, sizes: list[Size], many: Size, small: Size, runs: int
) -> dict[str, Any]:
    every = [bench.log(size) for size in [*sizes, many, small]]
    *logs, many_log, small_log = every
    for number in range(1, runs + 1):
        say(f"run {number} of {runs}: commands of their own")
        bench.cold(small_log)
        bench.bare(small_log)
        for log in logs:
            bench.cold(log)
        bench.spark(small_log)
        say("in one session")
        if number == 1:
            bench.warm(logs)
        _measure_small(bench, small_log)
        for log in logs:
            _measure_rebuild(bench, log, is_full=log is logs[0])
            _measure_verified(bench, log)
        _measure_many(bench, many_log)
    for log in logs:
        _measure_tight(bench, log)
    return _told(bench, logs, many_log, small_log)


def _add_refreshes(told: dict[str, Any], size: Size, runs: int) -> None:
    """Measure refreshes of a table of the same shape, with capture before them."""
    say("refreshes")
    found = refresh.measured(runs=runs, rows=size.live, updates=size.records // size.live - 1)
    told["sizes"][size.label]["refresh"] = found
    told["refresh_share"] = found["rows_share_s"]
    told["refresh_marked_share"] = found["rows_marked_share_s"]
    told["refresh_verified_share"] = found["rows_verified_share_s"]


def _measure_small(bench: Bench, log: Log) -> None:
    bench.part(log, "rebuild", lambda: bench.rebuild(log))
    bench.part(log, "rebuild_verified", lambda: bench.rebuild(log, "full"))


def _measure_rebuild(bench: Bench, log: Log, *, is_full: bool) -> None:
    """Measure the limit before and after the rebuild: the mean of the two counts."""
    spark = bench.spark(log)
    jobs = Jobs(spark, bench.kafka, log.frontier, log.size.topic)
    log.forget()
    bench.part(log, "read", jobs.read)
    bench.part(log, "rebuild", lambda: bench.rebuild(log))
    bench.part(log, "read", jobs.read)
    rows, copy = FinalRows(spark, log.table), log.project / "copy"
    bench.part(log, "write", lambda: rows.write(copy))
    rows.forget()
    shutil.rmtree(copy)
    if is_full:
        bench.part(log, "decode", jobs.decode)
        for name, tuned in (("naive", False), ("naive_tuned", True)):
            bench.part(log, name, lambda tuned=tuned: jobs.naive(copy, tuned=tuned))  # type: ignore[misc]
            if digest(spark, copy) != digest(spark, log.table):
                raise SystemExit("the naive job and the rebuild do not have the same rows")
            shutil.rmtree(copy)


def _measure_many(bench: Bench, log: Log) -> None:
    log.forget()
    jobs = Jobs(bench.spark(log), bench.kafka, log.frontier, log.size.topic)
    bench.part(log, "decode", jobs.decode)
    bench.part(log, "rebuild", lambda: bench.rebuild(log))


def _measure_verified(bench: Bench, log: Log) -> None:
    """Measure what the default adds: every row compared by the verifier."""
    log.forget()
    results: list[dict[str, Any]] = []
    name, figures = "rebuild_verified", bench.figures(log)
    spent = bench.part(log, name, lambda: results.append(bench.rebuild(log, "full")))
    figures.add("verifier_mb", spent.own_mb)
    certificate = results[0]["certificates"]["delta"]["certificate"]
    for stage, seconds in certificate["stages"].items():
        figures.add(f"verify_{stage.replace(' ', '_')}_s", seconds)


def _measure_tight(bench: Bench, log: Log) -> None:
    """Rebuild once with a heap of a tenth of what the topic holds, or Spark's least."""
    jobs = Jobs(bench.spark(log), bench.kafka, log.frontier, log.size.topic)
    topic_mb = jobs.record_bytes() / 2**20
    heap_mb = max(LEAST_HEAP_MB, int(topic_mb / TIGHT))
    bench.figures(log).add("topic_mb", topic_mb)
    if topic_mb >= LEAST_TOPIC * heap_mb:
        bench.figures(log).add("tight_heap_mb", heap_mb)
        bench.cold(bench.with_heap(log, heap_mb), "tight")


def _told(bench: Bench, logs: list[Log], many: Log, small: Log) -> dict[str, Any]:
    sizes: dict[str, dict[str, float]] = {}
    for log in logs:
        found = bench.figures(log).medians()
        limit = found["read_s"] + found["write_s"]
        found |= {"limit_s": round(limit, 4), "rebuild_vs_limit": found["rebuild_s"] / limit}
        found |= {"verified_vs_rebuild": found["rebuild_verified_s"] / found["rebuild_s"]}
        sizes[log.size.label] = {"live_keys": log.size.live, **found}
    whole = next(iter(sizes.values()))
    of_many, of_small = bench.figures(many).medians(), bench.figures(small).medians()
    per_record = 1e6 / many.size.records
    return {
        "rebuild_vs_limit": round(whole["rebuild_vs_limit"], 3),
        "verified_vs_rebuild": round(whole["verified_vs_rebuild"], 3),
        "verifier_mb": whole["verifier_mb"],
        "speedup_vs_naive": round(whole["naive_s"] / whole["rebuild_s"], 3),
        "speedup_vs_tuned_naive": round(whole["naive_tuned_s"] / whole["rebuild_s"], 3),
        "warm_small_view_s": of_small["rebuild_s"],
        "warm_small_view_verified_s": of_small["rebuild_verified_s"],
        "session_start_s": of_small["session_start_s"],
        "cold_small_view_s": of_small["cold_s"],
        "cold_vs_bare": round(of_small["cold_s"] / of_small["bare_s"], 3),
        "peak_mb": whole["cold_peak_mb"],
        "many_per_key": MANY_PER_KEY,
        "many_rebuild_us_per_record": round(of_many["rebuild_s"] * per_record, 4),
        "many_decode_us_per_record": round(of_many["decode_s"] * per_record, 4),
        "records": logs[0].size.records,
        "live_keys": logs[0].size.live,
        "sizes": sizes,
    }


def _memory_mb() -> int:
    return int(psutil.virtual_memory().total / 2**20)


if __name__ == "__main__":
    typer.run(main)
