"""The log as a dictionary, and the cleaner as a set of rules: what every engine is held against."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from changelog.contract.base.position import Position


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of one partition; `value` None is a tombstone."""

    offset: int
    key: bytes
    value: bytes | None
    position: Position


def fold(
    log: Iterable[Entry], *, since: Position | None = None, before: Position | None = None
) -> dict[bytes, bytes]:
    """Return each key's value in the state at `before`: ten lines that are right by looking."""
    last: dict[bytes, Entry] = {}
    for entry in log:
        if since is not None and entry.position < since:
            continue
        if before is not None and entry.position >= before:
            continue
        known = last.get(entry.key)
        if known is None or (entry.position, entry.offset) > (known.position, known.offset):
            last[entry.key] = entry
    return {key: entry.value for key, entry in last.items() if entry.value is not None}


def superseded(log: Sequence[Entry], end: int) -> list[Entry]:
    """Return what a cleaning up to the offset `end` may remove: a newer record of the key is there.

    The cleaner looks at offsets only; positions are nothing to it.
    """
    newest = {entry.key: entry.offset for entry in log if entry.offset < end}
    return [entry for entry in log if entry.offset < end and entry.offset < newest[entry.key]]


def clean(
    log: Sequence[Entry], *, end: int, removed: Collection[int], forgotten: Collection[int] = ()
) -> list[Entry]:
    """Return the log after a cleaning in which some segments were rewritten and others not yet.

    Args:
        log: one partition, in the order of its offsets.
        end: how far the cleaner's map of keys reached.
        removed: offsets that it has got round to, of those that it may remove.
        forgotten: offsets of tombstones whose retention is over, of those with nothing of their
            key left before them: a cleaning that removed that is what started their clock.
    """
    gone = {entry.offset for entry in superseded(log, end)} & set(removed)
    rest = [entry for entry in log if entry.offset not in gone]
    return [
        entry for entry in rest if not (entry.offset in forgotten and _may_forget(rest, entry, end))
    ]


def _may_forget(log: Sequence[Entry], entry: Entry, end: int) -> bool:
    return (
        entry.value is None
        and entry.offset < end
        and not any(other.key == entry.key and other.offset < entry.offset for other in log)
    )
