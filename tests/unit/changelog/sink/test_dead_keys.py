"""Dead keys, whatever the order of records and however few keys fit in memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.kafka.scan import headers_of
from changelog.sink import dead_keys

KAFKA = KafkaConnection(brokers="nowhere:1")


class Record:
    def __init__(self, key, lsn, value, offset=0, headers=None):
        self._key, self._value, self._offset = key, value, offset
        self.position = Position(1, Lsn(lsn), 0)
        self._headers = encode_headers(self.position, Op.UPDATE, 0) if headers is None else headers

    def key(self):
        return self._key

    def value(self):
        return self._value

    def headers(self):
        return self._headers

    def topic(self):
        return "orders"

    def partition(self):
        return 0

    def offset(self):
        return self._offset


records = st.builds(
    Record,
    st.integers(0, 30).map(lambda n: b"k%d" % n),
    st.integers(0, 20),
    st.sampled_from([None, b"v"]),
)


def model(log, since):
    last: dict[bytes, Record] = {}
    for record in log:
        if record.key() not in last or record.position >= last[record.key()].position:
            last[record.key()] = record
    return {k for k, r in last.items() if r.value() is not None and r.position < since}


def dead(monkeypatch, log, since, **options):
    monkeypatch.setattr(dead_keys, "scan", lambda kafka, ranges: iter(log))
    return list(dead_keys.dead_keys(KAFKA, "orders", since, [len(log)], **options))


@given(st.lists(records, max_size=80), st.integers(0, 21), st.integers(1, 40))
def test_they_are_those_of_a_dictionary(log, lsn, max_keys):
    since = Position(1, Lsn(lsn), 0)
    with pytest.MonkeyPatch.context() as patch:
        found = dead(patch, log, since, max_keys=max_keys)
    assert len(found) == len(set(found))
    assert set(found) == {(0, key) for key in model(log, since)}


def test_memory_is_bounded_by_the_keys_allowed(monkeypatch):
    log = [Record(b"k%d" % number, 1, b"v") for number in range(1000)]
    passes = []

    def scan(kafka, ranges):
        passes.append(ranges)
        return iter(log)

    monkeypatch.setattr(dead_keys, "scan", scan)
    found = list(dead_keys.dead_keys(KAFKA, "orders", Position(2, Lsn(0), 0), [1000], max_keys=100))
    assert len(found) == 1000
    assert len(passes) >= 10


def test_a_resent_row_behind_its_tombstone_stays_dead(monkeypatch):
    log = [Record(b"k", 3, b"v"), Record(b"k", 5, None), Record(b"k", 3, b"v")]
    assert dead(monkeypatch, log, Position(2, Lsn(0), 0)) == []


def test_a_record_at_since_is_alive(monkeypatch):
    since = Position(1, Lsn(5), 0)
    assert dead(monkeypatch, [Record(b"k", 5, b"v")], since) == []
    assert dead(monkeypatch, [Record(b"k", 4, b"v")], since) == [(0, b"k")]


def test_a_record_without_headers_is_named_by_its_place():
    foreign = Record(b"k", 1, b"v", offset=42, headers=[])
    with pytest.raises(CorruptRecordError, match='topic "orders", partition 0, offset 42'):
        headers_of(foreign)  # type: ignore[arg-type]
