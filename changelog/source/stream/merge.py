"""Streams of several slots to one, in the order of commits (pure).

Each slot of a database sends whole transactions in the order of their commits, and all of them the
same transactions, each with the rows of its own tables. So a transaction that commits at X goes on
once no other stream can bring an earlier one: the next that it holds commits at X or later, or its
server has said that it sends nothing of before some LSN behind X. What several streams have of one
transaction is put together in the order of the streams, under one BEGIN and one COMMIT. Where the
rows of a transaction lie so depends on the streams alone, not on when what arrives.

A message that is part of no transaction goes on where it stands in the WAL: behind all that
commits before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.lsn import Lsn
from changelog.native import Texts
from changelog.source.stream.pgoutput import Begin, Commit, LogicalMessage, decode


class Lane:
    """Messages of one stream that were not passed on yet."""

    def __init__(self) -> None:
        self.held = Texts()  # payloads; those before `place` are gone
        self.place = 0  # of the next
        self.horizon = Lsn(0)  # no transaction that commits before it comes behind what is held
        self._spare = Texts()
        self._head: Lsn | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is held."""
        return self.place == len(self.held)

    def compact(self) -> None:
        """Drop the entries that are gone, once they are most of all."""
        if self.is_empty:
            self.held.clear()
        elif self.place * 2 >= len(self.held):
            self._spare.clear()
            self._spare.add_range(self.held, self.place, len(self.held))
            self.held, self._spare = self._spare, self.held
        else:
            return
        self.place = 0

    def pass_to(self, into: Texts, end: int) -> None:
        """Pass on the rows before a place."""
        into.add_range(self.held, self.place, end)
        self.skip_to(end)

    def skip_to(self, end: int) -> None:
        """Leave out the rows before a place."""
        self.place, self._head = end, None

    @property
    def is_message(self) -> bool:
        """Tell whether a message comes next that is part of no transaction."""
        return self.held[self.place][:1] == b"M"

    @property
    def bound(self) -> Lsn:
        """Return the LSN before which no transaction comes from here any more.

        Asked between two transactions. Where one is held next, it commits there.

        Raises ProtocolError: something comes next that stands in transactions alone.
        """
        if self.is_empty:
            return self.horizon
        if self._head is None:
            match decode(self.held[self.place]):
                case Begin(commit_lsn=lsn):
                    self._head = lsn
                case LogicalMessage(transactional=False, lsn=end):
                    self._head = Lsn(end - 1)  # its LSN is where its record ends
                case other:
                    raise ProtocolError(f"a {type(other).__name__} comes outside of a transaction")
        return self._head


class Merge:
    """Passes on what lanes hold, in the order of commits."""

    def __init__(self, count: int) -> None:
        # one for each stream; their order is that of the rows in a transaction
        self.lanes: Sequence[Lane] = [Lane() for _ in range(count)]
        # of which nothing is held, so that what others hold has to wait
        self.late: Sequence[Lane] = ()
        self._givers: list[Lane] = []
        self._passed = Lsn(0)
        self._reached = Lsn(0)

    @property
    def is_open(self) -> bool:
        """Tell whether a transaction has begun and is not whole."""
        return bool(self._givers)

    @property
    def reached(self) -> Lsn:
        """Return the LSN before which every transaction was passed on, or is none of ours."""
        if not self._givers:
            self._reached = max(self._reached, min(lane.bound for lane in self.lanes))
        return self._reached

    def pass_on(self, into: Texts, limit: int) -> None:
        """Pass on all that may go; no more once there are `limit` payloads.

        Raises ProtocolError: the streams do not tell one story.
        """
        self.late = ()
        while len(into) < limit and self._step(into):
            pass

    def _step(self, into: Texts) -> bool:
        if self._givers:
            return self._go_on(into)
        full = [lane for lane in self.lanes if not lane.is_empty]
        if not full:
            return False
        at = min(lane.bound for lane in full)
        self.late = [lane for lane in self.lanes if lane.is_empty and lane.horizon <= at]
        if self.late:
            return False
        first = [lane for lane in full if lane.bound == at]
        givers = [lane for lane in first if not lane.is_message]
        if not givers:
            first[0].pass_to(into, first[0].place + 1)
        elif len(givers) > 1 or not self._pass_whole(givers[0], into):
            self._begin(givers, at, into)
        return True

    def _pass_whole(self, giver: Lane, into: Texts) -> bool:
        """Pass on at once the whole transactions that precede every transaction of other lanes."""
        others = [lane.bound for lane in self.lanes if lane is not giver]
        end = giver.held.whole_before(giver.place, min(others, default=Lsn(2**64 - 1)))
        if end == giver.place:
            return False
        self._check_order(giver.bound)
        last = decode(giver.held[end - 1])
        assert isinstance(last, Commit)  # noqa: S101 - so a stretch of them ends
        self._passed = last.commit_lsn
        giver.pass_to(into, end)
        return True

    def _begin(self, givers: list[Lane], at: Lsn, into: Texts) -> None:
        self._check_order(at)
        begins = {lane.held[lane.place] for lane in givers}
        if len(begins) > 1:
            raise ProtocolError(f"several transactions commit at {at}")
        self._givers = givers
        givers[0].pass_to(into, givers[0].place + 1)

    def _check_order(self, at: Lsn) -> None:
        if at <= self._passed:
            raise ProtocolError(f"a transaction of {at} comes behind that of {self._passed}")
        self._passed = at

    def _go_on(self, into: Texts) -> bool:
        giver = self._givers[0]
        if giver.is_empty:
            return False
        commit = giver.held.commit_from(giver.place)
        if commit == len(giver.held):
            giver.pass_to(into, commit)
            return False
        is_last = len(self._givers) == 1
        giver.pass_to(into, commit + is_last)
        giver.skip_to(commit + 1)
        del self._givers[0]
        if self._givers:
            following = self._givers[0]
            following.skip_to(following.place + 1)  # its BEGIN
        return True
