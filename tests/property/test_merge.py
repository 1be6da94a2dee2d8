"""Streams of several slots to one: laws of `changelog.source.stream.merge`."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.lsn import Lsn
from changelog.native import Texts
from changelog.source.stream.merge import Lane, Merge
from changelog.source.stream.pgoutput import Begin, Commit, LogicalMessage
from tests.support.pgoutput_bytes import encode

MAIN = 0
LIMIT = 1000


@dataclass(frozen=True)
class Sent:
    """A transaction, or a message that is part of none: `rows` are (lane, payload)."""

    lsn: int
    rows: tuple[tuple[int, bytes], ...]
    is_message: bool = False

    def begin(self):
        return encode(Begin(Lsn(self.lsn), 0, self.lsn))

    def commit(self):
        return encode(Commit(Lsn(self.lsn), Lsn(self.lsn + 5), 0))

    def of(self, lane):
        """Return what the slot of a lane sends; a tuple with its rows even where there are none."""
        if self.is_message:
            return [message(self.lsn)] if lane == MAIN else []
        rows = [row for to, row in self.rows if to == lane]
        return [self.begin(), *rows, self.commit()] if rows else []

    def whole(self, lanes):
        if self.is_message:
            return [message(self.lsn)]
        rows = [row for lane in range(lanes) for to, row in self.rows if to == lane]
        return [self.begin(), *rows, self.commit()] if rows else []


def message(lsn):
    return encode(LogicalMessage(False, Lsn(lsn + 5), "mark", b""))


@st.composite
def wals(draw):
    """Draw a number of lanes and what was written, in its order."""
    lanes = draw(st.integers(1, 4))
    rows = st.lists(st.tuples(st.integers(0, lanes - 1), st.sampled_from(b"IUDRY")), max_size=6)
    drawn = draw(st.lists(st.tuples(rows, st.booleans()), max_size=12))
    wal = []
    for number, (some, is_message) in enumerate(drawn, 1):
        named = [(lane, b"%c%d.%d" % (kind, number, at)) for at, (lane, kind) in enumerate(some)]
        wal.append(Sent(10 * number, tuple(named), is_message))
    return lanes, wal


class Server:
    """Slots of one WAL, each with a walsender that is somewhere else."""

    def __init__(self, lanes, wal):
        self.end = 10 * (len(wal) + 1)
        # What each slot sends: payloads, with the LSN of which a keepalive behind them speaks.
        self.left = [
            [(payload, sent.lsn) for sent in wal for payload in sent.of(lane)]
            for lane in range(lanes)
        ]

    def send(self, number, count, lane):
        sent, self.left[number] = self.left[number][:count], self.left[number][count:]
        for payload, _ in sent:
            lane.held.add(payload)

    def keepalive(self, number, lane):
        """Say how far this slot is: all that commits before that was sent."""
        # In the middle of a transaction it is said that nothing of it has been.
        lane.horizon = Lsn(self.left[number][0][1] if self.left[number] else self.end)


def drive(data, lanes, wal, merge, check):
    """Let payloads and keepalives come in any order and in any pieces, up to the end."""
    server, into = Server(lanes, wal), Texts()
    out: list[bytes] = []

    def pass_on(limit=LIMIT):
        into.clear()
        merge.pass_on(into, limit)
        out.extend(into)
        check(server, merge, out)

    for _ in range(data.draw(st.integers(0, 40))):
        number = data.draw(st.integers(0, lanes - 1))
        lane = merge.lanes[number]
        if data.draw(st.booleans()):
            server.send(number, data.draw(st.integers(1, 5)), lane)
        else:
            server.keepalive(number, lane)
        if data.draw(st.booleans()):
            pass_on(data.draw(st.integers(1, 5)))
        if data.draw(st.booleans()):
            lane.compact()
    for number, lane in enumerate(merge.lanes):
        server.send(number, LIMIT, lane)
        server.keepalive(number, lane)
    pass_on()
    return out


def check_law(data, kind):
    lanes, wal = data.draw(wals())
    expected = [payload for sent in wal for payload in sent.whole(lanes)]

    def check(server, merge, out):
        assert out == expected[: len(out)]  # nothing too early, nothing doubled, nothing torn
        if not merge.is_open:
            reached = merge.reached
            before = [each for each in wal if each.lsn + 5 * each.is_message < reached]
            assert len(out) >= sum(len(sent.whole(lanes)) for sent in before)

    merge = kind(lanes)
    assert drive(data, lanes, wal, merge, check) == expected
    assert not merge.is_open
    assert merge.reached == 10 * (len(wal) + 1)
    assert not merge.late


@given(st.data())
def test_what_was_split_comes_back_in_the_order_of_commits(data):
    check_law(data, Merge)


class DoesNotWait(Merge):
    """Seeded defect: a stream that is silent holds up nothing."""

    def pass_on(self, into, limit):
        horizons = [lane.horizon for lane in self.lanes]
        for lane in self.lanes:
            lane.horizon = Lsn(2**63)
        super().pass_on(into, limit)
        for lane, horizon in zip(self.lanes, horizons, strict=True):
            lane.horizon = horizon


class WaitsTooLittle(Merge):
    """Seeded defect: a keepalive that says X lets the commit at X go."""

    def pass_on(self, into, limit):
        for lane in self.lanes:
            lane.horizon = Lsn(lane.horizon + 1)
        super().pass_on(into, limit)
        for lane in self.lanes:
            lane.horizon = Lsn(lane.horizon - 1)


@pytest.mark.parametrize("kind", [DoesNotWait, WaitsTooLittle])
def test_a_merge_that_does_not_wait_breaks_the_law(kind):
    law = settings(phases=[Phase.generate], max_examples=500, database=None)(
        given(st.data())(lambda data: check_law(data, kind))
    )
    with pytest.raises((AssertionError, ProtocolError, BaseExceptionGroup)):
        law()


def test_an_open_transaction_goes_on_as_it_comes():
    merge, into = Merge(2), Texts()
    sent = Sent(10, ((0, b"I1"), (0, b"I2"), (1, b"I3")))
    main, group = merge.lanes
    for payload in sent.of(0)[:2]:
        main.held.add(payload)
    merge.pass_on(into, LIMIT)
    assert not len(into)
    assert merge.late == [group]
    group.held.add(sent.begin())
    merge.pass_on(into, LIMIT)
    assert list(into) == [sent.begin(), b"I1"]
    assert merge.is_open
    assert not merge.late  # the main slot is in the middle of its part


def test_streams_that_disagree_are_told():
    merge, into = Merge(2), Texts()
    for lane, xid in zip(merge.lanes, (1, 2), strict=True):
        lane.held.add(encode(Begin(Lsn(10), 0, xid)))
    with pytest.raises(ProtocolError, match="several transactions commit at 0/A"):
        merge.pass_on(into, LIMIT)


def test_a_stream_that_goes_back_is_told():
    merge, into = Merge(1), Texts()
    for sent in (Sent(20, ((0, b"I"),)), Sent(10, ((0, b"I"),))):
        for payload in sent.of(0):
            merge.lanes[0].held.add(payload)
        if sent.lsn == 10:
            with pytest.raises(ProtocolError, match="comes behind"):
                merge.pass_on(into, LIMIT)
        else:
            merge.pass_on(into, LIMIT)


def test_what_stands_in_transactions_alone_is_told_outside_of_them():
    lane = Lane()
    lane.held.add(encode(Commit(Lsn(10), Lsn(15), 0)))
    with pytest.raises(ProtocolError, match="a Commit comes outside of a transaction"):
        _ = lane.bound
