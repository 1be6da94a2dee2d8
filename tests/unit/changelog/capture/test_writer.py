"""Changes to records: what is skipped, completed and buried."""

from dataclasses import replace

import pytest

from changelog.capture.rows.tables import CapturedTables
from changelog.capture.state.ledger import Ledger
from changelog.capture.state.start_state import StartState
from changelog.capture.write.toast import Toast
from changelog.capture.write.writer import RecordWriter
from changelog.capture.write.written import Written
from changelog.contract.base.errors import EncodeError
from changelog.contract.base.headers import Op, decode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.partition import partition_of, partition_without_key
from changelog.contract.rows.change import Delete, Insert, Truncate, Update
from changelog.contract.rows.relation import UNCHANGED, Column, Relation, TableName
from changelog.contract.rows.types import ColumnType, Kind
from changelog.sink.dead_keys import DeadKeys
from changelog.sink.registry import SchemaRegistry

TABLE = TableName("public", "notes")
RELATION = Relation(
    1,
    TABLE,
    (
        Column("id", ColumnType("integer", Kind.INT)),
        Column("text", ColumnType("text", Kind.STRING)),
    ),
    ("id",),
)

UNKEYED = replace(RELATION, key=())


class FakeRegistry(SchemaRegistry):
    def __init__(self):
        """Reach no server."""

    def register_key(self, topic, schema):
        return 1

    def register_value(self, topic, schema, *, fresh=False):
        return 2

    def values(self, topic):
        return []


class FakeLog:
    def __init__(self):
        self.records = []

    def produce(self, topic, key, value, headers, partition=None):
        self.records.append((topic, key, value, decode_headers(headers), partition))


class Bench:
    def __init__(self, *, since=None, written=None, fetched=None, dead=()):
        self.log = FakeLog()
        self.dead, self.starts = dead, []
        self.held: list[Lsn] = []
        self.ledger = Ledger(StartState(epoch=1, lsn=Lsn(0), since=since or {}))
        self.tables = CapturedTables(FakeRegistry(), {TABLE: "notes"}, lambda *_: {})
        self.writer = RecordWriter(
            log=self.log,
            tables=self.tables,
            epoch=1,
            ledger=self.ledger,
            written=Written(1, {"notes": 4}, written or {}),
            toast=Toast(lambda *_: [fetched or (None, Lsn(0))], self.held.append),
            dead_keys=self.dead_keys,
        )

    def dead_keys(self, topic, since, *, starts):
        self.starts.append(starts)
        return DeadKeys([10, 11, 12, 13], self.dead)

    def key(self, text):
        return self.tables.codec(RELATION, Position(1, Lsn(0), 0)).encode_key((text,))

    def write(self, change, lsn=100, sequence=0):
        return self.writer.write(change, Lsn(lsn), sequence, 7)


def insert(key=b"1", text=b"a"):
    return Insert(RELATION, (key,), (key, text))


def test_key_change_writes_a_tombstone_first_at_the_position_before():
    bench = Bench()
    assert bench.write(Update(RELATION, (b"1",), (b"2",), (b"2", b"a")), sequence=6) == 2
    (_, first, value, head, _), (_, second, _, after, _) = bench.log.records
    assert (first, value, head.op) == (bench.key(b"1"), None, Op.DELETE)
    assert (second, after.op) == (bench.key(b"2"), Op.UPDATE)
    assert head.position == Position(1, Lsn(100), 6)
    assert after.position == Position(1, Lsn(100), 7)


def test_what_lies_before_a_fresh_copy_is_written_again():
    ended = partition_of(Bench().key(b"1"), 4)
    bench = Bench(written={"notes": {ended: Position(1, Lsn(100), 40)}})
    assert bench.write(insert(), sequence=2) == 0
    bench.writer.written.forget("notes")
    assert bench.write(insert(), sequence=2) == 1


def test_unchanged_toast_is_fetched_and_holds_the_frontier():
    bench = Bench(fetched=([b"long"], Lsn(500)))
    bench.write(Update(RELATION, (b"1",), (b"1",), (b"1", UNCHANGED)))
    assert bench.held == [500]
    assert b"long" in bench.log.records[0][2]


