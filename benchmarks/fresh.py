"""How soon a change is visible in followed views: `make bench-fresh`.

All runs on this machine: the source with an application that changes a thousand rows a second,
capture, the broker, three servers, and `rebuild-view --follow` of the six views of
`benchmarks.mart`, which are proved as by default. Four times a second a probe changes rows that
each view shows; it counts from its commit until a reader who asks twenty times a second gets it.

| figure | of |
|---|---|
| `fresh_VIEW_p50_s`, `_p99_s` | from commit to reader, while the application writes |
| `converged_s` | from the last commit until all views show it, and equal the source |
| `burst_s` | the same of one transaction that changes 100,000 rows |
| `follow_mb`, `follow_cores` | the follower under this load; `rest_…` while nothing happens |
| `killed_s` | from a start behind kill -9 until all views show what was committed since |
| `limit_VIEW_ms` | the rows of a round, written by the server's own client alone |
| `pgsync_…` | pgsync with the order documents, then, of the same application |
| `narrow_…` | three narrow views of `benchmarks.narrow`, as they were measured from the start |

At the end of each part all rows of each view are compared with what PostgreSQL answers; one that
differs ends the measurement. The last line is one JSON object.

With `--logs others` or `declared` only the narrow views are measured, over the logs of others.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import numpy as np
import typer
from psycopg2.extensions import make_dsn

from benchmarks import limit, mart, narrow, pgsync
from benchmarks.figures import say
from benchmarks.line import POSTGRES
from benchmarks.machine import LONG_LOOK_S, Memory, Noise, about, cpu_s
from benchmarks.orders import execute
from benchmarks.probes import Reader
from benchmarks.shown import Served, differing, reader_of
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack

_READY_S = 900.0
_TARGET = "fresh_mart"
_BEFORE_KILL_S = 5.0


@dataclass
class Run:
    """The servers, the processes and the readers of one measurement."""

    folder: Path
    at: Endpoints
    target: str
    servers: Sequence[int]
    orders: int
    rate: int
    told: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare who writes and who reads."""
        self.writer = mart.Writer(self.at.postgres, self.orders, self.rate)
        self.served = Served(self.at, self.target)
        self.readers = self.served.readers()
        self.alive: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self, name: str, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command of ours beside, and end it by a signal."""
        with narrow.running(words, self.log(name)) as process:
            self.alive[name] = process
            try:
                yield process
            finally:
                del self.alive[name]

    def log(self, name: str) -> Path:
        """Return the file of what a process says."""
        return self.folder / f"{name}.log"

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Wait for something, as long as all processes live."""
        deadline = time.monotonic() + _READY_S
        while not until():
            dead = [name for name, process in self.alive.items() if process.poll() is not None]
            if dead or time.monotonic() > deadline:
                said = "\n".join(self.log(n).read_text("utf-8")[-3000:] for n in self.alive)
                raise SystemExit(f"{what}: not done; ended: {dead}\n{said}")
            time.sleep(0.05)

    def reach(self, stamp: int, what: str, readers: Sequence[Reader] | None = None) -> None:
        """Wait until readers have seen a probe."""
        asked = self.readers if readers is None else readers
        self.wait(lambda: all(reader.at >= stamp for reader in asked), what)

    def since_last(self) -> tuple[int, float]:
        """Return the last probe, and when it had been committed."""
        last = max(self.writer.commits)
        return last, self.writer.commits[last][1]

    def equal(self, what: str) -> None:
        """End the measurement where a view is not what the source answers."""
        if told := differing(self.at.postgres, self.served):
            raise SystemExit(f"{what}: {json.dumps(told, indent=1)}")
        say(f"{what}: all views are equal to PostgreSQL's answers")

    def results(self) -> list[dict[str, Any]]:
        """Return the results of all rounds so far, by the follower's own account."""
        lines = self.log("follow").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines if line[:1] == "{" and line[-1:] == "}"]


def _project(folder: Path, at: Endpoints, target: str, frontier_ms: int) -> Path:
    project = folder / "project"
    (project / "views").mkdir(parents=True)
    tables = ", ".join(f'"public.{table}"' for table in mart.TABLES)
    (project / "changelog.toml").write_text(
        f'postgres.dsn = "{at.postgres}"\nkafka.brokers = "{at.brokers}"\n'
        f'registry.url = "{at.schema_registry}"\n'
        f'[capture]\nslot = "mart"\ntopic_prefix = "mart"\ntables = [{tables}]\n'
        f"frontier_interval_ms = {frontier_ms}\n"
        f'[sinks]\nsearch.url = "{at.search}"\ncache.url = "{at.cache}"\n'
        f'postgres.url = "{target}"\n',
        encoding="utf-8",
    )
    for name, text in mart.VIEWS.items():
        (project / "views" / f"{name}.sql").write_text(text, encoding="utf-8")
    return project


