"""Adds records of Python's to a fold, as the reader adds those of a topic."""

from __future__ import annotations

from collections.abc import Iterable

from changelog.contract.base.headers import POSITION
from replay.scan.last_records import LastRecords


def add_records(last: LastRecords, records: Iterable, *, position_of=None) -> None:
    """Add records that look like confluent-kafka's messages.

    Args:
        last: the fold.
        records: in the order of their offsets.
        position_of: gives another position than a record's header; for seeded defects.
    """
    from changelog.native.records import FoldRecord

    find = position_of or (lambda record: dict(record.headers() or ()).get(POSITION))
    with last.adding() as fold:
        fold.add(
            [
                FoldRecord(record.key(), record.value(), find(record), record.offset())
                for record in records
            ]
        )
