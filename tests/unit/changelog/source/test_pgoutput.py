"""The decoder on bytes as PostgreSQL sends them."""

import pytest

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import UNCHANGED, ReplicaIdentity
from changelog.source.stream.pgoutput import (
    Begin,
    InsertMessage,
    LogicalMessage,
    RelationMessage,
    StreamColumn,
    UpdateMessage,
    decode,
)


def test_times_count_from_1970():
    raw = b"B" + (0x16B3748).to_bytes(8) + (0).to_bytes(8) + (771).to_bytes(4)
    assert decode(raw) == Begin(Lsn(0x16B3748), 946_684_800_000_000, 771)


def test_a_relation_of_the_system_schema_has_its_name():
    raw = b"R" + (16384).to_bytes(4) + b"\0t\0f" + (1).to_bytes(2)
    raw += b"\1id\0" + (23).to_bytes(4) + b"\xff\xff\xff\xff"
    column = StreamColumn("id", 23, -1, True)
    assert decode(raw) == RelationMessage(16384, "pg_catalog", "t", ReplicaIdentity.FULL, (column,))


def test_null_empty_and_unchanged_are_three_things():
    raw = b"I\0\0\0\1N\0\3nut\0\0\0\0"
    assert decode(raw) == InsertMessage(1, (None, UNCHANGED, b""))


def test_an_update_without_an_old_row_has_none():
    assert decode(b"U\0\0\0\1N\0\1t\0\0\0\1x") == UpdateMessage(1, None, (b"x",))


def test_a_message_keeps_its_bytes():
    raw = b"M\0" + (9).to_bytes(8) + b"hb\0" + (3).to_bytes(4) + b"a\0b"
    assert decode(raw) == LogicalMessage(False, Lsn(9), "hb", b"a\0b")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "cannot be read"),
        (b"S\0\0\0\1\1", "starts with b'S'"),
        (b"I\0\0\0\1N\0\1b\0\0\0\1x", "kind 'b'"),
        (b"I\0\0\0\1O\0\0", "without a new row"),
        (b"D\0\0\0\1N\0\0", "without a key"),
        (b"U\0\0\0\1K\0\0O\0\0", "without a new row"),
        (b"R\0\0\0\1s\0t\0z\0\0", "ReplicaIdentity"),
        (b"Y\0\0\0\1s\0\xff\0", "utf-8"),
        (b"I\0\0\0\1N\0\1t\xff\xff\xff\xffx", "cut off"),
        (b"T\xff\xff\xff\xff\0", "cut off"),
    ],
)
def test_what_the_protocol_does_not_know_is_refused(raw, says):
    with pytest.raises(ProtocolError, match=says):
        decode(raw)


def test_an_error_does_not_show_the_row():
    with pytest.raises(ProtocolError) as caught:
        decode(b"I\0\0\0\1N\0\2t\0\0\0\6secret")
    assert "secret" not in str(caught.value)
