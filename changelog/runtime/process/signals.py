"""Signals that come at a bad moment: SIGINT during an import, SIGTERM before temporary files go."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TERMINATED = 128 + signal.SIGTERM


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Run the body to its end before Ctrl-C raises KeyboardInterrupt."""
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not default or threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: numbers.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if numbers:
        raise KeyboardInterrupt


def end_in_order() -> None:
    """Have SIGTERM end this process by an error, so that what it opened is closed and removed."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
    raise SystemExit(_TERMINATED)
