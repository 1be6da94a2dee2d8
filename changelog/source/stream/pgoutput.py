"""Bytes of PostgreSQL's `pgoutput` plugin to messages.

Protocol version 1 with text values and the option `messages`; see "Logical Replication Message
Formats" of PostgreSQL's manual. Pure: what cannot be read raises ProtocolError, never an
IndexError, and nothing is skipped: a message must end exactly where its bytes do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.headers import POSTGRES_EPOCH_US
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import UNCHANGED, Field, ReplicaIdentity, Unchanged

Values = tuple[Field | Unchanged, ...]  # the values of a tuple in the stream's column order

PLUGIN_OPTIONS = {"proto_version": "1", "messages": "true"}
"""Options of START_REPLICATION under which `decode` knows every message."""

ROW_OPTIONS = {"proto_version": "1"}
"""The same for a stream that brings no logical messages: another one does, or the server cannot."""


class Begin(NamedTuple):
    """Start of a transaction; `commit_lsn` is where its commit record begins."""

    commit_lsn: Lsn
    ts_us: int
    xid: int


class Commit(NamedTuple):
    """End of a transaction; `end_lsn` is the first byte after its commit record."""

    commit_lsn: Lsn
    end_lsn: Lsn
    ts_us: int


@dataclass(frozen=True, slots=True)
class StreamColumn:
    """A column as the stream describes it; under REPLICA IDENTITY FULL each one is a key."""

    name: str
    type_oid: int
    typmod: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """A table as it stood when the changes after this message were made."""

    oid: int
    schema: str
    table: str
    identity: ReplicaIdentity
    columns: tuple[StreamColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeMessage:
    """A type that is not built in, sent before the relation that uses it."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class OriginMessage:
    """Where a transaction was made first, when it came by replication itself."""

    lsn: Lsn
    name: str


class OldTuple(NamedTuple):
    """Old values; unless `full`, only the replica identity's columns are there.

    A null of a column outside the identity then means absent, not null.
    """

    full: bool
    values: Values


class InsertMessage(NamedTuple):
    """The message of an inserted row."""

    oid: int
    new: Values


class UpdateMessage(NamedTuple):
    """A row's new values; `old` comes when the key moved, and always under FULL."""

    oid: int
    old: OldTuple | None
    new: Values


