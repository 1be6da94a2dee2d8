"""Changes of a transaction to a row, and the records they produce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.headers import Op
from changelog.contract.rows.relation import KeyRow, Relation, Row


@dataclass(frozen=True, slots=True)
class Insert:
    """The change that inserts a row."""

    relation: Relation
    key: KeyRow
    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    """A row's new values."""

    relation: Relation
    old_key: KeyRow  # the key before; differs from `key` when the update moved the row
    key: KeyRow  # the key now; empty for a table without one
    row: Row  # the whole new row
    old: Row | None = None  # the whole old row, where the stream brings it along, else None


@dataclass(frozen=True, slots=True)
class Delete:
    """A row's end; `old` is the whole row, where the stream brings it along."""

    relation: Relation
    key: KeyRow
    old: Row | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """The end of every row of a table."""

    relation: Relation


RowChange = Insert | Update | Delete
Change = RowChange | Truncate


@dataclass(frozen=True, slots=True)
class Upsert:
    """A record with a value; of a row that is gone when its operation is a delete."""

    key: KeyRow
    row: Row
    op: Op


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A record without a value: the key is deleted."""

    key: KeyRow
    op: Op


def records_of(change: RowChange) -> tuple[Upsert | Tombstone, ...]:
    """Return the records of one change, in the order in which they are written.

    A key change writes the tombstone of the old key first, then the new row: a reader between
    the two misses the row for a moment, which is better than seeing it twice.

    Without a key there is nothing that a tombstone could name. What goes is written whole, as a
    record of a delete; an update is such a record and then the new row. So a reader who adds the
    rows of `r`, `c` and `u` to a bag and takes those of `d` out of it has the table's rows.
    """
    if not change.relation.key:
        return _without_key(change)
    match change:
        case Insert(key=key, row=row):
            return (Upsert(key, row, Op.CREATE),)
        case Update(old_key=old, key=key, row=row) if old != key:
            return (Tombstone(old, Op.DELETE), Upsert(key, row, Op.UPDATE))
        case Update(key=key, row=row):
            return (Upsert(key, row, Op.UPDATE),)
        case Delete(key=key):
            return (Tombstone(key, Op.DELETE),)
        case _:
            assert_never(change)


def _without_key(change: RowChange) -> tuple[Upsert, ...]:
    match change:
        case Insert(row=row):
            return (Upsert((), row, Op.CREATE),)
        case Update(old=old, row=row):
            return (_gone(change, old), Upsert((), row, Op.UPDATE))
        case Delete(old=old):
            return (_gone(change, old),)
        case _:
            assert_never(change)


def _gone(change: Update | Delete, old: Row | None) -> Upsert:
    if old is None:
        raise ProtocolError(
            f"table {change.relation.name.said}: a row without a key was changed, and the stream "
            "does not have the old one"
        )
    return Upsert((), old, Op.DELETE)
