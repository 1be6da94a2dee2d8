"""A sink behind a proxy, with one generation that a reader looks at all the while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from psycopg2.extensions import make_dsn, parse_dsn

from changelog.stack.base.ports import pick
from tests.conformance.conftest import Bench
from tests.support.proxy import Proxy
from tests.support.services import Detour
from tests.support.wait import wait_until
from views.sinks.base import Sink, SinkSettings
from views.sinks.make import make_sink

CANARY = "c4n4ry-secret"
PASSED_BYTES = 1 << 20
"""So much of a generation has gone through when it is said to be in the middle."""
SCHEMA = "id int, text string"
_PAYLOAD = "concat_ws('', transform(sequence(1, 4), n -> sha2(concat(id, '-', n), 256)))"
"""A quarter of a kilobyte that no compression makes small."""


@dataclass
class Line:
    """A bench, and the same servers behind a proxy.

    Attributes:
        bench: makes sinks and reads without the proxy.
        proxy: on the way of the others.
        folder: for files that a task of Spark and the test tell each other by.
        looks: how often the reader has looked.
        deadline_s: for limits of one, two and five seconds, on a machine that has much else to do.
        pause_s: between two looks of a reader that costs the machine much.
    """

    bench: Bench
    proxy: Proxy
    folder: Path
    looks: int = 0
    deadline_s: float = 60.0
    pause_s: float = 0.0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    def sink(self, *, retry_s: float = 1.0, answer_s: float = 2.0) -> Sink:
        """Make a sink that goes through the proxy and is not patient."""
        kind, view, settings, options = self.asked(retry_s=retry_s, answer_s=answer_s)
        return make_sink(
            kind, view=view, key=("id",), settings=settings, spark=self.bench.spark, options=options
        )

    def asked(
        self, *, retry_s: float = 1.0, answer_s: float = 2.0
    ) -> tuple[str, str, SinkSettings, dict[str, Any]]:
        """Return what such a sink is made of."""
        settings, kind = self.bench.settings, self.bench.kind
        through: dict[str, Any] = {
            "search": {"search_url": f"http://ann:{CANARY}@{self.address}"},
            "cache": {"cache_url": f"redis://{self.address}/0"},
            "postgres": {"postgres_url": self._dsn()},
            "topic": {"kafka": self._kafka()},
        }[kind]
        # A transaction takes some seconds to begin where much runs.
        retry_s = max(retry_s, 5.0) if kind == "topic" else retry_s
        impatient = replace(settings, **through, retry_seconds=retry_s, answer_seconds=answer_s)
        return kind, self.bench.view, impatient, self.bench.options

    def _dsn(self) -> str:
        url = self.bench.settings.postgres_url
        if url is None:
            return ""
        return make_dsn(url, host="127.0.0.1", port=self.proxy.port, password=CANARY)

    def _kafka(self) -> Any:
        kafka = self.bench.settings.kafka
        return None if kafka is None else replace(kafka, brokers=self.address)

    def rows(self, count: int) -> Any:
        return rows_of(self.bench.spark, count)

    def gated(self, count: int, gate: Path) -> Any:
        """Return rows of which the last come only once a file is there."""
        return gated_rows(self.bench.spark, count, gate)

    def is_in_the_middle(self, since: int) -> None:
        """Wait until a part of a generation has gone to the server."""
        wait_until(lambda: self.proxy.passed - since > PASSED_BYTES, 60, "a part is written")

    def build(self, generation: int, count: int) -> Sink:
        """Build and publish a generation, without the proxy."""
        sink = self.bench.sink()
        rows = self.rows(count)
        sink.open(generation, rows.schema)
        sink.write(rows)
        sink.seal()
        sink.publish(generation)
        return sink

    def clear_up(self) -> None:
        """Remove what is not published, as the next run does."""
        sink = self.bench.sink()
        for generation in sink.generations():
            if generation != sink.published():
                sink.discard(generation)

    def looks_once(self) -> None:
        """Wait until the reader has looked from begin to end."""
        begun = self.looks
        wait_until(lambda: self.looks > begun + 1, 30, "the reader looks")

    @contextmanager
    def looked_at(self, *counts: int) -> Iterator[None]:
        """Look at what is served all the while: as many rows as one of these, never fewer again."""
        seen: list[Any] = []
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                try:
                    rows = self.bench.served(self.bench.view)
                    found: Any = None if rows is None else sorted(row["id"] for row in rows)
                except Exception as error:  # noqa: BLE001 - told below
                    found = error
                if not seen or seen[-1] != found:
                    seen.append(found)
                self.looks += 1
                over.wait(self.pause_s)

        reader = threading.Thread(target=look)
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()
        known = [list(range(count)) for count in counts]
        assert all(found in known for found in seen), f"a reader saw {_short(seen)}"
        assert seen == sorted(seen, key=len), f"a reader saw {_short(seen)}"


def _short(seen: list[Any]) -> list[Any]:
    return [len(each) if isinstance(each, list) else each for each in seen]


def rows_of(spark: Any, count: int) -> Any:
    return spark.range(0, count, 1, 1).selectExpr("cast(id as int) id", f"{_PAYLOAD} text")


def gated_rows(spark: Any, count: int, gate: Path) -> Any:
    """Return rows of which the last come only once a file is there.

    There have to be several times as many as Spark hands on at once: it keeps some back.
    """
    place = str(gate)

    def held(batches: Iterator[Any]) -> Iterator[Any]:
        from pathlib import Path
        from threading import Event

        never, last = Event(), None
        for batch in batches:
            if last is not None:
                yield last
            last = batch
        for _ in range(6_000):
            if Path(place).exists():
                break
            never.wait(0.02)
        if last is not None:
            yield last

    return rows_of(spark, count).mapInArrow(held, SCHEMA)


@contextmanager
def line_of(bench: Bench, detour: Detour, folder: Path) -> Iterator[Line]:
    """Put a proxy before the server of a bench."""
    settings = bench.settings
    port, listener = {
        "search": lambda: (pick(), urlsplit(str(settings.search_url)).port),
        "cache": lambda: (pick(), urlsplit(str(settings.cache_url)).port),
        "postgres": lambda: (pick(), int(parse_dsn(str(settings.postgres_url))["port"])),
        # What the broker says of itself names this port.
        "topic": lambda: (detour.proxy, detour.listener),
    }[bench.kind]()
    assert listener is not None
    with Proxy(port, listener) as proxy:
        yield Line(bench, proxy, folder)


def within(seconds: float, act: Callable[[], object], *, otherwise: Callable[[], None]) -> object:
    """Call `act` and return its result; fail the test if it takes longer than `seconds`."""
    with ThreadPoolExecutor(1) as pool:
        running: Future[object] = pool.submit(act)
        try:
            return running.result(seconds)
        except TimeoutError:
            if running.done():
                raise
            otherwise()
            raise AssertionError(f"it goes on after {seconds:g} s") from None
