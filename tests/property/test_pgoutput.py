"""Laws of the pgoutput decoder and of the assembler over it."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import UNCHANGED, ReplicaIdentity
from changelog.source.snapshot.snapshot import parse_row
from changelog.source.stream.pgoutput import (
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


@given(tables)
def test_copy_text_is_read_back(rows):
    assert [parse_row(b"\t".join(map(_copied, row))) for row in rows] == rows
