"""Which keys a copy has to leave out, so that rows and stream together are exact (pure).

A segment of a backfill copies rows in a snapshot S and writes them at the position of a mark that
was put into the WAL after S was taken: the fence. What stands in the stream behind the fence is
newer than S and comes later, all is well. Before the fence there are two kinds of transactions:
those that S sees, whose rows the copy has, and those that S does not see, whose rows on the log
are newer than the copy's. The keys of the latter are left out: the log has them already.

The second kind is larger than it seems. A commit reaches the stream when its record is flushed,
but a snapshot sees it only when it has left the list of running transactions, which under
synchronous replication may be much later. So even a transaction that was streamed before anybody
thought of a fence may be invisible in S. `Recent` keeps the numbers of those that are not known
to be visible. Keys are noted from the moment at which a fence is wanted (`open`); a fence stands
only when every transaction that was streamed before that moment is visible in S.

After DBLog (arXiv 2010.12597), whose marks are rows of a table and whose chunks wait for the high
mark; here a snapshot's own list of transactions decides what is older.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from changelog.contract.base.errors import ProtocolError

Xids = Sequence[int]
"""Numbers of transactions, their low 32 bits."""

MOST_KEYS = 100_000
"""Keys noted for one fence; with more, it is given up and another one taken."""

MANY_XIDS = 1 << 16
"""Streamed transactions kept before the server is asked which of them are visible."""

_HALF, _ALL = 1 << 31, 1 << 32


@dataclass(frozen=True, slots=True)
class XidSnapshot:
    """Value of `pg_current_snapshot()`: transaction ids of 64 bits."""

    xmin: int  # all before it have ended
    xmax: int  # none from here on had ended
    xip: frozenset[int]  # those between the two that had not ended
    # whether `xip` is known: a standby's snapshot does not say it, and then all from `xmin` on
    # count as running
    names_running: bool = True

    @classmethod
    def parse(cls, text: str, *, names_running: bool = True) -> XidSnapshot:
        """Read `xmin:xmax:xip,xip,…`.

        Raises ProtocolError: the text has another form.
        """
        try:
            xmin, xmax, xip = text.split(":")
            running = frozenset(map(int, filter(None, xip.split(","))))
            return cls(int(xmin), int(xmax), running, names_running)
        except ValueError as error:
            raise ProtocolError(f"a snapshot reads {text!r}") from error

    def hidden(self, xids: Xids) -> list[int]:
        """Return the transactions, given by their low 32 bits, that the snapshot does not see.

        Each is taken as the number nearest to `xmax` that has these bits: what the stream brings
        is never two thousand million transactions old.
        """
        xmin, xmax, xip = self.xmin, self.xmax, self.xip
        near = xmax - _HALF
        hidden = []
        for xid in xids:
            full = near + (xid - near) % _ALL
            if full >= xmax or (full >= xmin and (full in xip or not self.names_running)):
                hidden.append(xid)
        return hidden


class Recent:
    """The streamed transactions that may still be invisible, and the keys that they touched."""

    def __init__(self) -> None:
        # whether keys are noted; the writers ask before they say what they touched
        self.noting = False
        self._older: list[int] = []
        self._newer: list[int] = []
        self._ask_at = MANY_XIDS
        self._current: Xids = ()
        self._notes: list[tuple[Xids, str, Sequence[bytes]]] = []
        self._keys = 0
        self._snapshot: XidSnapshot | None = None
        self._ignored = False

    def began(self, xid: int) -> None:
        """Note that a transaction is being streamed, change by change."""
        self._newer.append(xid)
        if self.noting:
            self._current = (xid,)
            self._ignored = self._is_visible(self._current)

    def ran(self, xids: Xids) -> None:
        """Note that whole transactions were streamed at once."""
        self._newer += xids
        if self.noting and xids:  # the last may be open, and go on change by change
            self._current = xids[-1:]
            self._ignored = self._is_visible(self._current)

    def touch(self, topic: str, key: bytes) -> None:
        """Note a key that the transaction begun last has touched."""
        if not self._ignored:
            self._notes.append((self._current, topic, (key,)))
            self._keys += 1

    def touch_all(self, xids: Xids, topic: str, keys: Sequence[bytes]) -> None:
        """Note keys that some transactions have touched."""
        if not self._is_visible(xids):
            self._notes.append((xids, topic, keys))
            self._keys += len(keys)

    def _is_visible(self, xids: Xids) -> bool:
        return self._snapshot is not None and not self._snapshot.hidden(xids)

    @property
    def many(self) -> bool:
        """Tell whether it is time to ask which transactions are visible: `forget`."""
        return len(self._newer) + len(self._older) > self._ask_at

    @property
    def crowded(self) -> bool:
        """Tell whether more keys were noted than a fence may have."""
        return self._keys > MOST_KEYS

    def open(self) -> None:
        """Note keys from here on, between two transactions; a fence is wanted."""
        self._gather()
        self._notes, self._keys, self._snapshot = [], 0, None
        self._ignored = False
        self.noting = True

    def close(self) -> None:
        """Note no more keys."""
        self.noting, self._notes, self._keys, self._snapshot = False, [], 0, None

    @property
    def sees_current(self) -> bool:
        """Tell whether the snapshot looked at last sees the transaction begun last."""
        return self.noting and self._ignored

    def look(self, snapshot: XidSnapshot, *, everything: bool = False) -> list[int]:
        """Return the transactions from before `open` that a new snapshot does not see.

        The fence stands when there are none. Notes about what the snapshot sees are dropped.
        With `everything`, the transactions since `open` count as well. A standby streams what it
        has replayed, and its snapshots see all of that.
        """
        if everything:
            self._gather()
        self._older = snapshot.hidden(self._older) if snapshot.names_running else []
        self._snapshot = snapshot
        self._notes = [note for note in self._notes if snapshot.hidden(note[0])]
        self._keys = sum(len(keys) for _, _, keys in self._notes)
        return list(self._older)

    def forget(self, snapshot: XidSnapshot) -> None:
        """Drop the numbers of transactions that a snapshot sees."""
        if self.noting:
            # Which of them came before `open` still matters: only those may be thinned out.
            self._older = snapshot.hidden(self._older)
            self._newer = snapshot.hidden(self._newer)
        else:
            self._gather()
            self._older = snapshot.hidden(self._older)
        self._ask_at = MANY_XIDS + 2 * (len(self._newer) + len(self._older))

    def touched(self) -> dict[str, frozenset[bytes]]:
        """Return the keys, by topic, that the last snapshot looked at does not have as they are."""
        keys_of: dict[str, set[bytes]] = {}
        for _, topic, keys in self._notes:
            keys_of.setdefault(topic, set()).update(keys)
        return {topic: frozenset(keys) for topic, keys in keys_of.items()}

    def _gather(self) -> None:
        self._older += self._newer
        self._newer = []
