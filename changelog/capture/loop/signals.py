"""Signals: requests in rows of the signal table, read from the stream.

The next frontier holds the answer to each, under the row's id; it is written as soon as possible.
Nothing is stored elsewhere: a capture that is killed before that frontier reads the row again, and
one that is killed after it starts after the row.
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
    """Carries out the signals of one attempt."""

    def __init__(self, attempt: Attempt, request: Callable[[TableName, str, Lsn], None]) -> None:
        """Start with the answers of the last frontier.

        `request` requests a copy of a table; its arguments are the table, the reason and the LSN.
        """
        self._slot = attempt.settings.slot  # signals for other slots are ignored
        self._environment, self._ledger = attempt.environment, attempt.ledger
        self._request = request
        self._xid: int | None = None
        self.is_open = False
        self.is_due = False

    @property
    def paused(self) -> int | None:
        """Return the id of the signal that pauses the stream, or None."""
        return self._ledger.paused

    def take(self, message: Emitted, began: Began) -> None:
        """Carry out the signal in a message of the signal table's trigger.

        Sets `is_open` until the caller has seen the end of the transaction, because a pause begins
        exactly there, and `is_due` until a frontier with the answer is written.
        """
        try:
            signal = Signal.parse(message.content)
        except ProtocolError as error:
            # Any role that may connect can write such a message: it must not stop capture.
            log.warning("%s; ignored", error)
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
        # Nothing to do for `resume`, which the pause looks for, nor for `checkpoint`: a frontier
        # follows each signal.
        return DONE

    def _resnapshot(self, signal: Signal, commit_lsn: Lsn) -> str:
        patterns = signal.payload.get("tables")
        if not isinstance(patterns, list) or not patterns:
            return 'not done: it names no tables, such as {"tables": ["public.orders"]}'
        captured = {str(pattern): self._captured_by(str(pattern)) for pattern in patterns}
        missing = [pattern for pattern, tables in captured.items() if not tables]
        if missing:
            return f"not done: not captured: {', '.join(missing)}"
        for table in sorted(set().union(*captured.values())):
            self._request(table, f"signal {signal.id} asked for it", commit_lsn)
        return DONE

    def _captured_by(self, pattern: str) -> set[TableName]:
        table_filter = TableFilter([pattern])
        return {table for table in self._environment.topics if table_filter.wants(table)}

    def frontier_written(self) -> None:
        """Note that a frontier with the answers is on the log."""
        self.is_due = False

    def holds(self) -> bool:
        """Tell whether the pause lasts, by the signal table; end it if it does not.

        It ends with a later row `resume`, or when its own row is deleted. The stream may bring a
        row a moment before other sessions see it, so a missing row counts only once its
        transaction is visible.

        Raises SourceError: the table cannot be read.
        """
        paused = self._ledger.paused
        if paused is None:
            return False
        pause = pause_of(self._environment.connection, paused, self._slot)
        if pause is None:
            return self._end_pause("the signal table is gone")
        if pause.resumed_by is not None:
            return self._end_pause(f"signal {pause.resumed_by} resumes it")
        written = [self._xid] if self._xid is not None else []
        if pause.is_there or XidSnapshot.parse(pause.snapshot).hidden(written):
            return True
        return self._end_pause(f"the row of signal {paused} is gone")

    def _end_pause(self, why: str) -> bool:
        log.info("the stream continues: %s", why)
        self._ledger.pause(None)
        return False
