"""Messages to changes, with the relation cache.

Sequence rule: in a transaction a counter starts at 0 and grows by 4 with each row, truncate or
logical message, whether it is wanted or not. An update that moves its key writes its tombstone at
`sequence` and its row at `sequence + 1`; where values are changes, the delete, its tombstone and
the new row stand at `sequence` and the two numbers behind it. The numbers so depend on the
transaction alone and come out the same when PostgreSQL sends it again. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.change import Change, Delete, Insert, RowChange, Truncate, Update
from changelog.contract.rows.relation import UNCHANGED, KeyRow, Relation, ReplicaIdentity
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

SEQUENCE_STEP = 4
"""Room for the records of a key change: a tombstone and a row, or a delete before them."""


class Began(NamedTuple):
    """A transaction starts; all that follows up to `Committed` belongs to it."""

    commit_lsn: Lsn
    ts_us: int
    xid: int


class Changed(NamedTuple):
    """A change of a wanted table."""

    change: Change
    sequence: int


class Committed(NamedTuple):
    """The transaction is whole; `end_lsn` is what may be acknowledged once it is delivered."""

    commit_lsn: Lsn
    end_lsn: Lsn
    ts_us: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """A message of `pg_logical_emit_message`."""

    prefix: str  # as it was given
    content: bytes  # as it was given
    transactional: bool  # whether it is part of the open transaction
    lsn: Lsn  # end of its WAL record
    sequence: int  # its number in its transaction; 0 for one that is in none


Event = Began | Changed | Committed | Emitted

RowMessage = InsertMessage | UpdateMessage | DeleteMessage

Resolve = Callable[[RelationMessage], Relation | None]
"""Returns the relation of the stream's description, or None for a table that is not wanted."""


class _KnownRelation:
    """A wanted relation with what is needed for each of its rows."""

    __slots__ = ("full", "key_indexes", "relation", "width")

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.key_indexes = relation.key_indexes
        self.width = len(relation.columns)
        self.full = relation.identity is ReplicaIdentity.FULL