def _seen(run: Run, readers: Sequence[Reader], since: float, until: float) -> dict[str, float]:
    """Return the percentiles of the delays of probes between two moments, by view."""
    told = {}
    for reader in readers:
        found = reader.delays(run.writer.commits, since, until)
        for share in (50, 99):
            told[f"{reader.name}_p{share}_s"] = float(np.percentile(found, share))
    return told


def _under_load(run: Run, pids: Mapping[str, int], warm_s: float, seconds: float) -> None:
    """Measure while the application writes, and until all views have its last change."""
    run.writer.start()
    time.sleep(warm_s)
    noise, since = Noise([*run.servers, *pids.values()]), time.monotonic()
    before, changes = {what: cpu_s(pid) for what, pid in pids.items()}, run.writer.changes
    servers, results = cpu_s(*run.servers), len(run.results())
    memory = Memory(pids["follow"], every_s=LONG_LOOK_S)
    while time.monotonic() - since < seconds:
        memory.look()
        time.sleep(0.1)
    until = time.monotonic()
    took = until - since
    told = run.told
    told |= {f"{what}_cores": (cpu_s(pid) - before[what]) / took for what, pid in pids.items()}
    told["servers_cores"] = (cpu_s(*run.servers) - servers) / took
    told["changes_per_s"] = (run.writer.changes - changes) / took
    told["follow_mb"], told["noise"] = memory.peak_mb, noise.share()
    made = run.results()[results:]
    run.writer.stop()
    last, at = run.since_last()
    run.reach(last, "the last change")
    told["converged_s"] = time.monotonic() - at
    run.equal("behind the last change")
    found = _seen(run, run.readers, since, until)
    told |= {f"fresh_{name}": value for name, value in found.items()}
    rounds = [each for each in made if each["view"] == run.readers[0].name]
    told["rounds_per_s"] = len(rounds) / took
    told["round_s"] = mean(each["seconds"]["total"] for each in rounds)
    say("rounds: " + json.dumps(_stages(rounds)))
    told |= limit.measured(run.at, run.target, _keys(made))


