"""Decide whether a kept state of a declared log can be brought forward by newer records. Pure.

A state holds what all records before its ends say. What is appended by one leader stays as it is,
so with the records from there to later ends it is the state at these, if each of them was found.
All were, where every offset gave a record. Offsets without one are those of transactions that were
taken back, and of the marks at their ends; or of what was deleted from the start, which moves then;
or, on a compacted topic, of records that were cleaned away, of which one may have told of a key
that no later one before the new ends speaks of. A record is left alone for
`min.compaction.lag.ms`, by the broker's clock if the topic has its times from there; so nothing was
cleaned away of what was appended since the old ends were asked for, if that is not so long ago.

A whole reading of a compacted topic is exact by the same clock, and where nothing was appended
since; and if it passes all tombstones before these may go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from views.verify.kept.judgement import ALLOWANCE_MS, BROKERS_CLOCK, COMPACTED, Cleaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a declared log stood when it was read to some ends.

    Attributes:
        topic_id: Kafka's id of its topic.
        starts: per partition the first offset that was there.
        begins: per partition the first one that is part of the log.
        ends: per partition where the reading ended.
        epochs: per partition the epoch of its leader; -1 where it is not known.
        asked_ms: our clock before the ends were asked for; None where nobody knows.
        cleaning: how the topic was cleaned.
    """

    topic_id: str
    starts: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    epochs: tuple[int, ...]
    asked_ms: int | None
    cleaning: Cleaning


def not_ahead(before: Standing, topic_id: str, ends: Sequence[int]) -> Iterator[str]:
    """Yield the reasons why a topic's ends cannot be later ends of the same log; asks no broker."""
    if before.topic_id != topic_id:
        yield f"its id changed from {before.topic_id} to {topic_id}"
    if len(before.ends) != len(ends):
        yield f"it has {len(ends)} partitions and had {len(before.ends)}"
        return
    for number, (was, end) in enumerate(zip(before.ends, ends, strict=True)):
        if end < was:
            yield f"partition {number} is read to offset {end}, and was to {was}"


def not_the_same(before: Standing, now: Standing) -> Iterator[str]:
    """Yield the reasons why the log read before is not a prefix of the log as it is now."""
    if reasons := [*not_ahead(before, now.topic_id, now.ends)]:
        yield from reasons
        return
    for number, was in enumerate(before.ends):
        start, epoch = now.starts[number], now.epochs[number]
        begun, begins = min(before.begins[number], was), min(now.begins[number], was)
        if start > was:
            yield f"partition {number} starts at offset {start}, behind {was}, where it was read to"
        elif begins != begun:
            yield f"partition {number} begins at offset {begins}, and did at {begun}"
        if epoch < 0:
            yield f"nobody knows who leads partition {number}"
        elif epoch != before.epochs[number]:
            yield f"partition {number} has got another leader"


def may_lack(before: Standing, now: Standing, *, ended_ms: int) -> str | None:
    """Return the reason why records between two ends may have been cleaned away, or None.

    Args:
        before: how the log stood at the old ends.
        now: how it stands after the reading.
        ended_ms: our clock after it.
    """
    if not (_is_cleaned(before.cleaning) or _is_cleaned(now.cleaning)):
        return None
    why = _uncovered((before.cleaning, now.cleaning), before.asked_ms, ended_ms)
    return None if why is None else f"offsets have no record, and {why}"


def not_exact_whole(
    before: Standing,
    now: Standing,
    *,
    appended: Sequence[int],
    begun_ms: int,
    ended_ms: int,
) -> str | None:
    """Return the reason why a whole reading of a log may have missed a record, or None.

    Args:
        before: how the log stood before it was read.
        now: how it stands after it.
        appended: per partition where it ends now, whatever was read.
        begun_ms: our clock before the reading.
        ended_ms: our clock after it.
    """
    cleanings = (before.cleaning, now.cleaning)
    if not any(map(_is_cleaned, cleanings)):
        return None
    retention_ms = min(cleaning.retention_ms for cleaning in cleanings)
    if ended_ms + ALLOWANCE_MS >= begun_ms + retention_ms * 9 // 10:
        return "reading it took longer than delete.retention.ms allows"
    if tuple(appended) == now.ends:
        return None
    why = _uncovered(cleanings, now.asked_ms, ended_ms)
    return None if why is None else f"records were appended since its ends were taken, and {why}"


def lacking(begins: Sequence[int], ends: Sequence[int], counts: Sequence[int]) -> Iterator[str]:
    """Say of which partitions not every offset gave a record."""
    for number, (begin, end, count) in enumerate(zip(begins, ends, counts, strict=True)):
        if count != end - begin:
            yield f"partition {number} gave {count} records from offset {begin} to {end}"


def _is_cleaned(cleaning: Cleaning) -> bool:
    return COMPACTED in cleaning.policy


def _uncovered(
    cleanings: tuple[Cleaning, Cleaning], asked_ms: int | None, ended_ms: int
) -> str | None:
    """Return the reason why records appended since a time may have been cleaned away, or None."""
    for cleaning in cleanings:
        if cleaning.clock != BROKERS_CLOCK:
            return f"message.timestamp.type is {cleaning.clock}, not {BROKERS_CLOCK}"
    if asked_ms is None:
        return "nobody knows since when"
    if ended_ms + ALLOWANCE_MS >= asked_ms + min(cleaning.lag_ms for cleaning in cleanings):
        return "min.compaction.lag.ms has passed since: some may have been cleaned away"
    return None
