"""Signals: what the rows of the signal table ask for, taken out of the stream.

Each is answered in the next frontier, which is written as soon as one may stand: the one who asked
finds the row's id there. Nothing is remembered elsewhere. A capture that is killed before that
frontier reads the row again, and one that is killed after it begins behind the row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from changelog.capture.start.attempt import Attempt
from changelog.capture.write.fence import XidSnapshot
from changelog.contract.base.errors import ConfigurationError, ProtocolError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import TableName
from changelog.source.stream.assemble import Began, Emitted
from changelog.source.stream.signals import (
    KINDS,
    PAUSE,
    RESNAPSHOT,
    Signal,
    pause_of,
)
from changelog.source.tables.filter import TableFilter

log = logging.getLogger("changelog.capture")

DONE = "done"


class Signals:
    """Takes the signals of one attempt."""

    def __init__(self, attempt: Attempt, request: Callable[[TableName, str, Lsn], None]) -> None:
        """Begin with the answers of the last frontier.

        `request` asks for a copy of a table; it is told the reason and where it was asked for.
        """
        self._slot = attempt.settings.slot  # signals to others are left alone
        self._environment, self._ledger = attempt.environment, attempt.ledger
        self._request = request
        self._xid: int | None = None
        self.is_open = False
        self.is_due = False

    @property
    def paused(self) -> int | None:
        """Return the signal that holds the stream."""
        return self._ledger.paused

    def take(self, message: Emitted, began: Began) -> None:
        """Take a message of the signal table's prefix.

        Sets `is_open` until the caller has seen the end of the transaction, since a pause holds
        exactly there, and `is_due` until a frontier tells the answer.
        """
        try:
            signal = Signal.parse(message.content)
        except ProtocolError as error:
            # Whoever may connect may write such a message: it must not stop the rows.
            log.warning("%s; left out", error)
            return
        if not message.transactional or signal.slot not in {None, self._slot}:
            return
        outcome = self._act(signal, began)
        level = logging.INFO if outcome == DONE else logging.WARNING
        fields = {"lsn": str(began.commit_lsn)}
        log.log(level, 'signal %d "%s": %s', signal.id, signal.kind, outcome, extra=fields)
        self._ledger.answer(signal.id, outcome)
        self.is_open = self.is_due = True

    def _act(self, signal: Signal, began: Began) -> str:
        """Carry out a signal; returns its outcome as a text."""
        if signal.kind not in KINDS:
            return f"not done: there is no such kind, only {', '.join(KINDS)}"
        if signal.kind == RESNAPSHOT:
            try:
                return self._resnapshot(signal, began.commit_lsn)
            except ConfigurationError as error:
                return f"not done: {error.args[0]}"
        if signal.kind == PAUSE:
            self._xid = began.xid
            self._ledger.pause(signal.id)
        return DONE  # a pause looks for `resume` itself, and a frontier follows whatever was asked

    def _resnapshot(self, signal: Signal, commit_lsn: Lsn) -> str:
        patterns = signal.payload.get("tables")
        if not isinstance(patterns, list) or not patterns:
            return 'not done: it names no tables, such as {"tables": ["public.orders"]}'
        captured = {str(pattern): self._covered(str(pattern)) for pattern in patterns}
        missing = [pattern for pattern, tables in captured.items() if not tables]
        if missing:
            return f"not done: not captured: {', '.join(missing)}"
        for table in sorted(set().union(*captured.values())):
            self._request(table, f"signal {signal.id} asked for it", commit_lsn)
        return DONE

    def _covered(self, pattern: str) -> set[TableName]:
        table_filter = TableFilter([pattern])
        return {table for table in self._environment.topics if table_filter.wants(table)}

    def told(self) -> None:
        """Note that a frontier with the answers is written."""
        self.is_due = False

    def holds(self) -> bool:
        """Look whether the pause goes on; where it does not, the ledger is told.

        It ends with a later row `resume`, or when its own row is gone. The stream may bring a row
        a moment before others see it, so that its transaction has to be visible before its absence
        means anything.

        Raises SourceError: the table cannot be read.
        """
        paused = self._ledger.paused
        if paused is None:
            return False
        pause = pause_of(self._environment.connection, paused, self._slot)
        if pause is None:
            return self._go_on("there is no signal table any more")
        if pause.resumed_by is not None:
            return self._go_on(f"signal {pause.resumed_by} resumes it")
        written = [self._xid] if self._xid is not None else []
        if pause.is_there or XidSnapshot.parse(pause.snapshot).hidden(written):
            return True
        return self._go_on(f"the row of signal {paused} is gone")

    def _go_on(self, why: str) -> bool:
        log.info("the stream goes on: %s", why)
        self._ledger.pause(None)
        return False
