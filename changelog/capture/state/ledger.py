"""State of each topic in one attempt: the position it starts at, and who may write to it.

The stream asks what it need not write, frontiers ask what they may say; both only read. What
happens to a table is noted here by whoever learns of it, in one call for each kind of event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from changelog.capture.state.start_state import StartState
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName

NEVER = Lsn((1 << 64) - 1)

KEPT_SIGNALS = 20
"""How many answers to signals a frontier has."""


class Ledger:
    """State of the topics of one attempt."""

    def __init__(self, start_state: StartState) -> None:
        """Begin with the facts of the last frontier."""
        self._epoch = start_state.epoch
        self._gone: set[str] = set()
        # per topic the first position that is alive; no record before it is written
        self.since = dict(start_state.since)
        # tables whose changes are not wanted up to a commit LSN, by object id
        self.deaf_until: dict[int, Lsn] = {}
        # topics without keys that are about to be copied in a snapshot which has been taken: what
        # it sees is not written, since the copy brings it
        self.settling: frozenset[str] = frozenset()
        # topics that are not whole yet, or whose table is gone; no frontier speaks of them
        self.absent: frozenset[str] = frozenset()
        # tables of which no frontier speaks although older ones do, with the reason
        self.excluded: Mapping[TableName, str] = {}
        # whether no frontier may be written yet: the first copy of the tables is not whole
        self.waiting = False
        # per topic the LSN of the last rows that were copied to it
        self.whole = dict(start_state.whole)
        # per topic where its records may be alive, see `Frontier`
        self.alive_from = dict(start_state.alive_from)
        # topics that hold only what has changed since they began
        self.uncopied = {*start_state.uncopied}
        # tables that others inherit from, as `Frontier` has them
        self.children: Mapping[TableName, tuple[TableName, ...]] = {}
        # how many records the copying of tables has written, by topic
        self.copied: Counter[str] = Counter()
        # what became of the last rows of the signal table, by their ids
        self.signals = dict(start_state.signals)
        self.paused = start_state.paused  # the signal that holds the stream; None while it goes on
        # grows with what the next frontier has to say, though its LSN may not have moved
        self.revision = 0

    def is_gone(self, topic: str) -> bool:
        """Tell whether a topic's table is no longer there, or not under its name."""
        return topic in self._gone

    def mute(self, topic: str, oid: int, until: Position | None) -> None:
        """Note that no change of a table is wanted before a position; None for not at all yet."""
        floor = until or Position(self._epoch, NEVER, 0)
        self.since[topic] = floor
        self.deaf_until[oid] = floor.commit_lsn

    def leave(self, topic: str, oid: int) -> None:
        """Note that a topic's table is gone: nothing more of it is written, or said."""
        self._gone.add(topic)
        self.mute(topic, oid, None)
        self.renew()

    def truncated(self, topic: str, at: Position) -> None:
        """Note that every row older than a position is dead."""
        self.since[topic] = at

    def settle(self, topics: Iterable[str]) -> None:
        """Note which topics without keys are about to be copied."""
        self.settling = frozenset(topics)

    def count_copied(self, topic: str, records: int) -> None:
        """Note that records were copied to a topic."""
        self.copied[topic] += records

    def finish(
        self, topic: str, *, since: Position, high: Lsn, alive_from: tuple[int, ...]
    ) -> None:
        """Note that a topic is whole.

        Alive is all from `since` on, but for what was truncated; `high` is the place of the last
        copied rows. The topic ended at `alive_from` when `since` was taken.
        """
        before = self.since.get(topic)
        self.since[topic] = since if before is None else max(before, since)
        self.whole[topic] = high
        self.alive_from[topic] = alive_from
        self.uncopied.discard(topic)
        self.renew()

    def speak(
        self, *, absent: Iterable[str], excluded: Mapping[TableName, str], waiting: bool
    ) -> None:
        """Replace parts of the next frontiers; see the attributes."""
        self.absent = frozenset(absent) | self._gone
        self.excluded = excluded
        self.waiting = waiting

    def inherit(self, children: Mapping[TableName, tuple[TableName, ...]]) -> None:
        """Note which tables others inherit from."""
        self.children = children
        self.renew()

    def answer(self, signal_id: int, outcome: str) -> None:
        """Note the outcome of a signal for the next frontiers."""
        self.signals.pop(signal_id, None)  # an answer that comes again is the last one
        self.signals[signal_id] = outcome
        while len(self.signals) > KEPT_SIGNALS:
            del self.signals[next(iter(self.signals))]
        self.renew()

    def pause(self, signal_id: int | None) -> None:
        """Note the signal that holds the stream; None if it goes on."""
        self.paused = signal_id
        self.renew()

    def renew(self) -> None:
        """Make the next frontier worth writing though its LSN has not moved."""
        self.revision += 1
