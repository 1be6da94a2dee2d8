"""The sink of Delta tables in a process of its own, whose warehouse is in a store behind a proxy.

What reaches a store holds Python's lock while it waits, so that a proxy in its process would never
get to pass anything on; and the store's address is the environment's, for all of a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changelog.contract.base.errors import SinkError
from changelog.stack.base.ports import pick
from replay.spark.session import SessionSettings, session
from tests.conformance.conftest import Bench
from tests.support.captured_project import SHORT_LIVED
from tests.support.faulty_line import CANARY, Line, gated_rows, rows_of
from tests.support.object_store import ObjectStore, object_store
from tests.support.proxy import Proxy
from tests.support.wait import wait_until
from views.sinks.base import SinkSettings, UnavailableSinkError
from views.sinks.delta.log import DeltaTables
from views.sinks.delta.sink import DeltaSink

WAREHOUSE = "s3://lake/views"
_S3A = "spark.hadoop.fs.s3a.bucket.lake"
IMPATIENT = {
    f"{_S3A}.retry.limit": "1",
    f"{_S3A}.retry.interval": "100ms",
    f"{_S3A}.connection.timeout": "15s",  # Hadoop allows no less
}
HADOOPS_OWN = {
    f"{_S3A}.retry.limit": "7",
    f"{_S3A}.retry.interval": "500ms",
    f"{_S3A}.connection.timeout": "200s",
    f"{_S3A}.attempts.maximum": "5",
}
_DEADLINE_S, _PAUSE_S = 400.0, 0.2
_BEGUN_BYTES = 1_000
"""S3A sends a file when it is whole: of one in the middle only what was asked before has passed."""


@dataclass(frozen=True)
class Rows:
    """So many rows, which the other process makes; the last only once the gate is there."""

    count: int
    gate: Path | None = None

    @property
    def schema(self) -> Rows:
        return self


class FarProcess:
    """Carries out one call after another on sinks that it makes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def call(self, view: str, act: str, *given: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([view, act, *given]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["error"] is None:
            return answer["result"]
        kind = UnavailableSinkError if answer["unavailable"] else SinkError
        text, hint = answer["error"]
        raise kind(text, hint=hint)


class FarSink:
    """A sink as a new process would make it."""

    def __init__(self, process: FarProcess, view: str) -> None:
        self._process, self._view = process, view
        process.call(view, "new")

    def open(self, generation: int, schema: Rows) -> None:
        self._process.call(self._view, "open", generation, schema.count)

    def write(self, rows: Rows) -> None:
        gate = None if rows.gate is None else str(rows.gate)
        self._process.call(self._view, "write", rows.count, gate)

    def seal(self) -> None:
        self._process.call(self._view, "seal")

    def publish(self, generation: int) -> None:
        self._process.call(self._view, "publish", generation)

    def publish_in_two_steps(self, generation: int, between: Path) -> None:
        self._process.call(self._view, "publish_in_two_steps", generation, str(between))

    def discard(self, generation: int) -> None:
        self._process.call(self._view, "discard", generation)

    def published(self) -> int | None:
        found: int | None = self._process.call(self._view, "published")
        return found

    def generations(self) -> list[int]:
        found: list[int] = self._process.call(self._view, "generations")
        return found


class FarBench(Bench):
    """Readers here, straight from the store; sinks in the other process."""

    far: FarProcess

    def sink(self, *_: Any, **__: Any) -> Any:
        return FarSink(self.far, self.view)


class StoreLine(Line):
    """A line whose sinks are in the other process."""

    def sink(self, **_: Any) -> Any:
        return self.bench.sink()

    def rows(self, count: int) -> Any:
        return Rows(count)

    def gated(self, count: int, gate: Path) -> Any:
        return Rows(count, gate)

    def is_in_the_middle(self, since: int) -> None:
        wait_until(lambda: self.proxy.passed - since > _BEGUN_BYTES, 60, "a table is begun")


@dataclass(frozen=True)
class FarStore:
    """A store, its proxy, and the process that reaches it through the proxy."""

    store: ObjectStore
    proxy: Proxy
    process: FarProcess

    def line(self, view: str, folder: Path, served: Callable[..., Any]) -> StoreLine:
        def stored(name: str, number: int) -> int:
            below = f"views/{name}/_generations/{number:06d}/"
            return sum(each.startswith(below) for each in self.store.names("lake"))

        bench = FarBench(
            "store",
            SinkSettings(warehouse=WAREHOUSE),
            None,
            view,
            lambda name: served(f"{WAREHOUSE}/{name}", self.store.environ),
            stored,
            lambda address: served(address.location["path"], self.store.environ),
        )
        bench.far = self.process
        return StoreLine(bench, self.proxy, folder, deadline_s=_DEADLINE_S, pause_s=_PAUSE_S)


@contextmanager
def far_store(folder: Path, settings: Mapping[str, str]) -> Iterator[FarStore]:
    """A store, and a process that writes to it by settings of Spark's, while the block runs."""
    with object_store(folder) as store:
        store.make_bucket("lake")
        port = int(store.url.rpartition(":")[2])
        with Proxy(pick(), port) as proxy:
            environ = {
                **os.environ,
                **store.environ,
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
                "AWS_SECRET_ACCESS_KEY": CANARY,
                "AWS_TIMEOUT": "2s",
            }
            with subprocess.Popen(
                [sys.executable, "-m", __name__, json.dumps(dict(settings))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environ,
            ) as process:
                try:
                    yield FarStore(store, proxy, FarProcess(process))
                finally:
                    process.kill()  # it may wait for the store


def _publish_in_two_steps(sink: DeltaSink, generation: int, between: str) -> None:
    """Publish as no sink may: what serves goes first."""
    sound = DeltaTables.publish

    def seeded(tables: DeltaTables, stable: str, *given: Any) -> None:
        sink._files.remove(f"{stable}/_delta_log")
        wait_until(lambda: Path(between).exists(), 60, "readers look")
        sound(tables, stable, *given)

    DeltaTables.publish = seeded  # type: ignore[method-assign, assignment]
    try:
        sink.publish(generation)
    finally:
        DeltaTables.publish = sound  # type: ignore[method-assign]


def _answers(spark: Any) -> Iterator[dict[str, Any]]:
    sinks: dict[str, DeltaSink] = {}

    def make(view: str) -> None:
        sinks[view] = DeltaSink(view=view, key=("id",), warehouse=WAREHOUSE, spark=spark)

    def write(sink: DeltaSink, count: int, gate: str | None) -> None:
        sink.write(rows_of(spark, count) if gate is None else gated_rows(spark, count, Path(gate)))

    acts: dict[str, Callable[..., Any]] = {
        "open": lambda sink, number, count: sink.open(number, rows_of(spark, count).schema),
        "write": write,
        "seal": lambda sink: sink.seal() and None,
        "publish": lambda sink, number: sink.publish(number),
        "publish_in_two_steps": _publish_in_two_steps,
        "discard": lambda sink, number: sink.discard(number),
        "published": lambda sink: sink.published(),
        "generations": lambda sink: sink.generations(),
    }
    for line in sys.stdin:
        view, act, *given = json.loads(line)
        if act == "new":
            make(view)
            yield {"error": None, "result": None}
            continue
        try:
            yield {"error": None, "result": acts[act](sinks[view], *given)}
        except SinkError as error:
            told = [str(error.args[0]), error.hint]
            yield {"error": told, "unavailable": isinstance(error, UnavailableSinkError)}


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the JVM prints is no answer
    extra = {**json.loads(sys.argv[1]), "spark.driver.extraJavaOptions": SHORT_LIVED}
    spark = session(SessionSettings(master="local[2]", warehouse=WAREHOUSE, extra=extra))
    for answer in _answers(spark):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
