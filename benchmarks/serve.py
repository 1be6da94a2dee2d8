"""How soon another worker of `changelog serve` has the tasks of one that died: `make bench-serve`.

Two workers of one group share the four tasks of a sink that writes by key. One of them is killed
(`kill -9`), and a record is sent to each partition. `rebalance_s` is the time from the kill until
all of them are rows: what one who reads the table waits for. `handover_s` is the same of a worker
that is told to end (SIGTERM). A new worker takes the place of each, and the next run begins when
both have tasks again. The last line is one JSON object: the median of all runs, and the longest.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import httpx
import psycopg2
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import Figures, say, tell
from benchmarks.line import POSTGRES
from benchmarks.machine import Noise, about
from changelog.connect.postgres.places import PLACES
from changelog.stack.base.ports import pick
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack

NAME = TOPIC = "bench"
TASKS = 4
WORKERS = 2
_DEADLINE_S = 120.0
_POLL_S = 0.02


class Group:
    """Workers, and the connector whose tasks they share."""

    def __init__(self, endpoints: Endpoints, folder: Path) -> None:
        """Make topic and connector, and start the workers."""
        self._endpoints, self._folder = endpoints, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._sent = 0
        kafka: dict[str, str | int | float | bool] = {"bootstrap.servers": endpoints.brokers}
        admin = AdminClient(kafka)  # held: its requests end with it
        admin.create_topics([NewTopic(TOPIC, TASKS, 1)])[TOPIC].result(30)
        self._producer = Producer({**kafka, "linger.ms": 0})
        for _ in range(WORKERS):
            self.start()
        config = {
            "topics": TOPIC,
            "tasks.max": str(TASKS),
            "connection.url": endpoints.postgres,
            "target.tablename": "t",
            "insert.mode": "upsert",
            "pk.fields": "id",
            "auto.create": "true",
            "col.names": "id,a",
            "col.types": "int,text",
        }
        body = {"name": NAME, "config": config}
        httpx.post(f"{self._any()}/connectors", json=body).raise_for_status()
        self.wait_until_shared()
        self.send()
        self.wait_until_written()

    def start(self) -> None:
        """Start a worker, and wait until it answers."""
        port = pick()
        words = [sys.executable, "-m", "changelog", "serve", "--port", str(port), "--group", NAME]
        with (self._folder / f"worker-{port}.log").open("wb") as log:
            running = subprocess.Popen([*words, "--broker", self._endpoints.brokers], stderr=log)
        self._running[f"http://127.0.0.1:{port}"] = running
        _wait(self._answers, f"the worker at {port} answers")

    def _answers(self) -> bool:
        try:
            return all(httpx.get(f"{url}/health").is_success for url in self._running)
        except httpx.TransportError:
            return False

    def _any(self) -> str:
        return next(iter(self._running))

    def wait_until_shared(self) -> None:
        """Wait until each worker runs a task, and all tasks run."""
        _wait(lambda: {*self._holders()} == {*self._running}, "each worker has a task")

    def _holders(self) -> list[str]:
        said: dict[str, Any] = httpx.get(f"{self._any()}/connectors/{NAME}/status").json()
        tasks = said.get("tasks", ())
        found = [f"http://{each['worker_id']}" for each in tasks if each["state"] == "RUNNING"]
        return found if len(found) == TASKS else []

    def send(self) -> None:
        """Send a record to each partition, and wait until the broker has them."""
        for partition in range(TASKS):
            row = {"id": partition, "a": f"row {self._sent}"}
            self._producer.produce(TOPIC, value=json.dumps(row), partition=partition)
            self._sent += 1
        if self._producer.flush(_DEADLINE_S):
            raise TimeoutError("the broker does not take records")

    def wait_until_written(self) -> None:
        """Wait until all that was sent is in the table."""
        query = f"SELECT sum(next_offset) FROM {PLACES} WHERE connector = %s"
        with closing(psycopg2.connect(self._endpoints.postgres)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:

                def is_written() -> bool:
                    cursor.execute(query, (NAME,))
                    return cursor.fetchone() == (self._sent,)

                _wait(is_written, "all is written")

    def without_one(self, number: signal.Signals) -> float:
        """End the worker that runs longest; return the seconds until its tasks have gone on."""
        gone = self._running.pop(self._any())
        began = time.monotonic()
        gone.send_signal(number)
        self.send()
        self.wait_until_written()
        seconds = time.monotonic() - began
        gone.wait()
        return seconds

    def close(self) -> None:
        """End the workers."""
        for each in self._running.values():
            each.terminate()
        for each in self._running.values():
            each.wait()


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(_POLL_S)


def main(
    runs: Annotated[int, typer.Option(help="So many workers are killed, and so many ended.")] = 10,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Measure how soon tasks go on elsewhere."""
    figures, longest = Figures(), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="changelog-bench-") as folder:
        Path(folder).chmod(0o755)
        with (
            Stack(Path(folder) / "stack", postgres_settings=POSTGRES) as stack,
            closing(Group(stack.endpoints(), Path(folder))) as group,
        ):
            noise = Noise([])
            for run in range(runs):
                for what, number in (("rebalance", signal.SIGKILL), ("handover", signal.SIGTERM)):
                    seconds = group.without_one(number)
                    figures.add(f"{what}_s", seconds)
                    most = max(seconds, longest.get(f"{what}_max_s", 0.0))
                    longest[f"{what}_max_s"] = round(most, 4)
                    group.start()
                    group.wait_until_shared()
                say(f"run {run + 1} of {runs}: {figures.medians()}")
            others = round(noise.share(), 4)
    shape = {"runs": runs, "workers": WORKERS, "tasks": TASKS, "noise": others}
    tell({**figures.medians(), **longest, **shape, **about()}, out)


if __name__ == "__main__":
    typer.run(main)
