"""TOAST values that the stream leaves out because they have not changed: read from the table.

The values are read as they are now, which may be later than the change. A later change of them is
then later in the stream as well, so the log is exact again once the stream has passed the WAL
position of the read; no frontier is written before. A row that is gone has its delete ahead in the
stream, so this version needs no record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from changelog.contract.base.lsn import Lsn
from changelog.contract.forms.event import Event
from changelog.contract.rows.change import Tombstone, Upsert
from changelog.contract.rows.relation import UNCHANGED, Field, KeyRow, Relation, Row

FetchRow = Callable[[Relation, KeyRow, Sequence[str], int], tuple[Sequence[Field] | None, Lsn]]
"""Reads columns of a row by its key as they are now, and the WAL position up to which they may be
newer than what a transaction, given by its number, has left."""


@dataclass(frozen=True, slots=True)
class Toast:
    """Fills in the values that the stream left out, and holds frontiers until it has them."""

    fetch: FetchRow
    hold_until: Callable[[Lsn], None]  # is told the WAL position of each read

    def completed(self, relation: Relation, key: KeyRow, row: Row, xid: int) -> Row | None:
        """Fill in unchanged values, or return None if the row is gone."""
        missing = [index for index, field in enumerate(row) if field is UNCHANGED]
        names = [relation.columns[index].name for index in missing]
        values, lsn = self.fetch(relation, key, names, xid)
        self.hold_until(lsn)
        if values is None:
            return None
        completed = list(row)
        for index, value in zip(missing, values, strict=True):
            completed[index] = value
        return completed

    def hold_again(self, relation: Relation, record: Upsert | Tombstone | Event, xid: int) -> None:
        """Hold frontiers for a record that stands on the log, as the attempt that wrote it did.

        Nothing there says how new the values were that it fetched. They are no newer than what
        is read now; and where that is as the transaction has left it, so were they.
        """
        if isinstance(record, Tombstone):
            return
        row = record.after if isinstance(record, Event) else record.row
        if row is not None and UNCHANGED in row and record.key:
            self.completed(relation, record.key, row, xid)