def _stages(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean seconds of each stage of a round."""
    names = dict.fromkeys(name for each in rounds for name in each["seconds"])
    return {
        name: round(mean(each["seconds"].get(name, 0.0) for each in rounds), 3) for name in names
    }


def _keys(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the mean rows that a round sent of each view, without rounds that sent none."""
    counts: dict[str, list[int]] = {}
    for result in results:
        words = result["origin"].split()
        if words[0] == "forward:":
            counts.setdefault(result["view"], []).append(int(words[1].replace(",", "")))
    return {view: round(mean(own)) for view, own in counts.items()}


def _burst(run: Run, rows: int) -> None:
    at = run.writer.burst(rows)
    last, _ = run.since_last()
    run.reach(last, "the burst")
    run.told["burst_s"] = time.monotonic() - at
    run.equal("behind the burst")


def _at_rest(run: Run, pid: int, seconds: float) -> None:
    time.sleep(5.0)
    memory, before, since = Memory(pid), cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    memory.look()
    run.told["rest_cores"] = (cpu_s(pid) - before) / (time.monotonic() - since)
    run.told["rest_mb"] = memory.peak_mb


def _killed(run: Run, follow: Sequence[str]) -> None:
    """Kill a follower while the application writes, and measure the next one's start."""
    run.writer.start()
    time.sleep(_BEFORE_KILL_S)
    process = run.alive.pop("follow")
    process.kill()
    process.wait()
    time.sleep(_BEFORE_KILL_S)
    began = time.monotonic()
    with run.running("again", follow):
        run.wait(lambda: run.since_last()[1] >= began, "a change since the start")
        stamp = next(s for s, (_, at) in sorted(run.writer.commits.items()) if at >= began)
        run.reach(stamp, "what was committed since the start")
        run.told["killed_s"] = time.monotonic() - began
        run.writer.stop()
        run.reach(run.since_last()[0], "the last change")
        run.equal("behind the kill")


def _beside_pgsync(run: Run, commands: Path, warm_s: float, seconds: float) -> None:
    """Measure pgsync with the order documents, of the same application, ours being at an end."""
    with pgsync.syncing(commands, run.at, run.folder) as process, ExitStack() as ended:
        run.alive["pgsync"] = process
        ended.callback(run.alive.pop, "pgsync")
        ask = reader_of(
            "pgsync", lambda: int(float(run.served.hit(pgsync.INDEX, {"id": mart.PROBE})["total"]))
        )
        ask.start()
        run.reach(run.since_last()[0], "pgsync's first documents", [ask])
        run.writer.start()
        time.sleep(warm_s)
        since, before, memory = time.monotonic(), cpu_s(process.pid), Memory(process.pid)
        time.sleep(seconds)
        memory.look()
        until = time.monotonic()
        run.told["pgsync_cores"] = (cpu_s(process.pid) - before) / (until - since)
        run.told["pgsync_mb"] = memory.peak_mb
        run.writer.stop()
        last, at = run.since_last()
        run.reach(last, "pgsync has the last change", [ask])
        run.told["pgsync_converged_s"] = time.monotonic() - at
        run.told |= _seen(run, [ask], since, until)
        at = run.writer.burst(round(run.told["burst_rows"]))
        run.reach(run.since_last()[0], "pgsync has the burst", [ask])
        run.told["pgsync_burst_s"] = time.monotonic() - at
        ask.stop()


def measured(
    *, orders: int, rate: int, warm_s: float, seconds: float, frontier_ms: int,
    rest_s: float, burst: int, verify: str, peer: Path | None,
) -> dict[str, float]:  # fmt: skip
    """Follow the six views for a while, and measure."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-fresh-") as name,
        Stack(Path(name) / "stack", with_=("search", "cache"), postgres_settings=POSTGRES) as stack,
    ):
        folder, at = Path(name), stack.endpoints()
        folder.chmod(0o755)
        servers = [pid for part in stack.status() if (pid := part.pid)]
        mart.make(at.postgres, orders)
        execute(at.postgres, f"CREATE DATABASE {_TARGET}")
        target = make_dsn(at.postgres, dbname=_TARGET)
        project = _project(folder, at, target, frontier_ms)
        run = Run(folder, at, target, servers, orders, rate)
        run.told["burst_rows"] = burst
        here = Path(sys.executable)
        capture = [str(here), "-m", "changelog", "capture", "--project", str(project)]
        follow = [str(here.with_name("rebuild-view")), "--all", "--follow", "--json"]
        follow += ["--verify", verify, "--project", str(project)]
        subprocess.run([*capture, "--until", "now"], check=True, stdout=subprocess.DEVNULL)
        for reader in run.readers:
            reader.start()
        with run.running("capture", capture) as captured:
            with run.running("follow", follow):
                run.wait(lambda: len(run.results()) >= len(mart.VIEWS), "the first generations")
            run.reach(0, "the first generations")
            say("the first generations serve")
            began, first = time.monotonic(), len(run.results())
            with ExitStack() as ended:
                followed = ended.enter_context(_killable(run, follow))
                run.writer.start()
                run.wait(lambda: len(run.results()) > first, "the first round")
                run.writer.stop()
                run.told["started_s"] = time.monotonic() - began
                run.reach(run.since_last()[0], "the first changes")
                pids = {"follow": followed.pid, "capture": captured.pid}
                _under_load(run, pids, warm_s, seconds)
                _burst(run, burst)
                _at_rest(run, followed.pid, rest_s)
                _killed(run, follow)
        for reader in run.readers:
            reader.stop()
        if peer is not None:
            _beside_pgsync(run, pgsync.installed(peer), warm_s, seconds)
        return {name: round(value, 3) for name, value in run.told.items()}


@contextmanager
def _killable(run: Run, follow: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the follower that is going to be killed."""
    with run.log("follow").open("ab") as out:
        process = subprocess.Popen(follow, stdout=out, stderr=out)
        run.alive["follow"] = process
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(120)
            run.alive.pop("follow", None)


def main(
    orders: Annotated[int, typer.Option(help="Orders at first; four lines each.")] = 30_000,
    rate: Annotated[int, typer.Option(help="Changed rows a second.")] = 1_000,
    warm_s: Annotated[
        float, typer.Option(help="Seconds before it counts: the servers' JVMs compile meanwhile.")
    ] = 60.0,
    seconds: Annotated[float, typer.Option(help="Seconds that count.")] = 60.0,
    frontier_ms: Annotated[int, typer.Option(help="`capture.frontier_interval_ms`.")] = 35,
    rest_s: Annotated[float, typer.Option(help="Seconds at rest.")] = 30.0,
    burst: Annotated[int, typer.Option(help="Rows of the burst.")] = 100_000,
    verify: Annotated[str, typer.Option(help="`changed` or `none`.")] = "changed",
    peer: Annotated[
        Path | None, typer.Option(help="Folder to install pgsync in; without it there is no peer.")
    ] = None,
    with_narrow: Annotated[bool, typer.Option("--narrow/--no-narrow", help="Narrow views.")] = True,
    logs: Annotated[
        narrow.Logs, typer.Option(help="Whose logs the narrow views read.")
    ] = narrow.Logs.OWN,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Measure how soon changes are visible."""
    told: dict[str, float] = {}
    if logs is narrow.Logs.OWN:
        told |= measured(
            orders=orders, rate=rate, warm_s=warm_s, seconds=seconds, frontier_ms=frontier_ms,
            rest_s=rest_s, burst=burst, verify=verify, peer=peer,
        )  # fmt: skip
    if with_narrow:
        say("the narrow views")
        found = narrow.measured(
            orders=50_000, rate=rate, warm_s=60.0, seconds=seconds, verify=verify, logs=logs
        )
        told |= {f"narrow_{name.removeprefix('fresh_')}": value for name, value in found.items()}
    asked = {"orders": orders, "rate": rate, "verify": verify, "logs": logs.value}
    asked |= {"frontier_ms": frontier_ms}
    line = json.dumps({**told, **asked, **about()})
    if out is not None:
        out.write_text(line + "\n", encoding="utf-8")
    print(line)


if __name__ == "__main__":
    typer.run(main)