class Assembler:
    """Turns one connection's messages into events; make a new one for each connection.

    A relation is resolved when the first of its rows that is wanted comes.
    """

    def __init__(self, resolve: Resolve, deaf_until: Mapping[int, Lsn] | None = None) -> None:
        """Begin without a relation.

        `deaf_until` has relations, by oid, whose changes are not wanted up to a commit LSN; they
        are not resolved before. It is read whenever a change comes.
        """
        self._deaf_until: Mapping[int, Lsn] = {} if deaf_until is None else deaf_until
        self._resolve = resolve
        self._described_as: dict[int, RelationMessage] = {}
        self._relations: dict[int, _KnownRelation | None] = {}
        self._open: Begin | None = None
        self._sequence = 0

    @property
    def open_transaction(self) -> Begin | None:
        """Return the transaction that has begun and not been committed."""
        return self._open

    @property
    def sequence(self) -> int:
        """Return the number of the next change of the open transaction."""
        return self._sequence

    def is_resolved(self, oid: int) -> bool:
        """Tell whether a relation that the stream has described was resolved."""
        return oid in self._relations

    def relation(self, oid: int) -> Relation | None:
        """Return a relation that the stream has described; None for a table not wanted.

        Raises ProtocolError: the stream has not described it.
        """
        entry = self._described(oid)
        return entry.relation if entry else None

    def is_deaf(self, oid: int, commit_lsn: Lsn) -> bool:
        """Tell whether changes of a relation in a transaction are not wanted."""
        return bool(self._deaf_until) and commit_lsn < self._deaf_until.get(oid, 0)

    def continue_at(self, transaction: Begin | None, sequence: int) -> None:
        """Go on after messages that were taken in another way."""
        self._open, self._sequence = transaction, sequence

    def add(self, message: Message) -> Sequence[Event]:
        """Take the next message.

        Raises ProtocolError: the message does not fit those before it.
        """
        events: Sequence[Event] = ()
        match message:
            case InsertMessage() | UpdateMessage() | DeleteMessage():
                sequence = self._next()
                change = None if self._is_deaf_now(message.oid) else self.change(message)
                events = () if change is None else (Changed(change, sequence),)
            case TruncateMessage(oids=oids):
                events = self._truncated(oids)
            case Begin():
                events = self._began(message)
            case Commit():
                events = self._committed(message)
            case RelationMessage():
                self._described_as[message.oid] = message
                self._relations.pop(message.oid, None)
            case LogicalMessage(prefix=prefix, content=content, transactional=inside, lsn=lsn):
                sequence = self._next() if inside else 0
                events = (Emitted(prefix, content, inside, lsn, sequence),)
            case TypeMessage() | OriginMessage():
                pass
            case _:
                assert_never(message)
        return events

    def _began(self, begin: Begin) -> Sequence[Event]:
        if self._open is not None:
            raise ProtocolError(f"a transaction begins inside that of {self._open.commit_lsn}")
        self._open, self._sequence = begin, 0
        return (Began(begin.commit_lsn, begin.ts_us, begin.xid),)

    def _committed(self, commit: Commit) -> Sequence[Event]:
        if self._open is None or self._open.commit_lsn != commit.commit_lsn:
            raise ProtocolError(f"commit {commit.commit_lsn} does not end the open transaction")
        self._open = None
        return (Committed(commit.commit_lsn, commit.end_lsn, commit.ts_us),)

    @staticmethod
    def _checked(message: RelationMessage, relation: Relation | None) -> _KnownRelation | None:
        if relation is None:
            return None
        names = [column.name for column in relation.columns]
        if names != [column.name for column in message.columns]:
            raise ProtocolError(
                f"table {relation.name.said}: the stream has other columns: {names}"
            )
        return _KnownRelation(relation)

    def change(self, message: RowMessage) -> RowChange | None:
        """Return the change of a row that a message tells; None for a table that is not captured.

        Raises ProtocolError: the message does not fit its relation.
        """
        entry = self._described(message.oid)
        if entry is None:
            return None
        match message:
            case InsertMessage(new=new):
                return Insert(entry.relation, _key(entry, new), new)
            case UpdateMessage(old=old, new=new):
                if old is not None and UNCHANGED in new:
                    new = _filled(entry, old, new)
                key = _key(entry, new)
                if old is None:
                    return Update(entry.relation, key, key, new)
                old_key = _key(entry, old.values)
                return Update(entry.relation, old_key, key, new, _whole(entry, old))
            case DeleteMessage(old=old):
                return Delete(entry.relation, _key(entry, old.values), _whole(entry, old))
            case _:
                assert_never(message)

    def _is_deaf_now(self, oid: int) -> bool:
        return self._open is not None and self.is_deaf(oid, self._open.commit_lsn)

    def _described(self, oid: int) -> _KnownRelation | None:
        try:
            return self._relations[oid]
        except KeyError:
            pass
        message = self._described_as.get(oid)
        if message is None:
            raise ProtocolError(f"a row comes before its relation {oid}")
        entry = self._relations[oid] = self._checked(message, self._resolve(message))
        return entry

    def _next(self) -> int:
        if self._open is None:
            raise ProtocolError("a change comes outside of a transaction")
        sequence = self._sequence
        self._sequence = sequence + SEQUENCE_STEP
        return sequence

    def _truncated(self, oids: Sequence[int]) -> Sequence[Event]:
        # One message, one number: its tables have different topics.
        sequence = self._next()
        tables = [self._described(oid) for oid in oids if not self._is_deaf_now(oid)]
        return tuple(Changed(Truncate(table.relation), sequence) for table in tables if table)


def _key(entry: _KnownRelation, values: Values) -> KeyRow:
    if len(values) != entry.width:
        raise ProtocolError(
            f"table {entry.relation.name.said}: a row has {len(values)} values, not {entry.width}"
        )
    key = tuple([values[index] for index in entry.key_indexes])
    for field in key:
        if field.__class__ is not bytes:
            raise ProtocolError(f"table {entry.relation.name.said}: a row without its primary key")
    return key  # type: ignore[return-value]  # each field was just seen to be bytes


def _whole(entry: _KnownRelation, old: OldTuple) -> Values | None:
    """Return an old row that has every value, or None if it is the key alone (see `_filled`)."""
    return old.values if entry.full and old.full else None


def _filled(entry: _KnownRelation, old: OldTuple, new: Values) -> Values:
    """Put the old values where the new row says "unchanged".

    Only a full old row has every value. Otherwise a null outside the key means absent, and the
    place stays unchanged. What is full is the relation's to say, not the message's: for a
    partitioned table the letter follows the root and the contents follow the partition.
    """
    if len(old.values) != len(new):
        raise ProtocolError(f"table {entry.relation.name.said}: old and new row differ in length")
    usable = range(entry.width) if entry.full and old.full else entry.key_indexes
    filled = list(new)
    for index in usable:
        if filled[index] is UNCHANGED:
            filled[index] = old.values[index]
    return tuple(filled)