def test_toast_that_stands_on_the_log_is_not_written_again_but_holds_the_frontier_again():
    """What the life before has fetched may be newer than the change, as what is fetched now."""
    everywhere = dict.fromkeys(range(4), Position(1, Lsn(100), 0))
    for fetched in (([b"newer"], Lsn(500)), (None, Lsn(500))):
        bench = Bench(fetched=fetched, written={"notes": everywhere})
        assert bench.write(Update(RELATION, (b"1",), (b"1",), (b"1", UNCHANGED))) == 0
        assert (bench.held, bench.log.records) == ([500], [])
        bench.write(Delete(RELATION, (b"1",)))
        bench.write(insert())
        assert bench.held == [500]


def test_a_row_that_is_gone_writes_no_record_but_still_holds_the_frontier():
    bench = Bench(fetched=(None, Lsn(500)))
    assert bench.write(Update(RELATION, (b"1",), (b"1",), (b"1", UNCHANGED))) == 0
    assert (bench.held, bench.log.records) == ([500], [])


def test_unfetched_toast_never_becomes_a_null():
    bench = Bench(fetched=([UNCHANGED], Lsn(500)))
    with pytest.raises(EncodeError, match="TOAST"):
        bench.write(Update(RELATION, (b"1",), (b"1",), (b"1", UNCHANGED)))


def test_a_value_without_an_exact_form_names_table_and_column():
    bench = Bench()
    with pytest.raises(EncodeError, match=r'"public.notes", column "id"'):
        bench.write(insert(b"not a number"))


def test_without_a_key_a_transaction_lies_in_one_partition_and_is_skipped_up_to_its_last():
    old, new = (b"1", b"a"), (b"1", b"b")
    here = partition_without_key(Position(1, Lsn(100), 0), 4)
    bench = Bench(written={"notes": {here: Position(1, Lsn(100), 2)}})
    assert bench.write(Insert(UNKEYED, (), old), sequence=0) == 0
    assert bench.write(Update(UNKEYED, (), (), new, old), sequence=2) == 1
    assert bench.write(Delete(UNKEYED, (), new), sequence=4) == 1
    assert bench.write(Truncate(UNKEYED), sequence=6) == 1
    assert [(r[1], r[3].op, r[3].position.sequence, r[4]) for r in bench.log.records] == [
        (None, Op.UPDATE, 3, here),
        (None, Op.DELETE, 4, here),
        (None, Op.TRUNCATE, 6, here),
    ]
    assert bench.log.records[-1][2] is None
    assert bench.ledger.since == {"notes": Position(1, Lsn(100), 6)}


def test_a_truncate_reads_what_was_written_since_the_one_before():
    bench = Bench(dead=[(2, b"a")])
    assert bench.write(Truncate(RELATION), lsn=100) == 1
    assert bench.write(Truncate(RELATION), lsn=200) == 1
    assert bench.starts == [[0, 0, 0, 0], [10, 11, 12, 13]]


def test_a_truncate_that_comes_again_reads_no_partition_that_has_later_records():
    at, later = Position(1, Lsn(100), 0), Position(1, Lsn(100), 1)
    bench = Bench(written={"notes": {0: later, 1: at, 2: Position(1, Lsn(99), 9)}})
    bench.write(Truncate(RELATION), lsn=100)
    bench.write(Truncate(RELATION), lsn=200)
    never = 2**63 - 1
    assert bench.starts == [[never, 0, 0, 0], [0, 11, 12, 13]]


def test_a_truncate_of_a_table_without_a_key_is_said_once():
    here = partition_without_key(Position(1, Lsn(100), 6), 4)
    bench = Bench(written={"notes": {here: Position(1, Lsn(100), 6)}})
    assert bench.write(Truncate(UNKEYED), sequence=6) == 0
    assert bench.ledger.since == {"notes": Position(1, Lsn(100), 6)}


def test_without_a_key_chunks_and_transactions_are_spread_over_the_partitions():
    streamed = {partition_without_key(Position(1, Lsn(n), 2 * n), 4) for n in range(100)}
    copied = {partition_without_key(Position(1, Lsn(9), n << 32), 4) for n in range(100)}
    assert streamed == copied == {0, 1, 2, 3}
    within = {partition_without_key(Position(1, Lsn(9), (7 << 32) + n), 4) for n in range(100)}
    assert len(within) == 1
