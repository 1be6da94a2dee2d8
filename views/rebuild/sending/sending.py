"""Send deltas to all sinks of a follower's views, so that no sink waits for another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from changelog.contract.base.position import Position
from views.rebuild.one_view.delta import Delta
from views.rebuild.result.report import SinkReach
from views.rebuild.sending.sender import ElsewhereError, Sender, Waiting
from views.sinks.base import ForwardSink

PATIENCE_S = 1.0
"""A round waits so long, at most, for sinks that lacked nothing before it."""
_PRESSED_S = 0.1
"""And so long where changes wait for the next round: its rows can be computed meanwhile."""
_LOOK_S = 0.5


class Sending:
    """The workers of a follower's sinks.

    `confirm`: raises where the follower has lost its locks; asked before each sink is written to.
    """

    def __init__(self, confirm: Callable[[], None] = lambda: None) -> None:
        self._confirm = confirm
        self._senders: dict[str, dict[str, Sender]] = {}
        self._fresh: list[tuple[Sender, float]] = []

    def begin(
        self,
        view: str,
        generation: int,
        sinks: Mapping[str, ForwardSink],
        positions: Mapping[str, Position],
    ) -> None:
        """Take a view, and the position that each of its sinks is at."""
        self._senders[view] = {
            name: Sender(view, name, sink, generation, positions[name], self._confirm)
            for name, sink in sinks.items()
        }

    def send(self, view: str, delta: Delta | None, position: Position) -> None:
        """Queue a proved delta for the sinks of a view.

        `delta`: None if the view's rows are as before. `position`: the first that it says nothing
        of.
        """
        since = time.monotonic()
        for sender in self._senders[view].values():
            if delta is None:
                sender.reached(position)
                continue
            if not sender.reach.is_behind:
                self._fresh.append((sender, since))
            sender.send(Waiting(delta=delta, position=position, since=since))

    def wait(self, *, is_pressed: bool = False) -> None:
        """Wait briefly for the sinks that were up to date before they were sent something.

        `is_pressed`: whether changes wait already for the next round.
        """
        patience_s = _PRESSED_S if is_pressed else PATIENCE_S
        fresh, self._fresh = self._fresh, []
        for sender, since in fresh:
            sender.wait(since + patience_s)

    def longest_first(self, views: Iterable[str]) -> list[str]:
        """Return views by the time that their sinks' last writes took, the longest first."""
        return sorted(
            views,
            key=lambda view: (
                -max((s.took_s for s in self._senders.get(view, {}).values()), default=0.0)
            ),
        )

    def reach(self, view: str) -> dict[str, SinkReach]:
        """Return the progress of each sink of a view."""
        return {name: sender.reach for name, sender in self._senders.get(view, {}).items()}

    def rows(self, view: str) -> int | None:
        """Return the number of rows of a view, or None before anything was sent."""
        counts = (sender.rows for sender in self._senders[view].values())
        return next((rows for rows in counts if rows is not None), None)

    def failed(self, view: str) -> Exception | None:
        """Return the error for which a sink of a view takes no more rows, or None."""
        errors = (sender.failed for sender in self._senders[view].values())
        return next((error for error in errors if error is not None), None)

    @property
    def calls_for_spark(self) -> str | None:
        """Return the reason why the next round has to use Spark, or None."""
        for sender in self._all_senders():
            if isinstance(sender.failed, ElsewhereError):
                return str(sender.failed)
            if sender.can_catch_up:
                return f'sink {sender.name} of view "{sender.view}", left behind, answers again'
        return None

    @property
    def is_busy(self) -> bool:
        """Tell whether a sink may be written to at any moment."""
        return any(sender.is_busy for sender in self._all_senders())

    def pause(self, stop: Callable[[], bool]) -> bool:
        """Start no write before `resume`; tell whether all present writes have ended.

        `stop`: tells whether to stop waiting for them.
        """
        senders = list(self._all_senders())
        for sender in senders:
            sender.pause(time.monotonic())
        while not all(sender.pause(time.monotonic() + _LOOK_S) for sender in senders):
            if stop():
                return False
        return True

    def resume(self) -> None:
        """Resume sending to all sinks."""
        for sender in self._all_senders():
            sender.resume()

    def drain(self, limit_s: float) -> None:
        """Wait until sinks that answer have what waits for them."""
        until = time.monotonic() + limit_s
        for sender in self._all_senders():
            sender.wait(until)

    def end(self, limit_s: float | None = None) -> bool:
        """Start no further write; tell whether all present writes have ended.

        Waiting rows are dropped: each sink knows its position and is brought forward from there.

        `limit_s`: the longest wait in seconds; None waits without limit.
        """
        until = None if limit_s is None else time.monotonic() + limit_s
        senders = list(self._all_senders())
        self._senders, self._fresh = {}, []
        for sender in senders:
            sender.end(time.monotonic())
        return all(sender.end(until) for sender in senders)

    def _all_senders(self) -> Iterator[Sender]:
        for senders in self._senders.values():
            yield from senders.values()
