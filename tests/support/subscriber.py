"""An application that follows a view's changes by HTTP, and goes on whenever it is cut off."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, Self

import httpx

from tests.support.wait import wait_until

DEADLINE_S = 120
LEAST_LINES, MOST_LINES = 4, 60
Rows = dict[Hashable, Any]


class Reader:
    """An application's copy of the view, made of the events it was sent.

    Args:
        key: of the columns of a key.
        row: of the columns of a row, what is held.
    """

    def __init__(
        self,
        key: Callable[[Mapping[str, Any]], Hashable] = lambda key: key["id"],
        row: Callable[[Mapping[str, Any]], Any] = lambda row: row["name"],
    ) -> None:
        self._key, self._row = key, row
        self.rows: Rows = {}
        self.mark = "start"
        self.frontiers: list[tuple[str, int, Rows]] = []
        self._some: list[dict[str, Any]] = []
        self._next = ""

    def take(self, line: str) -> None:
        name, _, value = line.partition(": ")
        if name == "id":
            self._next = value  # it counts with its event, which may not come whole
        elif name == "data":
            said = json.loads(value)
            self._some += said.get("changes", [])
            if "lsn" in said:
                self._whole(said)

    def reconnected(self) -> None:
        """Forget what came behind the last frontier."""
        self._some.clear()

    def _whole(self, said: dict[str, Any]) -> None:
        rows = dict(self.rows)
        for each in self._some:
            key = self._key(each["key"])
            if each["row"] is None:
                rows.pop(key, None)
            else:
                rows[key] = self._row(each["row"])
        self._some.clear()
        self.frontiers.append((said["lsn"], said["generation"], rows))
        # Whoever looks from another thread sees the rows of a frontier, and not half of the next.
        self.mark, self.rows = self._next, rows

    def wrong(self, truth: Mapping[tuple[str, int], Mapping[Any, Any]]) -> list[tuple[str, int]]:
        """Return the frontiers at which other rows were held than those of the view."""
        return [
            (lsn, generation)
            for lsn, generation, rows in self.frontiers
            if truth[lsn, generation] != rows
        ]


class Client:
    """Follows a view in a thread.

    Args:
        view: its name.
        reader: takes what comes.
        cuts: lets it break off by itself, after some lines; None where others do that.

    Attributes:
        url: of the server; may move.
        connected: how often it has connected.
        refused: what it was answered in place of a stream.
    """

    def __init__(
        self, view: str, reader: Reader | None = None, cuts: random.Random | None = None
    ) -> None:
        self.url = ""
        self.reader = reader or Reader()
        self.connected = 0
        self.refused: list[tuple[int, str]] = []
        self._view, self._cuts = view, cuts
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def has(self, lsn: str, generation: int) -> None:
        """Wait until it has come to a frontier."""
        wait_until(
            lambda: self.reader.frontiers and self.reader.frontiers[-1][:2] == (lsn, generation),
            DEADLINE_S,
            f"the client is at {lsn} of generation {generation}",
        )

    def _follow(self) -> None:
        while not self._ends.is_set():
            self.reader.reconnected()
            with suppress(httpx.TransportError):
                self._connect()
            self._ends.wait(0.05)

    def _connect(self) -> None:
        since = {"Last-Event-ID": self.reader.mark}
        url = f"{self.url}/views/{self._view}/changes"
        with httpx.stream("GET", url, headers=since, timeout=DEADLINE_S) as stream:
            if stream.status_code != httpx.codes.OK:
                self.refused.append((stream.status_code, stream.read().decode()))
                return
            self.connected += 1
            left = self._cuts.randint(LEAST_LINES, MOST_LINES) if self._cuts else -1
            for line in stream.iter_lines():
                self.reader.take(line)
                left -= 1
                if left == 0 or self._ends.is_set():
                    return
