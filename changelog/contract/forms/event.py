"""Changes as values: what a record tells where its value is not the row (envelopes).

Nested, as Debezium's connector for PostgreSQL writes it (its documentation, "Data change events"):
`before` and `after`, `source` with place and time, `op`, and the times at which we saw it. Flat:
each column twice, `before_…` and `after_…`, with `op`, `ts` and `lsn`; in JSON, which has no schema
that would say it, also with `type`, `schema`, `table` and `ingestion` (nanoseconds).

What PostgreSQL does not send is not made up. `before` is the whole old row under REPLICA IDENTITY
FULL. Otherwise a delete has the key's columns, and an update nothing. `lsn` is that of the commit,
since the positions of rows are not unique.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, assert_never

from changelog.contract.base.headers import Op
from changelog.contract.forms.document import NULL, Documents, joined, quoted
from changelog.contract.rows.change import Delete, Insert, RowChange, Tombstone, Update
from changelog.contract.rows.relation import KeyRow, Relation, Row

CONNECTOR = "postgresql"


@dataclass(frozen=True, slots=True)
class Event:
    """A record whose value is a change."""

    key: KeyRow  # the row's key; empty for a table without one
    before: Row | None  # the whole row before, where it is known
    after: Row | None  # the whole row after, None when it is gone
    op: Op  # what happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Place and time of a change."""

    lsn: int  # of the commit
    ts_us: int  # when it was, microseconds since 1970; of a snapshot, when that was taken
    xid: int | None  # the transaction's number, None in a snapshot
    seen_us: int  # when capture wrote it, microseconds since 1970


@dataclass(frozen=True, slots=True)
class EventOrigin:
    """The program and the database that events come from."""

    version: str = ""  # of this program
    name: str = ""  # of the log: its topics' prefix, or else the slot
    database: str = ""  # the source's name


NOWHERE = EventOrigin()

WORDS = {
    Op.READ: "read",
    Op.CREATE: "insert",
    Op.UPDATE: "update",
    Op.DELETE: "delete",
    Op.TRUNCATE: "truncate",
}
"""What flat events call an operation in `type`."""


class EventEncoder(Protocol):
    """Encodes the changes of one relation version.

    A value without an exact form raises EncodeError, which names table and column.
    """

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """Return the value of a record; raises EncodeError."""


def events_of(change: RowChange) -> tuple[Event | Tombstone, ...]:
    """Return the records of one change, in the order in which they are written.

    A delete is followed by its tombstone, without which the cleaner would keep the key. A key
    change is a delete and a create, as Debezium has it. Without a key there is no tombstone.
    """
    match change:
        case Insert(key=key, row=row):
            return (Event(key, None, row, Op.CREATE),)
        case Update(old_key=old_key, key=key, row=row, old=old) if old_key != key:
            return (*_deleted(old_key, old), Event(key, None, row, Op.CREATE))
        case Update(key=key, row=row, old=old):
            return (Event(key, old, row, Op.UPDATE),)
        case Delete(key=key, old=old):
            return _deleted(key, old)
        case _:
            assert_never(change)


def _deleted(key: KeyRow, old: Row | None) -> tuple[Event | Tombstone, ...]:
    gone = Event(key, old, None, Op.DELETE)
    return (gone, Tombstone(key, Op.DELETE)) if key else (gone,)


def key_as_row(relation: Relation, key: KeyRow) -> Row:
    """Return a row of which the key alone is known."""
    row: list[bytes | None] = [None] * len(relation.columns)
    for index, value in zip(relation.key_indexes, key, strict=True):
        row[index] = value
    return row


def labelled_row(relation: Relation, event: Event) -> Row:
    """Return the row for a labelled event; of a deleted row, the part that is known."""
    row = event.after if event.after is not None else event.before
    return key_as_row(relation, event.key) if row is None else row


def is_snapshot(event: Event) -> bool:
    """Tell whether a row was read and not changed."""
    return event.op is Op.READ


