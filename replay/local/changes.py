"""The changes between two frontiers: from records to changes with both sides. Pure.

A record says what a row is from then on; what it was before is the record of its key that came
before. So each key's records are gone through in their order, from what it was at the first
frontier. Of records of one position, sent again after a crash, the last decides, as in the fold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from changelog.contract.base.headers import Op
from changelog.contract.base.position import Position
from replay.local.records import Last, RecordVersion, WrittenRecord


class ChangeType(Enum):
    """The kind of a row of changes, in the words of Delta's change data feed."""

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class RowChange:
    """A side of a change."""

    kind: ChangeType  # which one
    row: WrittenRecord  # as it was before, of a delete and a preimage; else as it is since
    position: Position  # of the change
    ts_us: int  # when it was committed, microseconds since 1970


def touched(records: Iterable[RecordVersion], since: Position) -> dict[bytes, list[RecordVersion]]:
    """Return the records from a position on by their key, each list in the order of changes."""
    by_key: dict[bytes, list[RecordVersion]] = defaultdict(list)
    for record in sorted(records, key=lambda version: (version.position, version.offset)):
        if record.position >= since:
            by_key[record.key].append(record)
    return by_key


def once(records: Iterable[RecordVersion]) -> Iterator[RecordVersion]:
    """Yield a key's records without resends: of records with equal positions, the last.

    `records`: in the order of changes, of equal positions in that of their offsets.
    """
    for _, same in groupby(records, key=lambda record: record.position):
        *_, last = same
        yield last


def changes_of(
    before: Mapping[bytes, Last], records: Mapping[bytes, Iterable[RecordVersion]]
) -> list[RowChange]:
    """Return the changes in order, with the two sides of an update next to each other.

    `before`: the rows that there were, of the keys in `records`. `records`: what was written since,
    by key, in the order of changes.
    """
    row_changes = [
        change for key, some in records.items() for change in _of_key(before.get(key), some)
    ]
    return sorted(row_changes, key=lambda change: change.position)


def _of_key(start: Last | None, records: Iterable[RecordVersion]) -> Iterator[RowChange]:
    row = None if start is None or start.value is None else _written(start)
    for record in once(records):
        after = None if record.is_gone else _written(record)
        if row is not None and after is not None:
            if record.op is Op.READ and row.value == after.value:
                continue  # copied anew, and the same
            yield RowChange(ChangeType.UPDATE_PREIMAGE, row, record.position, record.ts_us)
            yield RowChange(ChangeType.UPDATE_POSTIMAGE, after, record.position, record.ts_us)
        elif after is not None:
            yield RowChange(ChangeType.INSERT, after, record.position, record.ts_us)
        elif row is not None:
            yield RowChange(ChangeType.DELETE, row, record.position, record.ts_us)
        row = after


def _written(record: Last | RecordVersion) -> WrittenRecord:
    return WrittenRecord(record.value or b"", record.partition, record.offset)
