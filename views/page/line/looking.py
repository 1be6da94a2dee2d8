"""Questions to servers, each in a thread of its own: none waits for another, and no page for one.

A question is asked again when a page is shown and the last answer is some seconds old. If the
answer takes too long, the page shows that instead of the last answer, which may no longer be true.
If the last one was an error, that is still shown, because it says more than a late answer.
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
"""The least time from an answer to the next question."""
PATIENCE_S = 15.0
"""How long an answer may take before the page shows that there is none."""
WAIT_S = 4.0
"""How long a page waits at most for the first answers."""


@dataclass(frozen=True, slots=True)
class LastAnswer(Generic[T]):
    """The last answer to a question."""

    value: T | None  # the answer; None if there is none
    why: str = ""  # the reason why there is none, or an empty text
    age_s: float = 0.0  # how long ago the answer came


class Question(Generic[T]):
    """A question that is asked again and again.

    `ask` returns the answer; it may raise an error, and may take long. `patience_s` is how long it
    may take before it counts as unanswered.
    """

    def __init__(self, ask: Callable[[], T], *, patience_s: float = PATIENCE_S) -> None:
        self._ask, self._patience_s = ask, patience_s
        self._changed = threading.Condition()
        self._begun: float | None = None
        self._ended: float | None = None
        self._value: T | None = None
        self._why = ""

    def begin(self, *, at_once: bool = False) -> None:
        """Ask in the background, unless an answer is awaited or has just come."""
        now = time.monotonic()
        with self._changed:
            is_fresh = self._ended is not None and now - self._ended < EVERY_S
            if self._begun is not None or (is_fresh and not at_once):
                return
            self._begun = now
        threading.Thread(target=self._look, name="look", daemon=True).start()

    def wait(self, until: float) -> None:
        """Wait for the first answer, or until a time by the monotonic clock."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended is not None, max(until - time.monotonic(), 0.0)
            )

    @property
    def answer(self) -> LastAnswer[T]:
        """Return the last answer, or the reason why there is none."""
        now = time.monotonic()
        with self._changed:
            waited_s = 0.0 if self._begun is None else now - self._begun
            if waited_s > self._patience_s and not self._why:
                return LastAnswer(None, f"no answer for {waited_s:,.0f} s")
            if self._ended is None:
                return LastAnswer(None, "no answer yet")
            return LastAnswer(self._value, self._why, now - self._ended)

    def _look(self) -> None:
        value, why = None, ""
        try:
            value = self._ask()
        except ChangelogError as error:
            why = one_line(error)
        except Exception as error:  # noqa: BLE001 - the page shows any error
            why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        with self._changed:
            self._value, self._why = value, why
            self._begun, self._ended = None, time.monotonic()
            self._changed.notify_all()


def ask_all(questions: Collection[Question[T]], *, wait_s: float = WAIT_S) -> None:
    """Ask all questions that are due, and wait a little for the first answers."""
    until = time.monotonic() + wait_s
    for question in questions:
        question.begin()
    for question in questions:
        question.wait(until)
