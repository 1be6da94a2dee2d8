"""Messages taken in bulk write the records of messages taken one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.capture.rows.tables import CapturedTables
from changelog.capture.state.ledger import Ledger
from changelog.capture.state.start_state import StartState
from changelog.capture.write import bulk
from changelog.capture.write.bulk import BulkWriter, NotInBulkError, RunSummary
from changelog.capture.write.toast import Toast
from changelog.capture.write.writer import RecordWriter
from changelog.capture.write.written import Written
from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import (
    UNCHANGED,
    Column,
    Field,
    KeyRow,
    Relation,
    ReplicaIdentity,
    TableName,
)
from changelog.native import Records, Texts
from changelog.runtime.failpoints import Failpoint
from changelog.sink.dead_keys import DeadKeys
from changelog.sink.producer import LogProducer
from changelog.source.stream.assemble import Assembler, Began, Changed
from changelog.source.stream.pgoutput import (
    Begin,
    Commit,
    DeleteMessage,
    InsertMessage,
    Message,
    OldTuple,
    RelationMessage,
    StreamColumn,
    UpdateMessage,
    Values,
    decode,
)
from tests.support.builders import INTEGER, TEXT
from tests.support.pgoutput_bytes import encode
from tests.unit.changelog.capture.test_writer import FakeRegistry

pytestmark = pytest.mark.usefixtures("native_way")

COLUMNS = (Column("id", INTEGER), Column("name", TEXT), Column("note", TEXT))
TABLES = {
    oid: Relation(oid, TableName("public", name), COLUMNS, ("id",), identity)
    for oid, name, identity in (
        (1, "plain", ReplicaIdentity.DEFAULT),
        (2, "full", ReplicaIdentity.FULL),
    )
}
UNWANTED = 3
PARTITIONS = {"plain": 3, "full": 1}
FETCHED = (b"fetched",)


class RecordedLog:
    """A producer that keeps what it gets."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[Any],
        partition: int | None = None,
    ) -> None:
        self.records[topic].append((key, value, headers))

    def produce_records(self, topic: str, records: Records, first: int, end: int) -> None:
        for place in range(first, end):
            if records.is_left_out(place):
                continue
            key, value, lsn, sequence, ts_us, op = records[place]
            position = Position(records.epoch, Lsn(lsn), sequence)
            self.produce(topic, key, value, encode_headers(position, Op(op), ts_us))


def fetched(_relation: Relation, asked: Sequence[tuple[KeyRow, int]], _names: object) -> list[Any]:
    return [(FETCHED, Lsn(xid)) for _, xid in asked]


