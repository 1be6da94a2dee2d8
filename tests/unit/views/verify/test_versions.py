"""Versions by the verifier, of random logs that a cleaner and a restart have been at.

The law: at every LSN from `complete_from` on, the versions that are valid there are the rows that
were there, and each began and ended when its row did.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass, field

import duckdb
import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, VerdictError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from views.verify.log import versions
from views.verify.records.read import TopicFacts

TOPIC = "t"
FRAME = b"\x00\x00\x00\x00\x01"
KEYS, PARTITIONS, SEEDS = 5, 2, 100


@dataclass(frozen=True)
class Record:
    """A record on a partition, like the client's message."""

    part: int
    off: int
    raw_key: bytes
    raw: bytes | None
    position: Position
    op: Op
    epoch: int = 1

    def partition(self):
        return self.part

    def offset(self):
        return self.off

    def key(self):
        return self.raw_key

    def value(self):
        return self.raw

    def headers(self):
        return encode_headers(self.position, self.op, int(self.position.commit_lsn) * 1000)


@dataclass
class Source:
    """A table that is written by random transactions, and its log."""

    chance: random.Random
    rows: dict[int, bytes] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)  # of each row the LSN of its last change
    states: list[tuple[int, dict[int, tuple[bytes, int]]]] = field(default_factory=list)
    log: list[list[Record]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    lsn: int = 100
    sequence: int = 0
    values: int = 0

    def write(self, key: int, op: Op, value: bytes | None, lsn: int) -> None:
        part, self.sequence = key % PARTITIONS, self.sequence + 1
        position = Position(1, Lsn(lsn), self.sequence)
        self.log[part].append(
            Record(part, len(self.log[part]), FRAME + bytes([key]), value, position, op)
        )

    def value(self) -> bytes:
        self.values += 1
        return FRAME + self.values.to_bytes(4, "big")

    def set(self, key: int, op: Op, lsn: int) -> None:
        self.rows[key], self.since[key] = self.value(), lsn
        self.write(key, op, self.rows[key], lsn)

    def note(self) -> None:
        """Note the rows behind the last transaction: the states up to the next one."""
        rows = {key: (value, self.since[key]) for key, value in self.rows.items()}
        self.states.append((self.lsn + 1, rows))

    def copy(self) -> None:
        """Copy rows that were there before the log began; they are true at the LSN after."""
        for key in self.chance.sample(range(KEYS), self.chance.randint(0, KEYS)):
            self.set(key, Op.READ, self.lsn)
        self.note()

    def transaction(self) -> None:
        self.lsn += self.chance.randint(1, 5)
        self.sequence = 0
        for _ in range(self.chance.randint(1, 3)):
            key, other = self.chance.sample(range(KEYS), 2)
            if key not in self.rows:
                self.set(key, Op.CREATE, self.lsn)
            elif self.chance.random() < 0.5:
                self.set(key, Op.UPDATE, self.lsn)
            else:
                del self.rows[key]
                self.write(key, Op.DELETE, None, self.lsn)
                if other not in self.rows and self.chance.random() < 0.3:
                    self.set(other, Op.UPDATE, self.lsn)  # the row moved to another key
        self.note()

    def send_again(self) -> None:
        """Write the records of the last transactions again, as a capture that was killed does."""
        floor = self.lsn - self.chance.randint(0, 12)
        for records in self.log:
            again = [r for r in records if r.position.commit_lsn >= floor]
            latest = {r.position: r for r in again}  # what was sent twice is sent once more
            for record in sorted(latest.values(), key=lambda r: r.position):
                records.append(
                    Record(record.part, len(records), record.raw_key, record.raw,
                           record.position, record.op)
                )  # fmt: skip

    def cleaned(self) -> list[Record]:
        """Return the records that are left once a cleaner has worked up to its point."""
        kept = []
        for records in self.log:
            point = self.chance.randint(0, len(records)) if self.chance.random() < 0.8 else 0
            gone_before = self.chance.randint(0, point)
            last = {r.raw_key: r.off for r in records if r.off < point}
            for record in records:
                is_last = record.off >= point or last[record.raw_key] == record.off
                is_old_tombstone = record.raw is None and record.off < gone_before
                if is_last and not is_old_tombstone:
                    kept.append(record)
        return kept

    def frontier(self, **more) -> Frontier:
        ends = tuple(len(records) for records in self.log)
        return Frontier(
            slot="s", epoch=1, lsn=Lsn(self.lsn + 1), ts_us=0, ends={TOPIC: ends}, **more
        )


def source(seed: int) -> Source:
    made_up = Source(random.Random(seed))  # noqa: S311 - a test's
    made_up.copy()
    for _ in range(made_up.chance.randint(1, 12)):
        made_up.transaction()
        if made_up.chance.random() < 0.15:
            made_up.send_again()
    return made_up


@pytest.fixture
def read(monkeypatch):
    """Return a function that reads records up to a frontier: complete_from, and the versions."""

    database = duckdb.connect()

    def by_verifier(records, frontier):
        facts = TopicFacts("id", (0,) * len(frontier.ends[TOPIC]))
        monkeypatch.setattr(versions, "unmoved", lambda *_: nullcontext({TOPIC: facts}))
        monkeypatch.setattr(versions, "messages", lambda *_: iter(records))
        result = versions.read_versions(
            KafkaConnection(brokers="none"), frontier, TOPIC, database, "v", key_id=1
        )
        rows = database.execute("SELECT part, off, value, lsn, to_lsn FROM v").fetchall()
        keys = {(r.part, r.off): r.raw_key[-1] for r in records}
        return int(result.complete_from), [(keys[row[:2]], *row[2:]) for row in rows]

    yield by_verifier
    database.close()


def wrong_states(written: Source, complete_from: int, rows) -> list[int]:
    """Return the LSNs from `complete_from` on at which the valid versions are other rows."""
    wrong = []
    for number, (first, expected) in enumerate(written.states):
        later = written.states[number + 1][0] if number + 1 < len(written.states) else first + 2
        for lsn in range(max(first, complete_from), later):
            valid = [
                (key, (bytes(value), start))
                for key, value, start, end in rows
                if start < lsn and (end is None or lsn <= end)
            ]
            if sorted(valid) != sorted(expected.items()):
                wrong.append(lsn)
    return wrong


def wrong_logs(read) -> dict[int, list[int]]:
    """Return by seed the LSNs at which versions are said to be complete and are not."""
    wrong = {}
    for seed in range(SEEDS):
        written = source(seed)
        frontier = written.frontier(whole={TOPIC: Lsn(100)})
        complete_from, rows = read(written.cleaned(), frontier)
        assert complete_from <= frontier.lsn
        assert [row for row in rows if row[3] is not None and row[3] < complete_from] == []
        if lsns := wrong_states(written, complete_from, rows):
            wrong[seed] = lsns
    return wrong


def test_versions_give_every_state_from_where_they_are_complete(read):
    assert wrong_logs(read) == {}


def test_twin_without_a_look_at_first_records_states_are_wrong(read, monkeypatch):
    monkeypatch.setattr(versions, "first_row", lambda *_: None)
    assert len(wrong_logs(read)) > 3


def test_twin_without_a_look_at_gaps_states_are_wrong(read, monkeypatch):
    monkeypatch.setattr(versions.ReadVersions, "floor", lambda *_: Lsn(0))
    assert len(wrong_logs(read)) > 3


def test_a_log_that_was_never_cleaned_is_complete_from_the_copy_on(read):
    for seed in range(30):
        written = source(seed)
        records = [record for partition in written.log for record in partition]
        complete_from, rows = read(records, written.frontier(whole={TOPIC: Lsn(100)}))
        assert complete_from == 101
        assert wrong_states(written, complete_from, rows) == []


def test_a_truncation_begins_the_history(read):
    written = Source(random.Random(0))  # noqa: S311 - a test's
    written.set(1, Op.CREATE, 110)
    written.set(2, Op.CREATE, 120)
    since = Position(1, Lsn(130), 0)
    for key in (1, 2):
        written.write(key, Op.TRUNCATE, None, 130)
    written.lsn = 140
    written.set(1, Op.CREATE, 140)
    records = [record for records in written.log for record in records]
    complete_from, rows = read(records, written.frontier(since={TOPIC: since}))
    assert complete_from == 131
    assert [(key, start, end) for key, _, start, end in rows] == [(1, 140, None)]


def test_rows_of_an_earlier_epoch_are_refused(read):
    written = source(1)
    old = written.log[0][0]
    records = [
        Record(old.part, old.off, old.raw_key, old.raw, Position(0, Lsn(9), 0), old.op),
        *written.log[0][1:],
    ]
    with pytest.raises(VerdictError, match="epoch 0"):
        read(records, written.frontier())


def test_a_record_behind_the_frontier_is_refused(read):
    written = source(2)
    frontier = written.frontier()
    written.transaction()
    records = [record for records in written.log for record in records]
    with pytest.raises(CorruptRecordError, match="behind the frontier"):
        read(records, frontier)