class NestedDocuments:
    """Encodes changes as JSON documents in the nested envelope."""

    def __init__(self, relation: Relation, origin: EventOrigin) -> None:
        self._documents = Documents(relation)
        self._who = (
            f'"version":{quoted(origin.version)},"connector":{quoted(CONNECTOR)},'
            f'"name":{quoted(origin.name)}'
        )
        self._where = (
            f'"schema":{quoted(relation.name.schema)},"table":{quoted(relation.name.table)}'
        )
        self._database = quoted(origin.database)

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """Return the value of a record; raises EncodeError."""
        seen, ts = stamp.seen_us, stamp.ts_us
        text = (
            f'{{"before":{self._before(event)},"after":{self._row(event.after)},"source":{{'
            f'{self._who},"ts_ms":{ts // 1000},"snapshot":"{_truth(event)}",'
            f'"db":{self._database},"sequence":{quoted(sequence_text(stamp))},{self._where},'
            f'"txId":{NULL if stamp.xid is None else stamp.xid},"lsn":{int(stamp.lsn)},'
            f'"xmin":null,"ts_us":{ts},"ts_ns":{ts * 1000}}},"transaction":null,'
            f'"op":"{event.op.value.decode()}","ts_ms":{seen // 1000},"ts_us":{seen},'
            f'"ts_ns":{seen * 1000}}}'
        )
        return text.encode("utf-8")

    def _before(self, event: Event) -> str:
        if event.before is None and event.op is Op.DELETE and event.key:
            return joined(self._documents.key_members(event.key))
        return self._row(event.before)

    def _row(self, row: Row | None) -> str:
        return NULL if row is None else joined(self._documents.members(row))


class FlatDocuments:
    """Encodes changes as flat JSON documents; unknown values are left out, nulls are null."""

    def __init__(self, relation: Relation) -> None:
        self._before = Documents(relation, prefix=BEFORE)
        self._after = Documents(relation, prefix=AFTER)
        name = relation.name
        self._where = f'"schema":{quoted(name.schema)},"table":{quoted(name.table)}'

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """Return the value of a record; raises EncodeError."""
        members = [
            f'"op":"{event.op.value.decode()}"',
            f'"type":"{WORDS[event.op]}"',
            self._where,
            f'"ts":{stamp.ts_us}',
            f'"lsn":{int(stamp.lsn)}',
            f'"ingestion":{stamp.seen_us * 1000}',
        ]
        if event.before is not None:
            members += self._before.members(event.before)
        elif event.op is Op.DELETE:
            members += self._before.key_members(event.key)
        if event.after is not None:
            members += self._after.members(event.after)
        return joined(members).encode("utf-8")


LABELS = ("__op", "__schema", "__table", "__lsn", "__ts", "__ingested", "__deleted")
"""What stands beside a row's columns in the labelled envelope."""


class LabelledDocuments:
    """Encodes changes as JSON documents of the row with labels."""

    def __init__(self, relation: Relation) -> None:
        self._documents = Documents(relation)
        self._where = (
            f'"__schema":{quoted(relation.name.schema)},"__table":{quoted(relation.name.table)}'
        )

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """Return the value of a record; raises EncodeError."""
        row = labelled_row(self._documents.relation, event)
        gone = "true" if event.op is Op.DELETE else "false"
        labels = (
            f'"__op":"{event.op.value.decode()}",{self._where},"__lsn":{int(stamp.lsn)},'
            f'"__ts":{stamp.ts_us},"__ingested":{stamp.seen_us},"__deleted":{gone}'
        )
        return joined([*self._documents.members(row), labels]).encode("utf-8")


BEFORE, AFTER = "before_", "after_"  # put before the names of columns in the flat envelope


def sequence_text(stamp: Stamp) -> str:
    """Return Debezium's pair of offsets: of the last commit, which we do not keep, and our own."""
    return f'[null,"{int(stamp.lsn)}"]'


def _truth(event: Event) -> str:
    return "true" if is_snapshot(event) else "false"
