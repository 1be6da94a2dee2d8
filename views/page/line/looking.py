"""Looks at servers, each in a thread of its own: none waits for another, and no page for one.

A look is made when somebody asks and the last one is some seconds old. One that gives no answer in
its time is told so, until it has one: what it found before is not true of now. Why it found nothing
before goes on being told, since that says more than that it is late again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.edge import one_line

T = TypeVar("T")
EVERY_S = 5.0
"""From the end of one look to the begin of the next, at least."""
PATIENCE_S = 15.0
"""A look has so long to answer."""
WAIT_S = 4.0
"""A page waits so long, at most, for looks that have found nothing yet."""


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """Result of a look at the servers."""

    value: T | None  # what it found; None where it found nothing out
    why: str = ""  # why it found nothing out, or an empty text
    age_s: float = 0.0  # how long ago that was


class Look(Generic[T]):
    """One thing that is looked at.

    `ask`: looks; may raise, and may take long. `patience_s`: how long it may take before it counts
    as unanswered.
    """

    def __init__(self, ask: Callable[[], T], *, patience_s: float = PATIENCE_S) -> None:
        self._ask, self._patience_s = ask, patience_s
        self._changed = threading.Condition()
        self._begun: float | None = None
        self._ended: float | None = None
        self._value: T | None = None
        self._why = ""

    def begin(self, *, at_once: bool = False) -> None:
        """Begin to look, unless a look is under way or has just ended."""
        now = time.monotonic()
        with self._changed:
            is_fresh = self._ended is not None and now - self._ended < EVERY_S
            if self._begun is not None or (is_fresh and not at_once):
                return
            self._begun = now
        threading.Thread(target=self._look, name="look", daemon=True).start()

    def wait(self, until: float) -> None:
        """Wait until it has answered once, or until a time by the monotonic clock."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended is not None, max(until - time.monotonic(), 0.0)
            )

    @property
    def seen(self) -> Seen[T]:
        """Return the state that was seen last."""
        now = time.monotonic()
        with self._changed:
            waited_s = 0.0 if self._begun is None else now - self._begun
            if waited_s > self._patience_s and not self._why:
                return Seen(None, f"no answer for {waited_s:,.0f} s")
            if self._ended is None:
                return Seen(None, "no answer yet")
            return Seen(self._value, self._why, now - self._ended)

    def _look(self) -> None:
        value, why = None, ""
        try:
            value = self._ask()
        except ChangelogError as error:
            why = one_line(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page tells it
            why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        with self._changed:
            self._value, self._why = value, why
            self._begun, self._ended = None, time.monotonic()
            self._changed.notify_all()


def look_at(looks: Collection[Look[T]], *, wait_s: float = WAIT_S) -> None:
    """Begin all looks that are due, and wait a little for the first results."""
    until = time.monotonic() + wait_s
    for look in looks:
        look.begin()
    for look in looks:
        look.wait(until)
