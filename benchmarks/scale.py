"""A view of many rows: how a follower and Spark bring it forward, by size: `make bench-scale`.

A log of so many rows is written straight to a topic (`benchmarks.order_log`). One view, sums by
customer over all of them, is brought forward twice, by commands of their own, each proved as by
default:

| by | what |
|---|---|
| `rebuild-view sums --refresh` | Spark, from the checkpoints that it keeps; view in Delta |
| `rebuild-view sums --follow` | a follower, from the tables that it fills; view in PostgreSQL |

Each is begun, then gets 1,000 and 100,000 changed rows; the follower is ended and started again
before. Of each step are told: seconds from the frontier to the end of the round, CPU seconds and
the greatest memory of the command with all of its children, and what it keeps on disk. A
`--refresh` is a process of its own each time; its seconds have the start of Spark's session.

`--follow-rows` is the follower's bound of a table's rows: beyond it Spark makes each round.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from psycopg2.extensions import make_dsn

from benchmarks import order_log
from benchmarks.figures import say, tell
from benchmarks.line import POSTGRES
from benchmarks.machine import LONG_LOOK_S, Memory, Noise, about, cpu_s
from benchmarks.order_log import Size
from benchmarks.orders import execute
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.log.frontier import Frontier
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack

_VIEW = "sums"
_QUERY = "SELECT customer_id, count(*) AS orders, sum(amount) AS amount FROM orders\n"
_TARGET = "scale"
_CHANGED = (1_000, 100_000)
_READY_S = 5_400.0
_LOOK_S = 0.1
_SHOWN = 20_000
"""Characters of the log of a command that failed."""
_HELD = "for rounds without Spark"
_BY_SPARK = "round is made by Spark", "by Spark in each round"


@dataclass
class Watched:
    """A command that runs, and what it has taken since some moment."""

    process: subprocess.Popen[bytes]
    log: Path
    memory: Memory = field(init=False)
    began: float = field(init=False)
    spent: float = field(init=False)
    cpu_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin to watch."""
        self.begin()

    def begin(self) -> None:
        """Begin a step: what was taken before does not count."""
        self.memory = Memory(self.process.pid, every_s=LONG_LOOK_S)
        self.began, self.spent = time.monotonic(), cpu_s(self.process.pid)
        self.cpu_s = 0.0

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for something, as long as the command runs."""
        while not done():
            if self.process.poll() is not None or time.monotonic() - self.began > _READY_S:
                raise SystemExit(f"ended or late:\n{self.said()[-_SHOWN:]}")
            self._look()

    def ends(self) -> None:
        """Wait until the command has ended well."""
        while self.process.poll() is None:
            self._look()
        if self.process.returncode != 0:
            raise SystemExit(self.said()[-_SHOWN:])

    def _look(self) -> None:
        self.memory.look()
        self.cpu_s = max(self.cpu_s, cpu_s(self.process.pid) - self.spent)
        time.sleep(_LOOK_S)

    def told(self) -> dict[str, float]:
        """Return seconds, CPU seconds and peak memory of the step so far."""
        return {
            "s": round(time.monotonic() - self.began, 2),
            "cpu_s": round(self.cpu_s, 2),
            "peak_mb": round(self.memory.peak_mb),
        }

    def said(self) -> str:
        """Return all that the command has written."""
        return self.log.read_text("utf-8", "replace")

    def results(self) -> list[dict[str, Any]]:
        """Return the results of its rounds."""
        lines = self.said().splitlines()
        return [json.loads(line) for line in lines if line[:1] == "{" and line[-1:] == "}"]


@dataclass(frozen=True)
class Bench:
    """A log, and the projects of the view over it."""

    at: Endpoints
    folder: Path
    size: Size
    follow_rows: int

    @property
    def servers(self) -> tuple[KafkaConnection, RegistryConnection]:
        """Return the brokers and the registry."""
        return (
            KafkaConnection(brokers=self.at.brokers),
            RegistryConnection(url=self.at.schema_registry),
        )

    def write(self) -> None:
        """Write the log."""
        order_log.write(*self.servers, self.size)

    def change(self, rows: int) -> Frontier:
        """Change rows."""
        return order_log.change(*self.servers, self.size, rows)

    def project(self, kind: str) -> Path:
        """Make the project whose view is in a kind of sink."""
        project = self.folder / kind
        (project / "views").mkdir(parents=True)
        (project / "tmp").mkdir()
        target = make_dsn(self.at.postgres, dbname=_TARGET)
        (project / "changelog.toml").write_text(
            f'kafka.brokers = "{self.at.brokers}"\nregistry.url = "{self.at.schema_registry}"\n'
            f'sinks.postgres.url = "{target}"\nrebuild.follow_rows = {self.follow_rows}\n'
            f'[capture]\nslot = "{self.size.prefix}"\ntopic_prefix = "{self.size.prefix}"\n',
            encoding="utf-8",
        )
        (project / "views" / f"{_VIEW}.sql").write_text(
            f"-- key: customer_id\n-- sinks: {kind}\n{_QUERY}GROUP BY customer_id\n", "utf-8"
        )
        return project


@contextmanager
def _running(project: Path, name: str, *words: str) -> Iterator[Watched]:
    """Run `rebuild-view` beside, its temporary files in the project's folder."""
    log = project / f"{name}.log"
    command = [sys.executable, "-c", "from views.cli import main; main()"]
    command += [_VIEW, *words, "--json", "--project", str(project)]
    environment = {**os.environ, "TMPDIR": str(project / "tmp")}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        try:
            yield Watched(process, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(300)


def _disk_mb(*folders: Path) -> int:
    files = (each for folder in folders for each in folder.rglob("*"))
    return round(sum(each.stat().st_size for each in files if each.is_file()) / 2**20)


def _kept(project: Path) -> dict[str, int]:
    """Return the size of each kept folder on disk, in MB."""
    warehouse = project / "warehouse"
    return {
        "checkpoints_mb": _disk_mb(warehouse / "_checkpoints"),
        "proved_mb": _disk_mb(warehouse / "_proved"),
        "followed_mb": _disk_mb(warehouse / "_followed"),
        "temporary_mb": _disk_mb(project / "tmp"),
    }


def _say(name: str, told: Mapping[str, object]) -> None:
    say(f"{name}: {json.dumps(told)}")


def refreshed(bench: Bench) -> dict[str, Any]:
    """Measure refreshes by Spark."""
    project, found = bench.project("delta"), dict[str, Any]()
    for name, rows in {"first": 0, **{f"{rows}": rows for rows in _CHANGED}}.items():
        if rows:
            bench.change(rows)
        with _running(project, f"refresh-{name}", "--refresh") as command:
            command.ends()
            (result,) = command.results()
            found[name] = {**command.told(), **_kept(project), **_stages(result)}
        _say(f"refresh {name}", found[name])
    return found


def _stages(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"origin": result["origin"], "stages": result["seconds"], "rows": result["rows"]}


def followed(bench: Bench) -> dict[str, Any]:
    """Measure a follower."""
    project, found = bench.project("postgres"), dict[str, Any]()
    with _running(project, "follow-first", "--follow") as command:
        command.until(lambda: bool(command.results()) and _is_ready(command))
        found["first"] = {**command.told(), **_kept(project), **_stages(command.results()[0])}
        found["first"]["holds"] = _HELD in command.said()
        _say("follow first", found["first"])
    with _running(project, "follow-again", "--follow") as command:
        for name, rows in {"again": 10, **{f"{rows}": rows for rows in _CHANGED}}.items():
            if name != "again":
                time.sleep(5.0)  # at rest
            lsn, count = str(bench.change(rows).lsn), len(command.results())
            if name != "again":
                command.begin()
            command.until(
                lambda lsn=lsn, count=count: _reached(command, count, lsn)  # type: ignore[misc]
            )
            result = command.results()[-1]
            found[name] = {**command.told(), **_kept(project), **_stages(result)}
            _say(f"follow {name}", found[name])
        lines = command.said().splitlines()
        found["by_spark"] = [each for each in lines if any(text in each for text in _BY_SPARK)]
    return found


def _is_ready(command: Watched) -> bool:
    """Tell whether a follower holds its tables, or has said that it does not."""
    said = command.said()
    return "follow_rows" in said or _at_rest(command)


def _at_rest(command: Watched) -> bool:
    """Tell whether a command takes no CPU time any more."""
    before = cpu_s(command.process.pid)
    time.sleep(2.0)
    return cpu_s(command.process.pid) - before < 0.2  # noqa: PLR2004 - seconds of two


def _reached(command: Watched, count: int, lsn: str) -> bool:
    results = command.results()[count:]
    return any(each["published"] and each["frontier"]["lsn"] == lsn for each in results)


def measured(*, rows: int, follow_rows: int) -> dict[str, Any]:
    """Measure both at one size."""
    size = Size(records=rows + rows // 5, live=rows)
    with (
        tempfile.TemporaryDirectory(prefix="bench-scale-") as name,
        Stack(Path(name) / "stack", postgres_settings=POSTGRES) as stack,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        servers = [pid for part in stack.status() if (pid := part.pid)]
        execute(stack.endpoints().postgres, f"CREATE DATABASE {_TARGET}")
        bench = Bench(stack.endpoints(), folder, size, follow_rows)
        say(f"the log of {size.records:,} records, {size.live:,} live rows")
        bench.write()
        noise = Noise(servers)
        told = {
            "rows": rows,
            "records": size.records,
            "follow_rows": follow_rows,
            "log_mb": _disk_mb(folder / "stack"),
            "refresh": refreshed(bench),
            "follow": followed(bench),
        }
        return {**told, "noise": round(noise.share(), 3)}


def main(
    rows: Annotated[int, typer.Option(help="Live rows of the table.")] = 200_000,
    follow_rows: Annotated[
        int, typer.Option(help="`rebuild.follow_rows`: the most rows of a table a follower holds.")
    ] = 5_000_000,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Measure a follower beside refreshes by Spark."""
    told = measured(rows=rows, follow_rows=follow_rows)
    memory = round(psutil.virtual_memory().total / 2**20)
    tell({**told, **about(), "memory_mb": memory}, out)


if __name__ == "__main__":
    typer.run(main)
