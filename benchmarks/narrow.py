"""How soon a change is visible in three narrow followed views: a part of `make bench-fresh`.

All runs on this machine: the source with an application that changes a thousand rows a second,
capture, the broker, three servers, and `rebuild-view --follow` of three views: a document of three
joined tables to search, an entry of one table to a cache, an aggregate over a join to PostgreSQL.
Every tenth of a second a probe changes one row; it counts from its commit until a reader who asks
five times a second gets it. Every batch is proved before it is visible, as it is by default.

With `--logs` the views are those of another project, which reads these tables as another capture's
(`others`), or as topics of another program (`declared`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

import httpx
import numpy as np
import orjson
import psycopg2
import redis
from psycopg2.extensions import make_dsn

from benchmarks import shop
from benchmarks.figures import say
from benchmarks.line import POSTGRES
from benchmarks.machine import Noise, cpu_s
from benchmarks.orders import execute
from benchmarks.probes import Reader
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack

_POLL_S = 0.2  # a change counts as later by half of it
_READY_S = 240.0
_TARGET = "fresh_views"


class Logs(Enum):
    """Whose logs the views read."""

    OWN = "own"
    OTHERS = "others"
    DECLARED = "declared"


def readers(at: Endpoints, target: str, ids: Sequence[int], customers: int) -> list[Reader]:
    """Return a reader for each sink."""
    http = httpx.Client(base_url=str(at.search), verify=authorities())
    cache = redis.Redis.from_url(str(at.cache))
    table = psycopg2.connect(target)
    table.autocommit = True
    of_customer = {1 + probe % customers: probe for probe in ids}

    def search() -> dict[int, int]:
        body = {"query": {"terms": {"id": list(ids)}}, "size": len(ids), "_source": ["id", "stamp"]}
        found = http.post("/order_documents/_search", json=body).raise_for_status().json()
        hits = (hit["_source"] for hit in found["hits"]["hits"])
        return {hit["id"]: hit["stamp"] for hit in hits}

    def entries() -> dict[int, int]:
        number = int(cache.get("order_entries:current") or 0)
        texts = cache.mget([f"order_entries:{number}:{probe}" for probe in ids])
        rows = (orjson.loads(text) for text in texts if text)
        return {row["id"]: row["stamp"] for row in rows}

    def totals() -> dict[int, int]:
        with table.cursor() as cursor:
            cursor.execute(
                "SELECT customer_id, stamp FROM customer_totals WHERE customer_id = ANY (%s)",
                [list(of_customer)],
            )
            return {of_customer[customer]: stamp for customer, stamp in cursor.fetchall()}

    found = {"search": search, "cache": entries, "postgres": totals}
    return [Reader(name, stamps, _POLL_S) for name, stamps in found.items()]


@contextmanager
def running(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of ours beside, and end it by a signal."""
    with log.open("ab") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
        try:
            yield process
            if process.poll() is not None:
                raise SystemExit(log.read_text(encoding="utf-8")[-3000:])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def _project(folder: Path, at: Endpoints, target: str, logs: Logs) -> Path:
    project = folder / "project"
    project.mkdir()
    tables = ", ".join(f'"public.{table}"' for table in shop.TABLES)
    (project / "changelog.toml").write_text(
        f'postgres.dsn = "{at.postgres}"\nkafka.brokers = "{at.brokers}"\n'
        f'registry.url = "{at.schema_registry}"\n'
        f'[capture]\nslot = "fresh"\ntopic_prefix = "fresh"\ntables = [{tables}]\n'
        f'output_format = "{"json" if logs is Logs.DECLARED else "avro"}"\n'
        f'[sinks]\nsearch.url = "{at.search}"\ncache.url = "{at.cache}"\n'
        f'postgres.url = "{target}"\n',
        encoding="utf-8",
    )
    return project


def _views(captured: Path, logs: Logs) -> Path:
    """Return the project that has the views: the captured one, or another beside it."""
    project = captured
    if logs is not Logs.OWN:
        project = captured.with_name("beside")
        settings = (captured / "changelog.toml").read_text(encoding="utf-8")
        project.mkdir()
        text = settings.replace('"fresh"', '"beside"')
        for table in shop.TABLES:
            text += f'[logs.{table}]\ntopic = "fresh.{table}"\n'
            text += (
                'frontier = "fresh._frontier"\nslot = "fresh"\n'
                if logs is Logs.OTHERS
                else f'form = "flat-json"\n{shop.DECLARED[table]}\n'
            )
        (project / "changelog.toml").write_text(text, encoding="utf-8")
    (project / "views").mkdir()
    for name, text in shop.VIEWS.items():
        (project / "views" / f"{name}.sql").write_text(text, encoding="utf-8")
    return project


