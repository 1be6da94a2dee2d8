"""An application that changes rows, and readers that wait until they are shown: threads of each.

Among the changes are probes: rows that nothing else touches get the next stamp, four or ten times a
second. A reader asks again and again which stamps are shown. So each probe has a delay, from its
commit until it, or a later one of the same rows, was seen.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import ClassVar

import httpx
import psycopg2
import redis

Cursor = psycopg2.extensions.cursor
TRANSACTION_S = 0.02
_FAILURES = (httpx.HTTPError, psycopg2.Error, redis.RedisError, KeyError, IndexError, TypeError)


@dataclass
class Writer(ABC):
    """Changes rows, in a thread, until it is told to stop; it may go on then.

    Attributes:
        dsn: the source.
        orders: how many there were at first.
        rate: changed rows a second.
        commits: by stamp its probe, and when its transaction had been committed.
        changes: how many rows were changed.
    """

    probe_every_s: ClassVar[float]

    dsn: str
    orders: int
    rate: int
    commits: dict[int, tuple[int, float]] = field(default_factory=dict)
    changes: int = 0

    def __post_init__(self) -> None:
        """Prepare what is random, the same each time."""
        self._random = random.Random(7)  # noqa: S311 - no secret
        self._pause = threading.Event()
        self._thread: threading.Thread | None = None
        self._next_order = self.orders + 1
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Begin, or go on."""
        self._pause.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and say what went wrong if anything did."""
        self._pause.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    @abstractmethod
    def change(self, cursor: Cursor, count: int) -> None:
        """Make about so many changes, and count them."""

    @abstractmethod
    def probe(self, cursor: Cursor, stamp: int) -> int:
        """Give a probe its stamp; returns which probe it is."""

    def _run(self) -> None:
        try:
            with closing(psycopg2.connect(self.dsn)) as connection:
                self._write(connection)
        except BaseException as error:  # noqa: BLE001 - told by `stop`
            self._failure = error

    def _write(self, connection: psycopg2.extensions.connection) -> None:
        began, before, probed = time.monotonic(), self.changes, 0.0
        while not self._pause.is_set():
            due = int((time.monotonic() - began) * self.rate) - (self.changes - before)
            is_probe = time.monotonic() - probed >= self.probe_every_s
            if due > 0 or is_probe:
                count = max(0, min(due, 2 * int(self.rate * TRANSACTION_S) + 1))
                at = self._transaction(connection, count, is_probe=is_probe)
                probed = at if is_probe else probed
            self._pause.wait(TRANSACTION_S)
        self._transaction(connection, 0, is_probe=True)

    def _transaction(
        self, connection: psycopg2.extensions.connection, count: int, *, is_probe: bool
    ) -> float:
        """Make so many changes, and a probe if it is time for one; returns when it is committed."""
        stamp, probe = len(self.commits) + 1, None
        with connection, connection.cursor() as cursor:
            if count:
                self.change(cursor, count)
            if is_probe:
                probe = self.probe(cursor, stamp)
        now = time.monotonic()
        if probe is not None:
            self.commits[stamp] = probe, now
        return now

    def _some(self, wanted: float) -> int:
        """Round at random, so that the mean is right."""
        whole = int(wanted)
        return whole + (self._random.random() < wanted - whole)


@dataclass
class Reader:
    """Asks a server again and again, in a thread, which stamps it shows.

    Attributes:
        name: what is read.
        stamps: asks for the stamp of each probe.
        every_s: how often; a probe counts as later by half of it.
        seen: by stamp, when it was shown first.
    """

    name: str
    stamps: Callable[[], Mapping[int, int]]
    every_s: float = 0.1
    seen: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the thread."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._at = -1

    @property
    def at(self) -> int:
        """Return the newest stamp that was shown, or -1."""
        return self._at

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self.every_s):
            try:
                found = self.stamps()
            except _FAILURES:
                continue  # the first generation is not there yet, or a server is away
            now = time.monotonic()
            for stamp in found.values():
                self.seen.setdefault(stamp, now)
                self._at = max(self._at, stamp)

    def delays(
        self, commits: Mapping[int, tuple[int, float]], since: float, until: float = float("inf")
    ) -> list[float]:
        """Return the delay of each stamp that was committed between two moments.

        One that a later one of its probe overtook counts until that one was seen.
        """
        later: dict[int, float] = {}
        out = []
        for stamp in sorted(commits, reverse=True):
            probe, at = commits[stamp]
            seen = self.seen.get(stamp, later.get(probe))
            if seen is None:
                continue
            later[probe] = seen
            if since <= at <= until:
                out.append(seen - at)
        return out
