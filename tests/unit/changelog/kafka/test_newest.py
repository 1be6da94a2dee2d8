"""Which record of a frontier topic is the newest of its key, whoever wrote the last one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import CorruptRecordError, LogError
from changelog.contract.base.lsn import Lsn
from changelog.kafka import newest
from changelog.kafka.cluster import TopicEnds
from changelog.kafka.newest import NewestRecords


class Record:
    def __init__(self, offset, key, value):
        self._offset, self._key, self._value = offset, key, value

    def offset(self):
        return self._offset

    def key(self):
        return self._key

    def value(self):
        return self._value


class Topic:
    """A topic of one partition, and how many records were read of it."""

    def __init__(self):
        self.records, self.read, self.start = [], 0, 0

    def append(self, key, epoch=0, lsn=0, value=b"made"):
        if value == b"made":
            value = json.dumps({"epoch": epoch, "lsn": str(Lsn(lsn))}).encode()
        self.records.append(Record(len(self.records), key, value))

    def ends(self):
        return TopicEnds("id", (len(self.records),), (0,), (self.start,))

    def scan(self, _kafka, ranges):
        ((_, _, start, end),) = ranges
        assert self.start <= start <= end
        self.read += end - start
        return iter(self.records[start:end])


@pytest.fixture
def topic(monkeypatch):
    made = Topic()
    monkeypatch.setattr(newest, "scan", made.scan)
    return made


def parsed(value):
    try:
        raw = json.loads(value)
    except ValueError as error:
        raise CorruptRecordError("no frontier") from error
    return raw["epoch"], Lsn.parse(raw["lsn"])


def read(topic, reader=None, key=b"a"):
    reader = reader or NewestRecords(None, "topic")  # type: ignore[arg-type]
    found = reader.read(key, topic.ends(), parsed)
    return None if found is None else (*found[0], found[1].offset())


def test_the_newest_is_the_one_of_the_greatest_age_and_of_these_the_last(topic, caplog):
    for epoch, lsn in [(1, 5), (2, 1), (2, 7), (2, 7), (2, 3), (1, 9)]:
        topic.append(b"a", epoch, lsn)
    assert read(topic) == (2, 7, 3)
    assert "offset 5 is passed over: it is older than one before it" in caplog.text


def test_what_is_no_frontier_is_passed_over_and_said_once(topic, caplog):
    topic.append(b"a", 1, 1)
    topic.append(b"a", value=b"?")
    reader = NewestRecords(None, "topic")  # type: ignore[arg-type]
    assert [read(topic, reader), read(topic, reader)] == [(1, 1, 0)] * 2
    assert caplog.text.count("passed over") == 1


def test_of_what_is_no_frontier_the_last_record_counts(topic):
    topic.append(b"a#backfill", 1, 9)
    topic.append(b"a#backfill", 1, 0)
    assert read(topic, key=b"a#backfill") == (1, 0, 1)


def test_behind_a_tombstone_the_log_begins_anew(topic):
    topic.append(b"a", 3, 3)
    topic.append(b"a", value=None)
    assert read(topic) is None
    topic.append(b"a", 1, 1)
    assert read(topic) == (1, 1, 2)


def test_a_tombstone_is_remembered_when_older_records_are_read_after_it(topic):
    topic.append(b"b", 1, 1)
    topic.append(b"a", 9, 9)
    topic.append(b"a", value=None)
    for lsn in range(999):
        topic.append(b"a", 1, lsn)
    reader = NewestRecords(None, "topic")  # type: ignore[arg-type]
    assert read(topic, reader) == (1, 998, 1001)
    assert read(topic, reader, b"b") == (1, 1, 0)
    assert read(topic, reader) == (1, 998, 1001)


def test_a_long_topic_is_read_from_its_end_and_once(topic):
    for lsn in range(5000):
        topic.append(b"a", 1, lsn)
    reader = NewestRecords(None, "topic")  # type: ignore[arg-type]
    assert read(topic, reader) == (1, 4999, 4999)
    read_first = topic.read
    topic.append(b"a", 1, 5000)
    assert read(topic, reader) == (1, 5000, 5000)
    assert (read_first, topic.read) == (1000, 1001)


def test_a_key_far_from_the_end_is_found_and_one_that_was_removed_is_not(topic):
    topic.append(b"b", 1, 1)
    for lsn in range(5000):
        topic.append(b"a", 1, lsn)
    reader = NewestRecords(None, "topic")  # type: ignore[arg-type]
    assert read(topic, reader, b"b") == (1, 1, 0)
    assert reader.keys(topic.ends()) == [b"a", b"b"]
    topic.start = 1
    assert read(topic, reader, b"b") is None


def test_a_topic_of_several_partitions_is_refused(topic):
    with pytest.raises(LogError, match="has 2 partitions"):
        NewestRecords(None, "topic").read(b"a", TopicEnds("id", (1, 1), (0, 0), (0, 0)), parsed)  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 2), st.integers(0, 9)), max_size=40
    ),
    st.data(),
)
def test_however_it_is_read_the_greatest_age_wins(records, data):
    topic = Topic()
    reader = NewestRecords(None, "topic")  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(newest, "scan", topic.scan)
        patched.setattr(newest, "_WINDOW", data.draw(st.integers(1, 50)))
        for key, epoch, lsn in records:
            topic.append(key, epoch, lsn)
            if data.draw(st.booleans()):
                read(topic, reader, key)
        for key in (b"a", b"b"):
            ages = [each[1:] for each in records if each[0] == key]
            found = read(topic, reader, key)
            assert (found is None) == (not ages)
            assert found is None or ages.count(found[:2])
    # Read at once, nothing is hidden by a window.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(newest, "scan", topic.scan)
        for key in (b"a", b"b"):
            ages = [each[1:] for each in records if each[0] == key]
            assert (read(topic, key=key) or (None,))[:2] == (max(ages) if ages else (None,))