def _wait(
    until: Callable[[], bool], what: str, by: Sequence[subprocess.Popen[bytes]], log: Path
) -> None:
    deadline = time.monotonic() + _READY_S
    while not until():
        if time.monotonic() > deadline or any(each.poll() is not None for each in by):
            raise SystemExit(f"{what}: not done\n{log.read_text(encoding='utf-8')[-3000:]}")
        time.sleep(0.5)


def measured(
    *, orders: int, rate: int, warm_s: float, seconds: float, verify: str, logs: Logs
) -> dict[str, float]:
    """Follow three views for a while; returns percentiles of the delays, and the cores used."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-fresh-") as name,
        Stack(Path(name) / "stack", with_=("search", "cache"), postgres_settings=POSTGRES) as stack,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        at = stack.endpoints()
        servers = [pid for part in stack.status() if (pid := part.pid)]
        shop.make(at.postgres, orders)
        execute(at.postgres, f"CREATE DATABASE {_TARGET}")
        target = make_dsn(at.postgres, dbname=_TARGET)
        project = _project(folder, at, target, logs)
        ids = shop.probes_of(orders)
        asked = readers(at, target, ids, max(orders // 10, 80))
        here = Path(sys.executable)
        views = _views(project, logs)
        said = {what: folder / f"{what}.log" for what in ("capture", "follow")}
        capture = [str(here), "-m", "changelog", "capture", "--project", str(project)]
        follow = [str(here.with_name("rebuild-view")), "--all", "--follow", "--json"]
        follow += ["--verify", verify, "--project", str(views)]
        subprocess.run([*capture, "--until", "now"], check=True, stdout=subprocess.DEVNULL)
        writer = shop.Writer(at.postgres, orders, rate)
        with running(capture, said["capture"]) as captured:
            with running(follow, said["follow"]) as followed:
                for each in asked:
                    each.start()
                _wait(
                    lambda: all(0 in each.seen for each in asked),
                    "the first generations", [captured, followed], said["follow"],
                )  # fmt: skip
                say("the first generations serve")
                writer.start()
                time.sleep(warm_s)
                pids = captured.pid, followed.pid
                noise, since = Noise([*servers, *pids]), time.monotonic()
                before, changes = _spent(servers, *pids), writer.changes
                time.sleep(seconds)
                took = time.monotonic() - since
                spent = {
                    what: (cpu - before[what]) / took
                    for what, cpu in _spent(servers, *pids).items()
                }
                told = {"fresh_changes_per_s": (writer.changes - changes) / took}
                told["noise"] = noise.share()
                writer.stop()
                last = max(writer.commits)
                _wait(
                    lambda: all(last in each.seen for each in asked),
                    "the last change", [captured, followed], said["follow"],
                )  # fmt: skip
                for each in asked:
                    each.stop()
            say(_rounds(said["follow"]))
        for each in asked:
            found = each.delays(writer.commits, since)
            for share in (50, 99):
                told[f"fresh_{each.name}_p{share}_s"] = float(np.percentile(found, share))
        told |= {f"fresh_{what}_cores": cores for what, cores in spent.items()}
        return {name: round(value, 3) for name, value in told.items()}


def _spent(servers: Sequence[int], capture: int, follow: int) -> dict[str, float]:
    """Return the CPU seconds of each part; `readers` are this process, with the writer's thread."""
    return {
        "capture": cpu_s(capture),
        "follow": cpu_s(follow),
        "readers": time.process_time(),
        "servers": cpu_s(*servers),
    }


def _rounds(log: Path) -> str:
    """Say how the last rounds of a follower went, by its own account."""
    rounds = [json.loads(line) for line in log.read_text("utf-8").splitlines() if line[:1] == "{"]
    lines = [f"{each['view']}: {each['origin']}, {each['seconds']}" for each in rounds[-6:]]
    return f"{len(rounds)} results; the last:\n  " + "\n  ".join(lines)
