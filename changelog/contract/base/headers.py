"""Headers of every record, tombstones too: `position`, `op`, `ts`.

The record of a message has `transactional` too: `t` or `f`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.position import Position

POSITION = "position"
OP = "op"
TS = "ts"
TRANSACTIONAL = "transactional"

_TS_LAYOUT = struct.Struct(">q")

POSTGRES_EPOCH_US = 946_684_800_000_000
"""Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's clock starts."""


class Op(Enum):
    """The operation on the row, as one ASCII letter; a message has no row."""

    READ = b"r"
    CREATE = b"c"
    UPDATE = b"u"
    DELETE = b"d"
    TRUNCATE = b"t"
    MESSAGE = b"m"

    __hash__ = object.__hash__  # a member is equal to itself alone; Enum's own is written in Python


class RecordHeaders(NamedTuple):
    """The decoded headers; `ts_us` is the commit time in microseconds since 1970."""

    position: Position
    op: Op
    ts_us: int


def encode_ts(ts_us: int) -> bytes:
    """Return the `ts` header: a signed 64-bit integer, big-endian."""
    return _TS_LAYOUT.pack(ts_us)


Headers = list[tuple[str, str | bytes | None]]  # headers as the producer takes them; ours are bytes


def encode_headers(position: Position, op: Op, ts_us: int) -> Headers:
    """Return the three headers in their order on the record."""
    return [(POSITION, position.to_bytes()), (OP, op.value), (TS, encode_ts(ts_us))]


def _bytes(value: str | bytes | None) -> bytes:
    return value if isinstance(value, bytes) else b""


RawHeaders = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
"""Headers as the clients of Kafka give them."""


def decode_headers(headers: RawHeaders | None) -> RecordHeaders:
    """Read the three headers of a record.

    Raises CorruptRecordError: one is missing or malformed; says which.
    """
    values = dict(headers or ())
    try:
        position = Position.from_bytes(_bytes(values[POSITION]))
        op = Op(values[OP])
        (ts_us,) = _TS_LAYOUT.unpack(_bytes(values[TS]))
    except KeyError as error:
        raise CorruptRecordError(f"record header {error} is missing") from error
    except (ValueError, struct.error) as error:
        raise CorruptRecordError(f"a record header is malformed: {error}") from error
    return RecordHeaders(position, op, ts_us)
