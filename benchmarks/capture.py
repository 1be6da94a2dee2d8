"""How fast capture is, beside its limits: `make bench-capture`.

For each drain capture is stopped, the rows are changed, `pg_recvlogical` drains a copy of the slot
to nowhere (the limit), capture is started again, and the limit is measured once more: the quicker
of the two counts. Ratios to the limit count from the moment at which the slot is in use, rates from
the first message, as those of `pg_recvlogical` and of Debezium leave their start-up out. The last
line is one JSON object of medians; `peak_mb` is the greatest of all runs.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import latency, orders, peer
from benchmarks.figures import Figures, say
from benchmarks.line import POSTGRES, Drained, Line
from benchmarks.machine import Noise, about, cpu_s
from changelog.stack.servers.postgres import bin_dir
from changelog.stack.stack import Stack

IDLE_S = 20


class Drains(Figures):
    """What was measured, over the runs."""

    def drain(self, name: str, drained: Drained, limit_s: float | None = None) -> None:
        """Keep and show the figures of a drain."""
        from_first = drained.rows / drained.from_first_s
        self.add(f"{name}_per_s", from_first)
        self.add(f"{name}_from_start_per_s", drained.rows / drained.from_start_s)
        self.add(f"{name}_cpu_us_per_row", drained.cpu_us_per_row)
        self.add(f"{name}_peak_mb", drained.peak_mb)
        self.peak_mb = max(self.peak_mb, drained.peak_mb)
        beside = ""
        if limit_s is not None:
            self.add(f"{name}_limit_per_s", drained.rows / limit_s)
            self.add(f"{name}_vs_limit", limit_s / drained.from_active_s)
            beside = (
                f", limit {drained.rows / limit_s:,.0f}/s: {limit_s / drained.from_active_s:.2f}"
            )
        say(
            f"{name}: {from_first:,.0f} rows/s, {drained.rows / drained.from_start_s:,.0f}/s with "
            f"start-up{beside}, {drained.cpu_us_per_row:.1f} us CPU a row, "
            f"peak {drained.peak_mb:.0f} MB"
        )

    def latency(self, name: str, what: str, found: latency.Latency) -> None:
        """Keep and show how long changes took."""
        self.add(f"{name}_p50_ms", found.p50_ms)
        self.add(f"{name}_p99_ms", found.p99_ms)
        self.add(f"{name}_stolen", found.stolen)
        say(
            f"{what}: p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms, "
            f"{found.stolen:.0%} of the machine taken away"
        )


def main(
    runs: Annotated[int, typer.Option(help="Runs; the medians are told.")] = 3,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = orders.ROWS,
    latency_s: Annotated[int, typer.Option(help="Seconds of the latency phase; 0: none.")] = 60,
    long: Annotated[int, typer.Option(help="Rows of one very long transaction; 0: none.")] = 0,
    debezium: Annotated[
        Path | None, typer.Option(help="JSON lines of Debezium's runs on this machine.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Which of its settings count.")] = "json-tuned",
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Capture writes in transactions of Kafka.")
    ] = False,
) -> None:
    """Measure snapshot, streams and latency."""
    figures = Drains()
    settings = f"exactly_once = {str(exactly_once).lower()}"
    with (
        tempfile.TemporaryDirectory(prefix="bench-capture-") as folder,
        Stack(Path(folder) / "stack", postgres_settings=POSTGRES) as stack,
    ):
        Path(folder).chmod(0o755)
        dsn = stack.endpoints().postgres
        for number in range(1, runs + 1):
            line = Line(stack, Path(folder), f"bench{number}", settings=settings)
            noise = Noise([pid for part in stack.status() if (pid := part.pid)])
            orders.make(dsn, rows)
            _measure(line, figures, rows, latency_s)
            figures.add("noise", noise.share())
        if long:
            _measure_long(
                Line(stack, Path(folder), "long", table=orders.NARROW, settings=settings),
                figures,
                long,
            )
    told = {**figures.medians(), "peak_mb": round(figures.peak_mb, 1)}
    cpu = told["stream_cpu_us_per_row"]
    theirs = peer.debezium(debezium, profile) if debezium is not None else {}
    told |= {"cpu_us_per_row": cpu, **theirs, **peer.beside(told, theirs)}
    made = {"rows": rows, "runs": runs, "exactly_once": exactly_once}
    print(json.dumps({**told, **made, **about()}))


def _measure(line: Line, figures: Drains, rows: int, latency_s: int) -> None:
    share = rows / orders.ROWS
    updated, single = int(orders.UPDATED * share), int(orders.SINGLE * share)
    deleted = int(orders.DELETED * share)
    figures.drain("snapshot", line.drained(rows, rows))
    line.settle()
    orders.update_in_one(line.dsn, updated)
    _beside_limit(line, figures, "stream", updated, updated)
    orders.update_singly(
        line.dsn, bin_dir(16), line.work, rows=single, first=deleted + 1, last=rows
    )
    _beside_limit(line, figures, "single", single, single)
    orders.delete_in_one(line.dsn, 1, deleted)
    _beside_limit(line, figures, "deletes", deleted, deleted)
    if latency_s:
        line.start()
        _measure_latency(line, figures, rows, latency_s)
    line.forget()


def _beside_limit(line: Line, figures: Drains, name: str, rows: int, messages: int) -> None:
    """Drain to nowhere, drain by capture, drain to nowhere: the quicker of the two counts."""
    before, after = line.limit(), line.limit()
    limit_s = before.seconds()
    drained = line.drained(rows, messages)
    line.settle()
    figures.drain(name, drained, min(limit_s, after.seconds()))


def _measure_long(line: Line, figures: Drains, rows: int) -> None:
    """Drain one transaction of very many rows: memory must not follow their number."""
    orders.make_narrow(line.dsn)
    line.drained(1, 1)
    line.settle()
    orders.insert_in_one(line.dsn, rows)
    drained = line.drained(rows, rows)
    figures.drain("long", drained)
    figures.add("long_rows", rows)
    figures.add("long_growth_mb", drained.peak_mb - drained.early_mb)
    line.forget()


def _measure_latency(line: Line, figures: Drains, rows: int, seconds: int) -> None:
    found = latency.measured(line, rate=1000, warm_s=5, seconds=seconds, last=rows)
    figures.latency("latency", "latency", found)
    figures.add("latency_cores", found.cores)
    say(f"for {found.cores:.3f} cores")
    if "exactly_once = true" in line.settings:
        early = latency.measured(
            line, rate=1000, warm_s=5, seconds=seconds, last=rows, committed=False
        )
        figures.latency("latency_uncommitted", "read uncommitted", early)
    pid = line.process.pid if line.process else 0
    before = cpu_s(pid)
    time.sleep(IDLE_S)
    figures.add("idle_cores", (cpu_s(pid) - before) / IDLE_S)
    say(f"idle: {(cpu_s(pid) - before) / IDLE_S:.4f} cores")
    line.stop()
    least = latency.limit(line, rate=1000, warm_s=5, seconds=seconds, last=rows)
    figures.latency("latency_limit", "the WAL sender alone", least)
    least = latency.kafka(line, rate=1000, warm_s=5, seconds=seconds)
    figures.latency("latency_kafka", "Kafka alone", least)


if __name__ == "__main__":
    typer.run(main)
