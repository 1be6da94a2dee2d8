"""Deliver the changes of a view, many keys at a time, and keep the place that is delivered whole.

A key's events go through one lane, in the order of the topic, each once the one before is delivered
or refused for good. At a frontier all lanes are waited for; then its mark is written. So a process
that is killed sends again what it sent after the last mark, under the same ids, and misses nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from zlib import crc32

import orjson

from views.changes.feed import Event as FeedEvent
from views.changes.feed import FeedFrontier, Nothing, Some
from views.push.events import OutgoingEvent, event_of
from views.push.receiver import Receiver, Refusal, StoppedError
from views.sinks.topic.server import TopicServer

log = logging.getLogger("changelog.push")

_WAITING = 64
"""Events of a lane, at most."""
_LOOK_S = 0.1
_MARK_EVERY_S = 1.0


class Changes(Protocol):
    """Gives the changes of a view, as `views.changes.feed.Feed` does."""

    @property
    def life(self) -> str:
        """Return the topic's own id."""

    def events(self) -> Iterator[FeedEvent]:
        """Yield changes and frontiers."""


class Marks(Protocol):
    """Keeps the place that a push has come to."""

    def write(self, mark: str) -> None:
        """Write the mark of a frontier that is delivered whole."""


class DeadLetters(Protocol):
    """Keeps events that a receiver will never take."""

    def put(self, event: OutgoingEvent, refusal: Refusal) -> None:
        """Keep one, for good once this returns."""


class DeadTopic:
    """Keeps refused events for ever on the topic `{topic}.refused`, with the reason."""

    def __init__(self, server: TopicServer, topic: str) -> None:
        self._server, self._topic = server, f"{topic}.refused"
        self._is_there = False
        self._turn = threading.Lock()

    def put(self, event: OutgoingEvent, refusal: Refusal) -> None:
        """Write one."""
        value = {
            "status": refusal.status,
            "reason": refusal.text,
            "at": datetime.now(UTC).isoformat(),
            "event": orjson.Fragment(event.body),
        }
        with self._turn:
            if not self._is_there:
                self._server.create(self._topic, retention_ms=-1)
                self._is_there = True
            self._server.write(self._topic, event.key, orjson.dumps(value))


@dataclass(slots=True)
class PushReport:
    """Counts of one run."""

    delivered: int = 0  # events that the receiver has
    refused: int = 0  # events that are dead letters
    mark: str | None = None  # the frontier that is delivered whole
    lsn: str | None = None  # of that frontier

    def to_json(self) -> dict[str, object]:
        """Return the object of `--json`."""
        return {
            "delivered": self.delivered,
            "refused": self.refused,
            "mark": self.mark,
            "lsn": self.lsn,
        }


class Pusher:
    """Delivers what a feed gives."""

    def __init__(
        self,
        feed: Changes,
        receiver: Receiver,
        marks: Marks,
        dead: DeadLetters,
        *,
        topic: str,
        lanes: int,
        stop: Callable[[], bool],
    ) -> None:
        self.report = PushReport()
        self._feed, self._receiver, self._marks, self._dead = feed, receiver, marks, dead
        self._topic, self._stop = topic, stop
        self._lanes = [queue.Queue[OutgoingEvent](_WAITING) for _ in range(lanes)]
        self._error: BaseException | None = None
        self._turn = threading.Lock()
        self._pending: FeedFrontier | None = None
        self._marked = 0.0

    def run(self, *, once: bool = False) -> None:
        """Deliver until a stop is asked for; with `once` until nothing is left.

        Raises ReceiverError: the receiver takes nothing; LockedError: another process pushes under
        this name; ViewError: the changes are not kept any more; SinkError: the brokers refuse.
        """
        for lane in self._lanes:
            threading.Thread(target=self._work, args=(lane,), name="push", daemon=True).start()
        with suppress(StoppedError):  # what is not delivered is sent by the next run
            self._take(once=once)
        self._write_mark()

    def _take(self, *, once: bool) -> None:
        for event in self._feed.events():
            match event:
                case Some(changes=changes):
                    for change in changes:
                        outgoing = event_of(self._topic, self._feed.life, change)
                        self._put(self._lane_of(outgoing.key), outgoing)
                case FeedFrontier():
                    self._await_lanes()
                    self._pending = event
                    if time.monotonic() - self._marked >= _MARK_EVERY_S:
                        self._write_mark()
                case Nothing():
                    self._write_mark()
                    if once:
                        return
            self._check()

    def _lane_of(self, key: bytes) -> queue.Queue[OutgoingEvent]:
        return self._lanes[crc32(key) % len(self._lanes)]

    def _put(self, lane: queue.Queue[OutgoingEvent], event: OutgoingEvent) -> None:
        while True:
            self._check()
            try:
                lane.put(event, timeout=_LOOK_S)
            except queue.Full:
                continue
            return

    def _await_lanes(self) -> None:
        """Wait until all events are delivered or refused."""
        for lane in self._lanes:
            with lane.all_tasks_done:
                while lane.unfinished_tasks:
                    self._check()
                    lane.all_tasks_done.wait(_LOOK_S)
        self._check()

    def _check(self) -> None:
        """Raise what has ended a lane, or StoppedError if we are to end."""
        if self._error is not None:
            raise self._error
        if self._stop():
            raise StoppedError

    def _work(self, lane: queue.Queue[OutgoingEvent]) -> None:
        while True:
            event = lane.get()
            try:
                self._send(event)
            except BaseException as error:  # noqa: BLE001 - raised again in the main thread
                # The event stays unfinished, so that no mark is written after it.
                self._error = self._error or error
                return
            lane.task_done()

    def _send(self, event: OutgoingEvent) -> None:
        refusal = self._receiver.deliver(event)
        if refusal is not None:
            self._dead.put(event, refusal)
            log.warning(
                "event %s is refused (%d %s), and on the topic of refused ones",
                event.id, refusal.status, refusal.text,
            )  # fmt: skip
        with self._turn:
            self.report.delivered += refusal is None
            self.report.refused += refusal is not None

    def _write_mark(self) -> None:
        if self._pending is None:
            return
        frontier, self._pending = self._pending, None
        self._marks.write(frontier.mark)
        self._marked = time.monotonic()
        self.report.mark, self.report.lsn = frontier.mark, str(frontier.moment.lsn)
