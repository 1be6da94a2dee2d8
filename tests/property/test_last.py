"""Laws of the fold inside a task: what the model says, with memory for few keys and for many."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.partition import partition_of
from replay.base.record_place import NO_POSITION, TopicRange, no_key
from replay.scan.last_records import FoldRules, LastRecords, StrangeRecordError
from tests.property.test_fold import EVERYTHING, cleanings, logs, positions
from tests.support import model
from tests.support.fold_records import add_records
from tests.support.model import Entry

pytestmark = pytest.mark.usefixtures("native_way")

WANTED = TopicRange(topic="t", starts=(0,), ends=(99,), key_schema_id=7)
PREFIX = b"\0\0\0\0\7"
PLENTY = 1 << 20


@dataclass(frozen=True)
class Message:
    of_offset: int
    of_key: bytes | None
    of_value: bytes | None
    of_headers: Sequence[tuple[str, Any]] | None

    def offset(self) -> int:
        return self.of_offset

    def key(self) -> bytes | None:
        return self.of_key

    def value(self) -> bytes | None:
        return self.of_value

    def headers(self) -> Sequence[tuple[str, Any]] | None:
        return self.of_headers


class Found(NamedTuple):
    """A row of what comes out."""

    key: bytes | None
    position: bytes
    offset: int
    value: bytes | None
    fault: str | None


def parts(last: LastRecords, rows: int, most_bytes: int) -> list[list[Found]]:
    return [
        [Found(*row) for row in zip(*(column.to_pylist() for column in found), strict=True)]
        for found in last.drain(rows, most_bytes)
    ]


def drained(last: LastRecords, rows: int = 3) -> list[Found]:
    return [row for part in parts(last, rows, PLENTY) for row in part]


def message(entry: Entry) -> Message:
    headers = encode_headers(entry.position, Op.UPDATE, 0)
    return Message(entry.offset, PREFIX + entry.key, entry.value, headers)


def folded(
    entries: list[Entry],
    batch: int,
    *,
    kind: type[LastRecords] = LastRecords,
    since: Position | None = None,
    before: Position = EVERYTHING,
    most_bytes: int = PLENTY,
    position_of=None,
) -> list[Found]:
    rules = FoldRules.of(WANTED, since=since, before=before, most_bytes=most_bytes)
    with closing(kind(rules)) as last:
        for first in range(0, len(entries), batch):
            some = [message(each) for each in entries[first : first + batch]]
            add_records(last, some, position_of=position_of)
        found = drained(last)
        if kind is LastRecords:
            assert last.records == len(entries)
            assert last.tombstones == sum(each.value is None for each in entries)
    return found


def rows_of(found: list[Found]) -> dict[bytes, bytes]:
    keys = [each.key for each in found]
    assert len(keys) == len(set(keys)), "a key came out twice"
    return {
        each.key.removeprefix(PREFIX): each.value
        for each in found
        if each.key is not None and each.value is not None
    }


@given(st.data(), st.integers(1, 5), st.sampled_from([0, 900, PLENTY]))
def test_a_task_folds_as_the_model_does(data, batch, most_bytes):
    log = data.draw(logs())
    log = data.draw(st.one_of(st.just(log), cleanings(log)))
    since, before = data.draw(st.none() | positions), data.draw(st.just(EVERYTHING) | positions)
    found = folded(log, batch, since=since, before=before, most_bytes=most_bytes)
    assert rows_of(found) == model.fold(log, since=since, before=before)
    known = {each.offset: each for each in log}
    for each in found:
        of = known[each.offset]
        assert (each.position, each.value) == (of.position.to_bytes(), of.value)


def test_the_comparison_finds_a_fold_by_arrival():
    first, second = Position(1, Lsn(16), 0), Position(1, Lsn(32), 0)
    log = [Entry(0, b"a", b"1", first), Entry(1, b"a", b"2", second), Entry(2, b"a", b"1", first)]
    assert rows_of(folded(log, 3)) == model.fold(log)
    # The seeded defect: the record that comes last decides, whatever its position.
    by_arrival = folded(log, 3, position_of=lambda _: first.to_bytes())
    assert rows_of(by_arrival) != model.fold(log)


class Forgetful(LastRecords):
    """The seeded defect: what does not fit into memory is forgotten."""

    def _spill(self):
        self._fold = LastRecords(self._rules)._fold


def test_the_comparison_finds_a_fold_that_forgets_what_it_spilled():
    log = [Entry(n, b"%d" % n, b"v", Position(1, Lsn(n), 0)) for n in range(40)]
    assert rows_of(folded(log, 4, most_bytes=0)) == model.fold(log)
    assert rows_of(folded(log, 4, kind=Forgetful, most_bytes=0)) != model.fold(log)


def test_values_that_grow_count_too():
    """Ten keys fit; ten keys whose values have grown do not, and go to the file."""
    spilled = []

    class Watched(LastRecords):
        def _spill(self):
            spilled.append(self.keys_held)
            super()._spill()

    log = [
        Entry(n, b"%d" % (n % 10), b"v" * (1 if n < 10 else 2_000), Position(1, Lsn(n), 0))
        for n in range(20)
    ]
    found = folded(log, 10, kind=Watched, most_bytes=10_000)
    assert rows_of(found) == model.fold(log)
    assert spilled[0] == 10


STRANGE = [
    (None, [("position", b"p" * 20)], no_key(7)),
    (b"\0\0\0\0\10k", [("position", b"p" * 20)], no_key(7)),
    (b"\0\0\0\0\10k", None, no_key(7)),
    (PREFIX + b"k", None, NO_POSITION),
    (PREFIX + b"k", [("op", b"u")], NO_POSITION),
    (PREFIX + b"k", [("position", b"p" * 19)], NO_POSITION),
    (PREFIX + b"k", [("position", None)], NO_POSITION),
]
LATE = Position(2**32 - 1, Lsn(2**64 - 1), 0)


@pytest.mark.parametrize(("key", "headers", "why"), STRANGE)
def test_a_record_without_a_place_is_refused_or_decides_about_its_key(key, headers, why):
    sound = Entry(0, b"k", b"sound", Position(1, Lsn(1), 0))
    later = Entry(9, b"k", b"later", Position(1, Lsn(2), 0))
    strange = Message(5, key, b"strange", headers)
    records = [message(sound), strange, message(later)]

    strict = LastRecords(FoldRules.of(WANTED, since=None, before=LATE, most_bytes=PLENTY))
    with pytest.raises(StrangeRecordError) as refused:
        add_records(strict, records)
    assert (refused.value.offset, refused.value.why) == (5, why)

    for most_bytes in (0, PLENTY):
        keeping = TopicRange(topic="t", starts=(0,), ends=(99,), key_schema_id=7, keeps_faults=True)
        kept = LastRecords(FoldRules.of(keeping, since=None, before=LATE, most_bytes=most_bytes))
        for record in records:
            add_records(kept, [record])
        found = {each.offset: each for each in drained(kept)}
        kept.close()
        assert found.pop(5) == Found(key, b"\xff" * 20, 5, b"strange", why)
        is_of_that_key = key == PREFIX + b"k"
        assert [each.value for each in found.values()] == ([] if is_of_that_key else [b"later"])


@given(st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=20), st.integers(0, 99))
def test_what_comes_out_comes_in_parts_that_are_not_too_large(values, most_bytes):
    rules = FoldRules.of(WANTED, since=None, before=EVERYTHING, most_bytes=PLENTY)
    last = LastRecords(rules)
    log = [Entry(n, b"%d" % n, value, Position(1, Lsn(n), 0)) for n, value in enumerate(values)]
    add_records(last, [message(each) for each in log])
    found = parts(last, 3, most_bytes)
    assert [row.value for part in found for row in part] == values
    for part in found:
        size = sum(len(row.key or b"") + len(row.value or b"") for row in part)
        assert size <= most_bytes or len(part) == 1
        assert len(part) <= 3


@pytest.mark.parametrize("most_bytes", [0, 200_000, 1 << 30])
def test_many_keys_and_values_of_every_size(most_bytes):
    """The table grows, blocks are reused, and large values lie apart from small ones."""
    chance = random.Random(11)  # noqa: S311 - the same each time
    sizes = [0, 1, 30, 200, 4_000, 4_100, 9_000]
    log = [
        Entry(
            offset,
            b"%d" % chance.randrange(3_000) * chance.choice([1, 1, 40]),
            chance.choice([None, chance.randbytes(chance.choice(sizes))]),
            Position(1, Lsn(chance.randrange(9_000)), 0),
        )
        for offset in range(9_000)
    ]
    assert rows_of(folded(log, 700, most_bytes=most_bytes)) == model.fold(log)


def test_a_file_that_cannot_be_written_is_loud(monkeypatch):
    """The disk of a task is full."""
    rules = FoldRules.of(WANTED, since=None, before=EVERYTHING, most_bytes=0)
    entry = Entry(0, b"k", b"v", Position(1, Lsn(1), 0))
    full = partial(Path("/dev/full").open, "wb", buffering=0)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: full())
    with closing(LastRecords(rules)) as last, pytest.raises(OSError, match="buckets"):
        add_records(last, [message(entry)])


def test_keys_that_are_documents_begin_with_a_brace():
    documents = TopicRange(topic="t", starts=(0,), ends=(9,), key_schema_id=None)
    last = LastRecords(FoldRules.of(documents, since=None, before=LATE, most_bytes=PLENTY))
    headers = [("position", b"p" * 20)]
    add_records(last, [Message(0, b'{"id": 1}', b"{}", headers)])
    with pytest.raises(StrangeRecordError, match="JSON"):
        add_records(last, [Message(1, PREFIX, b"{}", headers)])


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.none() | st.binary(max_size=9), st.none() | positions)
    ),
    st.sampled_from([0, 900, PLENTY]),
)
def test_by_offset_the_last_record_decides_whatever_its_position(log, most_bytes):
    last = LastRecords(FoldRules.by_last(most_bytes=most_bytes))
    for offset, (key, value, position) in enumerate(log):
        headers = None if position is None else [("position", position.to_bytes())]
        add_records(last, [Message(offset, b"%d" % key, value, headers)])
    found = {each.key: (each.offset, each.value, each.fault) for each in drained(last)}
    last.close()
    assert found == {
        b"%d" % key: (offset, value, None) for offset, (key, value, _) in enumerate(log)
    }


def test_who_says_that_an_old_key_is_dead_says_it_where_its_rows_stand():
    """A copy does so where they stood before their topic got more partitions."""
    since, later = Position(2, Lsn(16), 0), Position(2, Lsn(32), 0)
    keys = (b"%d" % number for number in range(99))
    key = next(each for each in keys if partition_of(PREFIX + each, 3) != 0)
    rules = FoldRules.of(WANTED, since=since, before=EVERYTHING, most_bytes=PLENTY)
    log = [Entry(0, key, b"old", Position(1, Lsn(16), 0)), Entry(1, key, None, since)]
    with closing(LastRecords(rules, partition=0, homes=3)) as last:
        add_records(last, [message(each) for each in log])
        assert drained(last) == []
    # Any other record there is a stray, and what its own partition holds may be older.
    with closing(LastRecords(rules, partition=0, homes=3)) as last:
        add_records(last, [message(Entry(2, key, None, later))])
        with pytest.raises(StrangeRecordError, match="belongs to partition"):
            drained(last)
