"""Laws of the fold inside a task: what the model says, with memory for few keys and for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.headers import Op, encode_headers
from changelog.contract.lsn import Lsn
from changelog.contract.position import Position
from replay.last import Columns, LastRecords, Rules, StrangeRecordError
from replay.placing import LAST, NO_POSITION, TopicRange, no_key
from tests.property.test_fold import EVERYTHING, cleanings, logs, positions
from tests.support import model
from tests.support.model import Entry

WANTED = TopicRange(topic="t", starts=(0,), ends=(99,), key_schema_id=7)
PREFIX = b"\0\0\0\0\7"
PLENTY = 1 << 20


@dataclass(frozen=True)
class Message:
    """A record as the client gives it."""

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


def drained(last: LastRecords, rows: int = 3) -> list[Found]:
    """Give what comes out, as rows."""
    return [Found(*row) for found in last.drain(rows) for row in zip(*found, strict=True)]


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
) -> list[Found]:
    rules = Rules.of(WANTED, since=since, before=before, most_bytes=most_bytes)
    last = kind(rules)
    for first in range(0, len(entries), batch):
        last.add([message(each) for each in entries[first : first + batch]])
    found = drained(last)
    last.close()
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


class ByArrival(LastRecords):
    """The seeded defect: the record that comes last decides, whatever its position."""

    def add(self, batch):
        for record in batch:
            self._last.pop(record.key(), None)
            super().add([record])


def test_the_comparison_finds_a_fold_by_arrival():
    first, second = Position(1, Lsn(16), 0), Position(1, Lsn(32), 0)
    log = [Entry(0, b"a", b"1", first), Entry(1, b"a", b"2", second), Entry(2, b"a", b"1", first)]
    assert rows_of(folded(log, 3)) == model.fold(log)
    assert rows_of(folded(log, 3, kind=ByArrival)) != model.fold(log)


class Forgetful(LastRecords):
    """The seeded defect: what does not fit into memory is forgotten."""

    def _spill(self):
        self.close()
        self._buckets = None
        super()._spill()


def test_the_comparison_finds_a_fold_that_forgets_what_it_spilled():
    log = [Entry(n, b"%d" % n, b"v", Position(1, Lsn(n), 0)) for n in range(40)]
    assert rows_of(folded(log, 4, most_bytes=0)) == model.fold(log)
    assert rows_of(folded(log, 4, kind=Forgetful, most_bytes=0)) != model.fold(log)


def test_values_that_grow_count_too():
    """Ten keys fit; ten keys whose values have grown do not, and go to the file."""
    spilled = []

    class Watched(LastRecords):
        def _spill(self):
            spilled.append(len(self._last))
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

    strict = LastRecords(Rules.of(WANTED, since=None, before=LATE, most_bytes=PLENTY))
    with pytest.raises(StrangeRecordError) as refused:
        strict.add(records)
    assert (refused.value.offset, refused.value.why) == (5, why)

    for most_bytes in (0, PLENTY):
        keeping = TopicRange(topic="t", starts=(0,), ends=(99,), key_schema_id=7, keeps_faults=True)
        kept = LastRecords(Rules.of(keeping, since=None, before=LATE, most_bytes=most_bytes))
        for record in records:
            kept.add([record])
        found = {each.offset: each for each in drained(kept)}
        kept.close()
        assert found.pop(5) == Found(key, LAST, 5, b"strange", why)
        is_of_that_key = key == PREFIX + b"k"
        assert [each.value for each in found.values()] == ([] if is_of_that_key else [b"later"])


@given(st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=20), st.integers(0, 99))
def test_columns_come_in_parts_that_are_not_too_large(values, most_bytes):
    numbers = range(len(values))
    whole = Columns(
        [b"k"] * len(values), [b"p"] * len(values), numbers, values, [None] * len(values)
    )
    parts = list(whole.within(most_bytes))
    assert [offset for part in parts for offset in part.offsets] == list(numbers)
    assert [value for part in parts for value in part.values] == values
    for part in parts:
        size = len(part.keys) + sum(len(value or b"") for value in part.values)
        assert size <= most_bytes or len(part.keys) == 1


def test_keys_that_are_documents_begin_with_a_brace():
    documents = TopicRange(topic="t", starts=(0,), ends=(9,), key_schema_id=None)
    last = LastRecords(Rules.of(documents, since=None, before=LATE, most_bytes=PLENTY))
    headers = [("position", b"p" * 20)]
    last.add([Message(0, b'{"id": 1}', b"{}", headers)])
    with pytest.raises(StrangeRecordError, match="JSON"):
        last.add([Message(1, PREFIX, b"{}", headers)])
