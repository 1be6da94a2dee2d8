"""Adds records of Python's to a fold, as the compiled reader adds those of a topic."""

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
    from changelog.native.library import ffi, lib  # this function travels by value

    find = position_of or (lambda record: dict(record.headers() or ()).get(POSITION))
    texts = [(record.key(), record.value(), find(record)) for record in records]
    held = [[ffi.NULL if raw is None else ffi.from_buffer(raw) for raw in each] for each in texts]
    made = ffi.new("fold_record[]", len(texts))
    for at, (record, raws, pointers) in enumerate(zip(records, texts, held, strict=True)):
        for name, raw, pointer in zip(("key", "value", "position"), raws, pointers, strict=True):
            setattr(made[at], name, ffi.cast("uint8_t *", pointer))
            setattr(made[at], f"{name}_size", len(raw or b""))
        made[at].offset = record.offset()
    last.settle(lib.fold_add(last.handle, made, len(texts)))
