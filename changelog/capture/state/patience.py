"""How long a start of capture waits: for servers that are away, and for a slot that is held.

A start may meet servers that are being restarted, as a running capture does, which waits for as
long as it takes. But it may also have been given a wrong address, and that has to be told: so each
try says what is missing, and after a while the start is given up.

What the servers refuse (a password, a database, a setting) is told at once: waiting would not
mend it. A host that has no name counts as away: where containers run, names come with servers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TypeVar

from changelog.config import Project
from changelog.contract.base.errors import (
    RefusedAccessError,
    UnavailableError,
    UnavailableSourceError,
)
from changelog.contract.base.secret import redacted
from changelog.source.connect.connect import connect
from changelog.source.connect.system import sender_timeout_s
from changelog.source.stream.slot import SlotBusyError
from changelog.source.stream.slot_reader import ReaderPulse, SlotReader, slot_reader

log = logging.getLogger("changelog.capture")

T = TypeVar("T")

WAIT_S = 60.0
MARGIN_S = 10.0
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 15.0
_NAP_S = 0.1


def sleep(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait, or until a stop is asked for."""
    deadline = time.monotonic() + seconds
    while not stop() and time.monotonic() < deadline:
        time.sleep(_NAP_S)


class Patience:
    """Waits for servers that do not answer, until the time for a start is over."""

    def __init__(self, limit_s: float | None, stop: Callable[[], bool]) -> None:
        """Begin to count; `limit_s` is in seconds, None for the default, 0 for no waiting."""
        self._until = time.monotonic() + (WAIT_S if limit_s is None else limit_s)
        self._stop = stop
        self._next_s = FIRST_WAIT_S

    def wait(self, error: UnavailableError) -> None:
        """Wait a moment before the next try.

        Raises UnavailableError: the given one, when the time is over or waiting is of no use.
        """
        remaining_s = self._until - time.monotonic()
        if remaining_s <= 0 or isinstance(error, RefusedAccessError):
            raise error
        wait_s = min(self._next_s, remaining_s)
        self._next_s = min(2 * self._next_s, LONGEST_WAIT_S)
        message = redacted(str(error))
        log.warning("%s; trying again in %.1f s, for %.0f s in all", message, wait_s, remaining_s)
        sleep(wait_s, self._stop)

    def ask(self, call: Callable[[], T]) -> T | None:
        """Call until there is an answer, or return None if a stop is asked for before.

        Raises UnavailableError: there is none in time.
        """
        while not self._stop():
            try:
                return call()
            except UnavailableError as error:
                self.wait(error)
        return None


def wait_for_slot(settings: Project, limit_s: float | None, stop: Callable[[], bool]) -> None:
    """Wait until nobody reads the project's slot any more, or a server goes away meanwhile.

    A connection that is dead keeps it until `wal_sender_timeout`: after kill -9 for a moment, after
    a network that swallowed packets for all of it. `limit_s` is None for that time and a margin.

    Raises SlotBusyError: who reads it lives, or the time is over.
    """
    with suppress(UnavailableSourceError), closing(connect(settings.postgres)) as connection:
        if limit_s is None:
            limit_s = (sender_timeout_s(connection) or WAIT_S) + MARGIN_S
        deadline, is_told = time.monotonic() + limit_s, False
        for slot in settings.capture.slots:
            pulse = ReaderPulse()
            while not stop():
                reader = slot_reader(connection, slot)
                if reader is None:
                    break
                if pulse.lives(reader):
                    raise _busy(slot, reader, "which answers: another capture runs")
                if time.monotonic() >= deadline:
                    raise _busy(slot, reader, f"still after {limit_s:.0f} s")
                if not is_told:
                    message = _sentence(slot, reader)
                    log.warning("%s; waiting up to %.0f s, should it be dead", message, limit_s)
                    is_told = True
                sleep(FIRST_WAIT_S, stop)


def _sentence(slot: str, reader: SlotReader) -> str:
    return f'slot "{slot}" is read by the server process {reader.pid} for {reader.address}'


def _busy(slot: str, reader: SlotReader, why: str) -> SlotBusyError:
    return SlotBusyError(
        f"{_sentence(slot, reader)}, {why}",
        hint="end the other capture, or give this one its own slot",
    )
