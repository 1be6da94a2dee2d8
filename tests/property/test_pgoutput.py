"""Laws of the pgoutput decoder and of the assembler over it."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.batch.lines import fields_of_lines
from changelog.contract.errors import ProtocolError
from changelog.contract.lsn import Lsn
from changelog.contract.relation import UNCHANGED, ReplicaIdentity
from changelog.source.copytext import CopyTarget, parse_row
from changelog.source.pgoutput import (
    Begin,
    Commit,
    DeleteMessage,
    InsertMessage,
    LogicalMessage,
    OldTuple,
    OriginMessage,
    RelationMessage,
    StreamColumn,
    TruncateMessage,
    TypeMessage,
    UpdateMessage,
    decode,
)
from tests.support.pgoutput_bytes import encode

lsns = st.integers(0, 2**64 - 1).map(Lsn)
oids = st.integers(0, 2**32 - 1)
clocks = st.integers(-(2**62), 2**62)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
schemas = names.filter(bool)
values = st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40)), max_size=8).map(
    tuple
)
olds = st.builds(OldTuple, st.booleans(), values)
columns = st.builds(StreamColumn, names, oids, st.integers(-1, 2**31 - 1), st.booleans())
messages = st.one_of(
    st.builds(Begin, lsns, clocks, oids),
    st.builds(Commit, lsns, lsns, clocks),
    st.builds(OriginMessage, lsns, names),
    st.builds(
        RelationMessage,
        oids,
        schemas,
        names,
        st.sampled_from(ReplicaIdentity),
        st.lists(columns, max_size=6).map(tuple),
    ),
    st.builds(TypeMessage, oids, schemas, names),
    st.builds(InsertMessage, oids, values),
    st.builds(UpdateMessage, oids, st.none() | olds, values),
    st.builds(DeleteMessage, oids, olds),
    st.builds(TruncateMessage, st.lists(oids, max_size=5).map(tuple), st.booleans(), st.booleans()),
    st.builds(LogicalMessage, st.booleans(), lsns, names, st.binary(max_size=60)),
)


@given(messages)
def test_decoding_gives_back_what_was_encoded(message):
    assert decode(encode(message)) == message
    assert type(decode(memoryview(encode(message)))) is type(message)


@given(messages, st.data())
def test_a_truncated_message_is_a_protocol_error(message, data):
    raw = encode(message)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(ProtocolError):
        decode(raw[:cut])


@given(messages, st.binary(min_size=1, max_size=5))
def test_bytes_behind_a_message_are_a_protocol_error(message, more):
    with pytest.raises(ProtocolError):
        decode(encode(message) + more)


@given(st.binary(max_size=80))
def test_any_bytes_decode_or_are_a_protocol_error(raw):
    with suppress(ProtocolError):
        decode(raw)


@given(messages, st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_decodes_or_is_a_protocol_error(message, place, byte):
    raw = bytearray(encode(message))
    raw[place % len(raw)] = byte
    with suppress(ProtocolError):
        decode(bytes(raw))


def _copied(field):
    if field is None:
        return b"\\N"
    for plain, escaped in (
        (b"\\", b"\\\\"),
        (b"\b", b"\\b"),
        (b"\f", b"\\f"),
        (b"\n", b"\\n"),
        (b"\r", b"\\r"),
        (b"\t", b"\\t"),
        (b"\v", b"\\v"),
    ):
        field = field.replace(plain, escaped)
    return field


fields = (
    st.none() | st.binary(max_size=12) | st.text("\\N\t\n\r\b\f\vnt", max_size=6).map(str.encode)
)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.tuples(*[fields] * width), max_size=12)
)


@given(tables, st.lists(st.integers(0, 300), max_size=6), st.integers(1, 5))
def test_copy_text_is_read_back_however_it_is_cut(rows, cuts, batch_rows):
    text = b"".join(b"\t".join(map(_copied, row)) + b"\n" for row in rows)
    seen: list[bytes] = []
    target = CopyTarget(seen.extend, batch_rows)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(places):
        target.write(text[start:end])
    target.finish()
    assert [parse_row(line) for line in seen] == rows
    assert target.rows == len(rows)


@given(tables.filter(bool))
def test_lines_at_once_are_read_as_lines_one_by_one(rows):
    lines = [b"\t".join(map(_copied, row)) for row in rows]
    columns, plain = fields_of_lines(lines, len(rows[0]))
    found = list(zip(*(column.texts() for column in columns), strict=True))
    assert found == [row for row, usual in zip(rows, plain, strict=True) if usual]
    for line, usual in zip(lines, plain, strict=True):
        assert usual == (b"\\" not in line.replace(b"\\N", b"") or not _escaped(line))


def _escaped(line):
    return any(b"\\" in field and field != b"\\N" for field in line.split(b"\t"))


@pytest.mark.parametrize("lines", [[b"1"], [b"1\t2\t3"], [b"1\t2\t3", b"4"]])
def test_a_line_with_another_number_of_fields_is_refused(lines):
    with pytest.raises(ProtocolError):
        fields_of_lines(lines, 2)
