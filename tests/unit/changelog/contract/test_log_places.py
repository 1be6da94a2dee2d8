"""LSNs, positions, headers, frontiers: single facts."""

from __future__ import annotations

import json
import struct

import pytest

from changelog.contract.base.errors import ConfigurationError, CorruptRecordError
from changelog.contract.base.headers import Op, decode_headers, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName

POSITION = Position(1, Lsn.parse("16/B374D848"), 4)
FRONTIER = Frontier(slot="s", epoch=1, lsn=Lsn(10), ts_us=5, tables={"a": TableName("public", "a")})


def test_an_lsn_reads_and_prints_as_postgresql_does() -> None:
    assert Lsn.parse("16/B374D848") == 0x16_B374D848
    assert str(Lsn(0)) == "0/0"
    assert f"{Lsn.parse('0/16B3748')}" == "0/16B3748"
    assert repr(Lsn(255)) == "Lsn(0/FF)"


@pytest.mark.parametrize("text", ["", "16", "16/", "G/1", "1/123456789", "-1/0", "0/1 0/2"])
def test_what_is_not_an_lsn_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an LSN"):
        Lsn.parse(text)


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_an_lsn_has_64_unsigned_bits(value: int) -> None:
    with pytest.raises(ValueError, match="64 unsigned bits"):
        Lsn(value)


def test_a_position_has_twenty_bytes_in_network_order() -> None:
    assert Position(1, Lsn(2), 3).to_bytes() == struct.pack(">IQQ", 1, 2, 3)
    with pytest.raises(ValueError, match="20 bytes"):
        Position.from_bytes(b"\0" * 19)


@pytest.mark.parametrize("text", ["", "1:0/1", "1:x:2", "a:0/1:2", "1:0/1:2:3"])
def test_what_is_not_a_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Position.parse(text)


def test_headers_stand_in_their_order_with_op_as_one_letter() -> None:
    assert encode_headers(POSITION, Op.DELETE, -1) == [
        ("position", POSITION.to_bytes()),
        ("op", b"d"),
        ("ts", b"\xff" * 8),
    ]


def test_foreign_headers_beside_ours_do_no_harm() -> None:
    headers: list[tuple[str, str | bytes | None]] = [
        ("traceparent", None),
        *encode_headers(POSITION, Op.READ, 5),
    ]
    assert decode_headers(headers) == (POSITION, Op.READ, 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("position", b"short"), ("position", None), ("op", b"x"), ("op", None), ("ts", b"\0")],
)
def test_a_malformed_header_is_corrupt(name: str, value: bytes | None) -> None:
    headers = {**dict(encode_headers(POSITION, Op.READ, 5)), name: value}
    with pytest.raises(CorruptRecordError, match="malformed"):
        decode_headers(headers.items())


@pytest.mark.parametrize("name", ["position", "op", "ts"])
def test_a_missing_header_is_named(name: str) -> None:
    headers = [pair for pair in encode_headers(POSITION, Op.READ, 5) if pair[0] != name]
    with pytest.raises(CorruptRecordError, match=f"'{name}' is missing"):
        decode_headers(headers)
    with pytest.raises(CorruptRecordError, match="missing"):
        decode_headers(None)


def test_a_frontier_knows_the_topic_of_a_table() -> None:
    assert FRONTIER.topic_of(TableName("public", "a")) == "a"
    assert FRONTIER.topic_of(TableName("public", "b")) is None


@pytest.mark.parametrize(
    "change",
    [
        {"lsn": "nonsense"},
        {"lsn": None},
        {"since": {"a": "1:2"}},
        {"since": {"a": "1:x/y:2"}},
        {"tables": {"a": ["public", "a", "b"]}},
        {"ends": None},
    ],
)
def test_a_damaged_frontier_is_corrupt(change: dict[str, object]) -> None:
    damaged = {**json.loads(FRONTIER.to_json()), **change}
    with pytest.raises(CorruptRecordError, match="not a frontier"):
        Frontier.from_json(json.dumps(damaged))
    for name in change:
        del damaged[name]
    with pytest.raises(CorruptRecordError, match="not a frontier"):
        Frontier.from_json(json.dumps(damaged))
