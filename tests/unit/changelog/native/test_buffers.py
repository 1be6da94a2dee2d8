"""Texts, records, and what is read into them; in C and in Python."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.native import Records, Texts, read_copy, read_stream
from changelog.native.headers import api
from changelog.native.records import Read, Record
from tests.support.native_ways import needs_c, on

FFI = api()

pytestmark = pytest.mark.usefixtures("native_way")

DATA = struct.Struct(">cQQq")
KEEPALIVE = struct.Struct(">cQqB")
COPY_DONE, FAILED = -1, -2
PLAIN = b"IUDBC"


class Server:
    """What libpq would give: messages, then an end, or nothing for now."""

    def __init__(self, messages, end=0, *, is_lost=False):
        self._left = [FFI.new("char[]", message) for message in messages]
        self._sizes = [len(message) for message in messages]
        self._end = end
        self._is_lost = is_lost
        self.freed = 0
        self._functions = (
            FFI.callback("int(void *, char **, int)", self._get),
            FFI.callback("int(void *)", lambda _: not self._is_lost),
            FFI.callback("void(void *)", self._free),
        )
        self.libpq = FFI.new("libpq *", self._functions)

    def _get(self, _connection, buffer, _async):
        if self.freed == len(self._left):
            return self._end
        buffer[0] = self._left[self.freed]
        return self._sizes[self.freed]

    def _free(self, memory):
        assert memory == self._left[self.freed]
        self.freed += 1

    def stream(self, limit=1000, most=1000):
        texts, told = Texts(), FFI.new("keepalives *")
        done = read_stream(self.libpq, FFI.NULL, limit=limit, most=most, into=texts, status=told)
        return done, list(texts), told

    def copy(self, limit=1000, most=1000):
        texts = Texts()
        done = read_copy(self.libpq, FFI.NULL, limit=limit, most=most, into=texts)
        return done, list(texts)


def data(payload):
    return DATA.pack(b"w", 1, 2, 3) + payload


def keepalive(wal_end, reply=0):
    return KEEPALIVE.pack(b"k", wal_end, 5, reply)


def test_payloads_come_without_their_headers_and_keepalives_are_noted():
    server = Server([data(b"B1"), keepalive(7, 1), data(b"I"), keepalive(2**64 - 1), keepalive(3)])
    done, payloads, told = server.stream()
    assert (done, payloads) == (Read.ALL, [b"B1", b"I"])
    assert (told.wal_end, told.reply, told.heard) == (2**64 - 1, 1, 5)
    assert server.freed == 5


@pytest.mark.parametrize(
    ("limit", "most", "count"), [(2, 1000, 2), (1000, 1, 1), (1000, 5, 2), (0, 1000, 0)]
)
def test_no_more_is_read_than_was_asked_for(limit, most, count):
    _, payloads, _ = Server([data(b"abcd")] * 3).stream(limit, most)
    assert payloads == [b"abcd"] * count
    _, lines = Server([b"abcd\n"] * 3).copy(limit, most)
    assert lines == [b"abcd"] * count


def test_how_it_ended_is_told_with_what_came_before():
    assert Server([data(b"B")], COPY_DONE).stream()[:2] == (Read.ENDED, [b"B"])
    assert Server([data(b"B")], FAILED).stream()[:2] == (Read.FAILED, [b"B"])
    assert Server([data(b"B")], is_lost=True).stream()[:2] == (Read.LOST, [b"B"])
    assert Server([b"a\tb\n", b"\n"], COPY_DONE).copy() == (Read.ENDED, [b"a\tb", b""])
    assert Server([b"a\tb\n"], FAILED).copy() == (Read.FAILED, [b"a\tb"])


@pytest.mark.parametrize(
    "message", [b"w", data(b""), b"k", keepalive(1)[:-1], keepalive(1) + b"\0", b"x" * 40, b"\0"]
)
def test_a_message_of_another_form_is_told(message):
    server = Server([data(b"B"), message])
    assert server.stream()[:2] == (Read.ODD, [b"B"])
    assert server.freed == 2


@pytest.mark.parametrize("line", [b"a", b"a\nb\n", b"\n\n", b"a\nb"])
def test_what_is_not_one_line_is_told(line):
    assert Server([b"1\n", line]).copy() == (Read.ODD, [b"1"])


@given(st.lists(st.sampled_from([*map(bytes, zip(PLAIN)), b"R", b"M", b"", b"Cx"])))
def test_messages_are_told_apart_by_their_letters(messages):
    texts = Texts(messages)
    commits = [place for place, each in enumerate(messages, 1) if each[:1] == b"C"]
    assert texts.behind_commit() == max(commits, default=0)
    place, found = 0, []
    while place < len(messages):
        end, is_plain = texts.alike(place)
        assert {each[:1] in map(bytes, zip(PLAIN)) for each in messages[place:end]} == {is_plain}
        found.append(is_plain)
        place = end
    assert all(one != other for one, other in pairwise(found))


BEGIN = struct.Struct(">cQqI")


@given(
    st.lists(
        st.sampled_from([b"R", b"M", b"", b"Cx", b"B", b"B" * 8])
        | st.builds(lambda lsn: BEGIN.pack(b"B", lsn, 0, 0), st.integers(1, 9)),
        max_size=12,
    ),
    st.integers(0, 12),
    st.integers(1, 9),
)
def test_whole_transactions_before_an_lsn_are_found(messages, first, lsn):
    texts, first = Texts(messages), min(first, len(messages))
    commits = [place for place, each in enumerate(messages) if each[:1] == b"C"]
    assert texts.commit_from(first) == min([c for c in commits if c >= first] + [len(messages)])
    behind = texts.whole_before(first, lsn)
    starts = [first, *(c + 1 for c in commits if first <= c)]

    def is_early(place):
        text = messages[place] if place < len(messages) else b""
        return text[:1] == b"B" and len(text) > 8 and BEGIN.unpack(text)[1] < lsn

    taken = [start for start in starts if start < behind]
    assert behind in starts
    assert all(map(is_early, taken))
    assert not is_early(behind) or texts.commit_from(behind) == len(messages)


@given(st.lists(st.binary(max_size=40)), st.lists(st.binary(max_size=40)), st.data())
def test_a_range_of_texts_is_added_to_others(some, others, data):
    first = data.draw(st.integers(0, len(others)))
    end = data.draw(st.integers(0, len(others)))
    texts = Texts(some)
    texts.add_range(Texts(others), first, end)
    assert list(texts) == some + others[first:end]
    assert texts.size == sum(map(len, texts))


@given(st.lists(st.binary(max_size=40)))
def test_texts_come_back_as_they_were(some):
    texts = Texts(some)
    assert list(texts) == some
    assert texts[: len(some) // 2] == some[: len(some) // 2]
    texts.clear()
    texts.add(b"other")
    assert list(texts) == [b"other"]
    with pytest.raises(IndexError):
        texts[1]


@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9))))
def test_records_come_back_as_they_were(pairs):
    records = Records(epoch=3)
    given = [Record(k, v, 2**64 - 1, n, -n, b"c") for n, (k, v) in enumerate(pairs)]
    for record in given:
        records.add(record)
    assert list(records) == given
    assert records.keys(0, len(records)) == [key or b"" for key, _ in pairs]


@needs_c
def test_a_large_batch_leaves_no_large_memory_behind():
    texts = on("compiled", "Texts")([bytes(50 << 20)])
    records = on("compiled", "Records")(1)
    records.add(Record(b"k", bytes(50 << 20), 1, 1, 1, b"c"))
    assert min(texts.raw.room, records.raw.room) >= 50 << 20
    texts.clear()
    records.clear()
    assert texts.raw.room == records.raw.room == 0
