"""What a transaction did to a row, and the records that it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from changelog.contract.headers import Op
from changelog.contract.relation import KeyRow, Relation, Row


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relation: Relation
    key: KeyRow
    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    """A row's new values; `old_key` differs from `key` when the update moved the row."""

    relation: Relation
    old_key: KeyRow
    key: KeyRow
    row: Row


@dataclass(frozen=True, slots=True)
class Delete:
    """A row's end."""

    relation: Relation
    key: KeyRow


@dataclass(frozen=True, slots=True)
class Truncate:
    """The end of every row of a table."""

    relation: Relation


RowChange = Insert | Update | Delete
Change = RowChange | Truncate


@dataclass(frozen=True, slots=True)
class Upsert:
    """A record with a value."""

    key: KeyRow
    row: Row
    op: Op


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A record without a value: the key is deleted."""

    key: KeyRow
    op: Op


def records_of(change: RowChange) -> tuple[Upsert | Tombstone, ...]:
    """Give the records of one change, in the order in which they are written.

    A key change writes the tombstone of the old key first, then the new row: a reader between
    the two misses the row for a moment, which is better than seeing it twice.
    """
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