class Line:
    """What turns messages into records."""

    def __init__(
        self,
        since: dict[str, Position] | None = None,
        written: dict[str, dict[int, Position]] | None = None,
    ) -> None:
        self.points: list[Failpoint] = []
        self.log = RecordedLog()
        self.held: list[Lsn] = []
        self.written = 0
        topics = {relation.name: relation.name.table for relation in TABLES.values()}
        tables = CapturedTables(FakeRegistry(), topics, lambda *_: {})
        self.assembler = Assembler(lambda message: TABLES.get(message.oid))
        self.writer = RecordWriter(
            log=cast(Any, self.log),
            tables=tables,
            epoch=1,
            ledger=Ledger(StartState(epoch=1, lsn=Lsn(0), since=since or {})),
            written=Written(1, PARTITIONS, written or {}),
            toast=Toast(fetched, self.held.append),
            dead_keys=lambda *_, **__: DeadKeys((), ()),
        )
        self.bulk = BulkWriter(
            assembler=self.assembler,
            writer=self.writer,
            producer=cast(LogProducer, self.log),
            failpoint=self.points.append,
        )
        self._began = Began(Lsn(0), 0, 0)

    def take_each(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            for event in self.assembler.add(decode(payload)):
                if isinstance(event, Began):
                    self._began = event
                elif isinstance(event, Changed):
                    began = self._began
                    self.written += self.writer.write(
                        event.change, began.commit_lsn, event.sequence, began.ts_us, began.xid
                    )

    def take_all(self, payloads: list[bytes]) -> RunSummary:
        texts = Texts([b"before", *payloads, b"behind"])
        taken = self.bulk.take(texts, 1, 1 + len(payloads))
        self.written += taken.records
        self._began = Began(taken.last.commit_lsn, taken.last.ts_us, taken.last.xid)
        return taken


def described(oid: int) -> bytes:
    columns = tuple(StreamColumn(column.name, 25, -1, is_key=True) for column in COLUMNS)
    return encode(RelationMessage(oid, "public", "x", ReplicaIdentity.DEFAULT, columns))


ids = st.integers(-5, 5).map(lambda number: str(number).encode())
fields: st.SearchStrategy[Field] = st.none() | st.binary(max_size=5).map(
    lambda raw: raw.hex().encode()
)


@st.composite
def row_messages(draw: st.DrawFn) -> Message:
    oid = draw(st.sampled_from([1, 1, 1, 2, UNWANTED]))
    row: Values = (draw(ids), draw(fields), draw(fields))
    kind = draw(st.sampled_from(["insert", "insert", "update", "delete", "move", "toast"]))
    full = oid == 2
    old = OldTuple(
        full, (draw(ids), draw(fields) if full else None, draw(fields) if full else None)
    )
    if kind == "insert":
        return InsertMessage(oid, row)
    if kind == "delete":
        return DeleteMessage(oid, old)
    if kind == "move":
        return UpdateMessage(oid, old, row)
    if kind == "toast":
        row = (row[0], row[1], UNCHANGED)
    return UpdateMessage(oid, OldTuple(True, (row[0], b"o", b"p")) if full else None, row)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Whole transactions, and perhaps the start of one more."""
    payloads, lsn = [], 100
    for rows in draw(st.lists(st.lists(row_messages(), max_size=6), min_size=1, max_size=6)):
        lsn += 10
        payloads.append(encode(Begin(Lsn(lsn), 7_000_000_000_000_000 + lsn, lsn)))
        payloads += [encode(row) for row in rows]
        payloads.append(encode(Commit(Lsn(lsn), Lsn(lsn + 5), 7_000_000_000_000_000 + lsn)))
    if draw(st.booleans()):
        payloads.pop()
    return payloads


positions = st.builds(
    Position, st.integers(0, 2), st.integers(90, 170).map(Lsn), st.integers(0, 20)
)
on_the_log = st.fixed_dictionaries(
    {},
    optional={
        topic: st.dictionaries(st.integers(0, count - 1), positions, max_size=count)
        for topic, count in PARTITIONS.items()
    },
)


@given(streams(), on_the_log, st.data())
def test_bulk_writes_the_records_of_single_messages(
    payloads: list[bytes], written: dict[str, dict[int, Position]], data: st.DataObject
) -> None:
    each, some = Line(written=written), Line(written=written)
    descriptions = [described(oid) for oid in (1, 2, UNWANTED)]
    each.take_each([*descriptions, *payloads])
    some.take_each(descriptions)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(payloads)), max_size=4)))
    for start, end in zip([0, *cuts], [*cuts, len(payloads)], strict=True):
        if start == end:
            continue
        if data.draw(st.booleans()):
            some.take_each(payloads[start:end])
        else:
            some.take_all(payloads[start:end])
    assert some.log.records == each.log.records
    assert some.written == each.written
    assert sorted(some.held) == sorted(each.held)
    assert some.assembler.open_transaction == each.assembler.open_transaction
    if each.assembler.open_transaction:
        assert some.assembler.sequence == each.assembler.sequence


@given(streams(), st.integers(1, 5))
def test_a_failpoint_behind_each_piece_changes_no_record(payloads: list[bytes], size: int) -> None:
    whole, pieces = Line(), Line()
    for line in (whole, pieces):
        line.take_each([described(oid) for oid in (1, 2, UNWANTED)])
    whole.take_all(payloads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "PIECE", size)
        pieces.take_all(payloads)
    assert pieces.log.records == whole.log.records
    assert whole.points == [Failpoint.RECORD_PRODUCED] * len(whole.log.records)
    most = [-(-len(each) // size) for each in pieces.log.records.values()]
    assert len(pieces.points) == sum(most)


@given(streams())
def test_bulk_tells_what_it_took(payloads: list[bytes]) -> None:
    line = Line()
    line.take_each([described(oid) for oid in (1, 2, UNWANTED)])
    taken = line.take_all(payloads)
    messages = [decode(payload) for payload in payloads]
    commits = [each for each in messages if isinstance(each, Commit)]
    assert taken.commits == len(commits)
    assert taken.end_lsn == (commits[-1].end_lsn if commits else None)
    assert taken.last == [each for each in messages if isinstance(each, Begin)][-1]
    assert taken.is_open == (not isinstance(messages[-1], Commit))
    assert taken.records == sum(map(len, line.log.records.values()))


@given(streams(), st.integers(0, 60), st.integers(0, 255), st.integers(0, 40))
def test_what_is_broken_is_left_to_the_single_messages(
    payloads: list[bytes], which: int, other: int, place: int
) -> None:
    line = Line()
    line.take_each([described(oid) for oid in (1, 2, UNWANTED)])
    broken = list(payloads)
    raw = broken[which % len(broken)]
    at = place % len(raw)
    broken[which % len(broken)] = raw[:at] + bytes([other]) + raw[at + 1 :]
    alone = Line()
    alone.take_each([described(oid) for oid in (1, 2, UNWANTED)])
    try:
        line.take_all(broken)
    except NotInBulkError:
        assert not line.log.records
    else:
        with suppress(ProtocolError):  # rows of a table that is not wanted are not looked into
            alone.take_each(broken)
        for topic, records in alone.log.records.items():
            assert line.log.records[topic][: len(records)] == records


@pytest.mark.parametrize("order", ["C", "BB", "I", "BCI", "BCC"])
def test_messages_out_of_order_are_not_taken(order: str) -> None:
    line = Line()
    line.take_each([described(1)])
    messages = {
        "B": encode(Begin(Lsn(1), 7_000_000_000_000_000, 1)),
        "C": encode(Commit(Lsn(1), Lsn(2), 7_000_000_000_000_000)),
        "I": encode(InsertMessage(1, (b"1", None, None))),
    }
    with pytest.raises(NotInBulkError):
        line.take_all([messages[letter] for letter in order])


def test_records_before_since_are_left_to_the_single_messages() -> None:
    line = Line(since={"plain": Position(1, Lsn(500), 0)})
    line.take_each([described(1)])
    payloads = [
        encode(Begin(Lsn(400), 7_000_000_000_000_000, 1)),
        encode(InsertMessage(1, (b"1", None, None))),
        encode(Commit(Lsn(400), Lsn(405), 7_000_000_000_000_000)),
    ]
    with pytest.raises(NotInBulkError):
        line.take_all(payloads)
    line.take_each(payloads)
    assert not line.log.records
