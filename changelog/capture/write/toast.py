"""TOAST values that the stream leaves out because they have not changed: read from the table.

The values are read as they are now, which may be later than the change. A later change of them is
then later in the stream as well, so the log is exact again once the stream has passed the WAL
position of the read; no frontier is written before. A row that is gone has its delete ahead in the
stream, so this version needs no record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from changelog.contract.base.lsn import Lsn
from changelog.contract.forms.event import Event
from changelog.contract.rows.change import Tombstone, Upsert
from changelog.contract.rows.relation import UNCHANGED, KeyRow, Relation, Row
from changelog.source.snapshot.toast import Fetched

FetchRows = Callable[[Relation, Sequence[tuple[KeyRow, int]], Sequence[str]], Sequence[Fetched]]
"""Reads columns of rows by their keys as they are now, and the WAL positions up to which they may
be newer than what transactions, given by their numbers, have left."""
_FEW, _MANY = 16, 64  # planning takes longer than more queries would
_LITTLE, _MUCH = 1 << 20, 4 << 20


@dataclass(slots=True)
class Toast:
    """Fills in the values that the stream left out, and holds frontiers until it has them."""

    fetch: FetchRows
    hold_until: Callable[[Lsn], None]  # is told the WAL position of each read
    at_once: int = field(init=False, default=_FEW)
    """The most rows that are read ahead, so that their values are some megabytes."""
    _ahead: dict[tuple[int, KeyRow, tuple[str, ...], int], Fetched] = field(
        init=False, default_factory=dict
    )

    def completed(self, relation: Relation, key: KeyRow, row: Row, xid: int) -> Row | None:
        """Fill in unchanged values, or return None if the row is gone."""
        missing = [index for index, value in enumerate(row) if value is UNCHANGED]
        names = _names(relation, row)
        fetched = self._ahead.get((relation.oid, key, names, xid))
        if fetched is None:
            (fetched,) = self.fetch(relation, [(key, xid)], names)
        values, lsn = fetched
        self.hold_until(lsn)
        if values is None:
            return None
        completed = list(row)
        for index, value in zip(missing, values, strict=True):
            completed[index] = value
        return completed

    def is_ahead(self, relation: Relation, key: KeyRow, row: Row, xid: int) -> bool:
        """Tell whether the values that a row lacks have been read."""
        return (relation.oid, key, _names(relation, row), xid) in self._ahead

    def read_ahead(self, relation: Relation, rows: Iterable[tuple[KeyRow, Row, int]]) -> None:
        """Read the missing values of the next rows in few queries.

        `rows` are keys, rows and transactions. Capture that lags would otherwise ask the server up
        to four times for each row.
        """
        self._ahead.clear()
        lookups = defaultdict[tuple[str, ...], list[tuple[KeyRow, int]]](list)
        for key, row, xid in rows:
            lookups[_names(relation, row)].append((key, xid))
        size = 0
        for names, own in lookups.items():
            for (key, xid), fetched in zip(own, self.fetch(relation, own, names), strict=True):
                self._ahead[relation.oid, key, names, xid] = fetched
                size += sum(len(value) for value in fetched[0] or () if isinstance(value, bytes))
        if size > _MUCH:
            self.at_once = max(self.at_once // 2, 1)
        elif size < _LITTLE:
            self.at_once = min(self.at_once * 2, _MANY)

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


def _names(relation: Relation, row: Row) -> tuple[str, ...]:
    """Return the columns whose values a row lacks."""
    columns = zip(relation.columns, row, strict=True)
    return tuple(column.name for column, value in columns if value is UNCHANGED)