class DeleteMessage(NamedTuple):
    """A row's end."""

    oid: int
    old: OldTuple


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    """The end of all rows of some tables."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message of `pg_logical_emit_message`; one that is not transactional comes at once."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


Message = (
    Begin
    | Commit
    | RelationMessage
    | TypeMessage
    | OriginMessage
    | InsertMessage
    | UpdateMessage
    | DeleteMessage
    | TruncateMessage
    | LogicalMessage
)

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_COLUMN_TYPE = struct.Struct(">Ii")
_TRUNCATE = struct.Struct(">IB")
_LOGICAL = struct.Struct(">BQ")

_TEXT, _NULL, _TOAST = ord("t"), ord("n"), ord("u")
_NEW, _OLD, _KEY = ord("N"), ord("O"), ord("K")
_CASCADE, _RESTART_IDENTITY = 1, 2
_VALUES_AT = 6  # message letter, oid, and the letter before the tuple


def relations_of(message: Message) -> tuple[int, ...]:
    """Return the relations, by oid, whose rows a message changes."""
    match message:
        case InsertMessage(oid=oid) | UpdateMessage(oid=oid) | DeleteMessage(oid=oid):
            return (oid,)
        case TruncateMessage(oids=oids):
            return tuple(oids)
        case _:
            return ()


def decode(payload: bytes | memoryview) -> Message:
    """Decode the payload of one replication message.

    Raises ProtocolError: the bytes are unknown, truncated or longer than their message.
    """
    raw = payload if isinstance(payload, bytes) else bytes(payload)
    try:
        message, end = _DECODERS[raw[0]](raw)
    except KeyError:
        raise ProtocolError(f"a replication message starts with {raw[:1]!r}") from None
    except (IndexError, struct.error, ValueError) as error:
        raise ProtocolError(_broken(raw, str(error))) from error
    if end != len(raw):
        raise ProtocolError(_broken(raw, f"it ends at byte {end}"))
    return message


def _broken(raw: bytes, why: str) -> str:
    # Never the bytes themselves: they are rows of the user's.
    return f"a replication message {raw[:1]!r} of {len(raw)} bytes cannot be read: {why}"


def _text(raw: bytes, place: int) -> tuple[str, int]:
    end = raw.index(0, place)
    return raw[place:end].decode("utf-8"), end + 1


def _values(raw: bytes, place: int) -> tuple[Values, int]:
    (count,) = _U16.unpack_from(raw, place)
    place += 2
    values: list[Field | Unchanged] = []
    append, length_at = values.append, _U32.unpack_from
    for _ in range(count):
        kind = raw[place]
        if kind == _TEXT:
            start = place + 5
            place = start + length_at(raw, place + 1)[0]
            append(raw[start:place])
        elif kind == _NULL:
            append(None)
            place += 1
        elif kind == _TOAST:
            append(UNCHANGED)
            place += 1
        else:
            raise ValueError(f"a column value of kind {chr(kind)!r}")
    # A slice that runs over the end is short without a word, so the end is checked once here.
    if place > len(raw):
        raise ValueError("a column value is cut off")
    return tuple(values), place


def _begin(raw: bytes) -> tuple[Message, int]:
    lsn, ts, xid = _BEGIN.unpack_from(raw, 1)
    return Begin(Lsn(lsn), ts + POSTGRES_EPOCH_US, xid), 1 + _BEGIN.size


def _commit(raw: bytes) -> tuple[Message, int]:
    _flags, lsn, end_lsn, ts = _COMMIT.unpack_from(raw, 1)
    return Commit(Lsn(lsn), Lsn(end_lsn), ts + POSTGRES_EPOCH_US), 1 + _COMMIT.size


def _relation(raw: bytes) -> tuple[Message, int]:
    (oid,) = _U32.unpack_from(raw, 1)
    schema, place = _text(raw, 5)
    table, place = _text(raw, place)
    identity = ReplicaIdentity(chr(raw[place]))
    (count,) = _U16.unpack_from(raw, place + 1)
    place += 3
    columns = []
    for _ in range(count):
        flags = raw[place]
        name, place = _text(raw, place + 1)
        type_oid, typmod = _COLUMN_TYPE.unpack_from(raw, place)
        place += _COLUMN_TYPE.size
        columns.append(StreamColumn(name, type_oid, typmod, bool(flags & 1)))
    # The protocol sends an empty name for pg_catalog.
    return RelationMessage(oid, schema or "pg_catalog", table, identity, tuple(columns)), place


def _type(raw: bytes) -> tuple[Message, int]:
    (oid,) = _U32.unpack_from(raw, 1)
    schema, place = _text(raw, 5)
    name, place = _text(raw, place)
    return TypeMessage(oid, schema or "pg_catalog", name), place


def _origin(raw: bytes) -> tuple[Message, int]:
    (lsn,) = _U64.unpack_from(raw, 1)
    name, place = _text(raw, 9)
    return OriginMessage(Lsn(lsn), name), place


def _insert(raw: bytes) -> tuple[Message, int]:
    (oid,) = _U32.unpack_from(raw, 1)
    if raw[5] != _NEW:
        raise ValueError("an insert without a new row")
    new, place = _values(raw, _VALUES_AT)
    return InsertMessage(oid, new), place


def _update(raw: bytes) -> tuple[Message, int]:
    (oid,) = _U32.unpack_from(raw, 1)
    kind, place = raw[5], _VALUES_AT
    old = None
    if kind in {_OLD, _KEY}:
        values, place = _values(raw, place)
        old = OldTuple(kind == _OLD, values)
        kind = raw[place]
        place += 1
    if kind != _NEW:
        raise ValueError("an update without a new row")
    new, place = _values(raw, place)
    return UpdateMessage(oid, old, new), place


def _delete(raw: bytes) -> tuple[Message, int]:
    (oid,) = _U32.unpack_from(raw, 1)
    kind = raw[5]
    if kind not in {_OLD, _KEY}:
        raise ValueError("a delete without a key")
    values, place = _values(raw, _VALUES_AT)
    return DeleteMessage(oid, OldTuple(kind == _OLD, values)), place


def _truncate(raw: bytes) -> tuple[Message, int]:
    count, options = _TRUNCATE.unpack_from(raw, 1)
    place = 1 + _TRUNCATE.size
    end = place + 4 * count
    if end > len(raw):
        raise ValueError("the list of truncated tables is cut off")
    oids = struct.unpack_from(f">{count}I", raw, place)
    cascade, restart = bool(options & _CASCADE), bool(options & _RESTART_IDENTITY)
    return TruncateMessage(oids, cascade, restart), end


def _logical(raw: bytes) -> tuple[Message, int]:
    flags, lsn = _LOGICAL.unpack_from(raw, 1)
    prefix, place = _text(raw, 1 + _LOGICAL.size)
    (length,) = _U32.unpack_from(raw, place)
    start = place + 4
    end: int = start + length
    if end > len(raw):
        raise ValueError("the content is cut off")
    return LogicalMessage(bool(flags & 1), Lsn(lsn), prefix, raw[start:end]), end


_DECODERS: dict[int, Callable[[bytes], tuple[Message, int]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _logical,
}
