"""Decides what capture may forget; nothing else does. Pure.

Two promises hang together. A *frontier* at LSN L says that the log holds all transactions before
L and none after. An *acknowledgement* of L lets PostgreSQL drop the WAL before L. So a frontier
may be written only between two transactions, past everything that was read from the future, and
no LSN is acknowledged before a frontier at it stands on the log: what PostgreSQL forgets, the log
has, and a crash at any moment is answered by reading again from the last frontier.
"""

from __future__ import annotations

from changelog.contract.base.lsn import Lsn


class Progress:
    """Follows the stream and says where a frontier may stand and what may be acknowledged."""

    def __init__(self, frontier_lsn: Lsn) -> None:
        """Start at the last frontier on the log, or at a slot's consistent point."""
        self._reached = frontier_lsn
        self._frontier = frontier_lsn
        self._held_until = Lsn(0)
        self._in_transaction = False

    def began(self) -> None:
        """Note that a transaction's records are being written."""
        self._in_transaction = True

    def committed(self, end_lsn: Lsn) -> None:
        """Note that the transaction that ends at `end_lsn` is written in whole."""
        self._in_transaction = False
        self._reached = max(self._reached, end_lsn)

    def idle_until(self, wal_end: Lsn) -> None:
        """Note that the server has sent everything before `wal_end`; ignored in a transaction."""
        if not self._in_transaction:
            self._reached = max(self._reached, wal_end)

    def hold_until(self, lsn: Lsn) -> None:
        """Note that rows of a table were read as of `lsn`.

        A value from the future is on the log; until the stream has passed `lsn`, no LSN is an
        exact cut.
        """
        self._held_until = max(self._held_until, lsn)

    @property
    def reached(self) -> Lsn:
        """Return the end of the last transaction that the stream has delivered."""
        return self._reached

    @property
    def between_transactions(self) -> bool:
        """Tell whether no transaction is half written."""
        return not self._in_transaction

    def frontier_due(self) -> Lsn | None:
        """Return the LSN at which a frontier may be written now, or None.

        The caller flushes the producer and asks for the end offsets before it writes it.
        """
        if self._in_transaction or self._reached < self._held_until:
            return None
        return self._reached

    def frontier_written(self, lsn: Lsn) -> None:
        """Note that the broker has acknowledged a frontier at `lsn`.

        Raises ValueError: `lsn` is not what `frontier_due` allows.
        """
        due = self.frontier_due()
        if due is None or lsn > due:
            raise ValueError(f"a frontier at {lsn} is not allowed now (allowed: {due})")
        self._frontier = max(self._frontier, lsn)

    def settle(self) -> Lsn:
        """Return the LSN that may be acknowledged: the last frontier. Never decreases."""
        return self._frontier
