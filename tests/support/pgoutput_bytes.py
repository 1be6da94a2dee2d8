"""Messages to `pgoutput` bytes: the reverse of `changelog.source.stream.pgoutput`, for tests.

Written from PostgreSQL's manual ("Logical Replication Message Formats"), not from the decoder.
"""

from __future__ import annotations

from typing import assert_never

from changelog.contract.rows.relation import Unchanged
from changelog.source.stream.pgoutput import (
    Begin,
    Commit,
    DeleteMessage,
    InsertMessage,
    LogicalMessage,
    Message,
    OldTuple,
    OriginMessage,
    RelationMessage,
    TruncateMessage,
    TypeMessage,
    UpdateMessage,
    Values,
)

_CLOCK_START_US = 946_684_800_000_000  # 2000-01-01


def _u(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big")


def _clock(ts_us: int) -> bytes:
    return (ts_us - _CLOCK_START_US).to_bytes(8, "big", signed=True)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _tuple(values: Values) -> bytes:
    out = _u(len(values), 2)
    for value in values:
        if value is None:
            out += b"n"
        elif isinstance(value, Unchanged):
            out += b"u"
        else:
            out += b"t" + _u(len(value), 4) + value
    return out


def _old(old: OldTuple | None) -> bytes:
    return b"" if old is None else (b"O" if old.full else b"K") + _tuple(old.values)


def _relation(message: RelationMessage) -> bytes:
    schema = "" if message.schema == "pg_catalog" else message.schema
    out = b"R" + _u(message.oid, 4) + _text(schema) + _text(message.table)
    out += message.identity.value.encode() + _u(len(message.columns), 2)
    for column in message.columns:
        out += _u(column.is_key, 1) + _text(column.name) + _u(column.type_oid, 4)
        out += column.typmod.to_bytes(4, "big", signed=True)
    return out


def encode(message: Message) -> bytes:  # noqa: PLR0911 - one case for each message
    """Return the payload that PostgreSQL would send."""
    match message:
        case Begin(commit_lsn=lsn, ts_us=ts, xid=xid):
            return b"B" + _u(lsn, 8) + _clock(ts) + _u(xid, 4)
        case Commit(commit_lsn=lsn, end_lsn=end, ts_us=ts):
            return b"C\0" + _u(lsn, 8) + _u(end, 8) + _clock(ts)
        case OriginMessage(lsn=lsn, name=name):
            return b"O" + _u(lsn, 8) + _text(name)
        case RelationMessage():
            return _relation(message)
        case TypeMessage(oid=oid, schema=schema, name=name):
            return b"Y" + _u(oid, 4) + _text("" if schema == "pg_catalog" else schema) + _text(name)
        case InsertMessage(oid=oid, new=new):
            return b"I" + _u(oid, 4) + b"N" + _tuple(new)
        case UpdateMessage(oid=oid, old=old, new=new):
            return b"U" + _u(oid, 4) + _old(old) + b"N" + _tuple(new)
        case DeleteMessage(oid=oid, old=old):
            return b"D" + _u(oid, 4) + _old(old)
        case TruncateMessage(oids=oids, cascade=cascade, restart_identity=restart):
            options = cascade * 1 + restart * 2
            return b"T" + _u(len(oids), 4) + _u(options, 1) + b"".join(_u(oid, 4) for oid in oids)
        case LogicalMessage(transactional=inside, lsn=lsn, prefix=prefix, content=content):
            head = b"M" + _u(inside, 1) + _u(lsn, 8) + _text(prefix)
            return head + _u(len(content), 4) + content
        case _:
            assert_never(message)
