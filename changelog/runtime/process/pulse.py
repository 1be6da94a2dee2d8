"""Signs of life of the threads without which a process does nothing."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from changelog.contract.base.secret import redacted

log = logging.getLogger("changelog.process")

SILENT_S = 180.0  # longer than the brokers may be silent, and than tasks take to end
_AGAIN_S = 1.0


class Pulse:
    """The signs of life of a thread: one a round, with what the round failed by."""

    def __init__(self, thread_name: str) -> None:
        self._name, self._error, self._seen = thread_name, "", time.monotonic()
        self._has_ended = False

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Wrap the whole work of the thread."""
        try:
            yield
        finally:
            self._has_ended = True

    @contextmanager
    def beat(self) -> Iterator[None]:
        """Wrap a round: its failure is reported, and the next round tries again."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - told by the log and by /health
            self._error = type(error).__name__
            trace = redacted("".join(traceback.format_exception(error)))
            log.log(logging.ERROR, "%s failed: %s", self._name, trace)
        else:
            self._error = ""
        self._seen = time.monotonic()

    @property
    def pause_s(self) -> float:
        """Return the seconds to wait before the next round."""
        return _AGAIN_S if self._error else 0.0

    def problem(self) -> str:
        """Return the fault of the thread; empty if it is well."""
        if self._has_ended:
            return f"{self._name} has ended: restart this worker"
        if self._error:
            return f"{self._name} fails ({self._error}): the log says why"
        silent_s = time.monotonic() - self._seen
        return f"{self._name} has stood still for {silent_s:.0f} s" if silent_s > SILENT_S else ""
