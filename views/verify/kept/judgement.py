"""Decide whether a state proved at one frontier leads to another, and until when. Pure.

A state that was proved at a frontier F0 contains all records before F0's ends. With the last record
of each key between F0's ends and F1's applied to it, it is the state at F1, if the two are cuts of
one log and no record that decides about a key was removed between them:

- A row is removed only because of a newer record of its key, which is before F1's ends too, or is
  too young for the cleaner.
- A tombstone is removed without a newer record. It was appended behind F0's ends; the cleaner
  leaves it alone for `min.compaction.lag.ms`, and then for `delete.retention.ms`. Until F0's append
  + both, by the broker's clock and the shorter of each setting then and now, none is gone; after
  that a deleted key might silently stay in the state.

Records behind F0's ends with positions below F0 are resends; the state already has them.

A state is kept only if its read ended before any record that it needs can have been removed: a scan
must end before the tombstones that it passes are too old (`delete.retention.ms` from its start),
and before the cleaner may remove a record before F1's ends because of one behind them
(`min.compaction.lag.ms` from F1's append on).

The rules are those of checkpoints (docs/decisions/0023-checkpoints-and-refresh.md), and stricter
where strictness is cheap: after a change of leader the topic is read from its start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Self

from changelog.contract.log.form import PLAIN
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.schema import SchemaPin

ALLOWANCE_MS = 5_000
"""How far our clock and the broker's may be apart."""
COMPACTED, BROKERS_CLOCK = "compact", "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """The settings of a topic that its cleaner obeys."""

    policy: str  # `cleanup.policy`
    clock: str  # `message.timestamp.type`, which says whose clock a record's age is counted by
    lag_ms: int  # `min.compaction.lag.ms`
    retention_ms: int  # `delete.retention.ms`

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self:
        """Return the cleaning settings among a topic's settings."""
        return cls(
            policy=settings.get("cleanup.policy", ""),
            clock=settings.get("message.timestamp.type", ""),
            lag_ms=int(settings.get("min.compaction.lag.ms") or 0),
            retention_ms=int(settings.get("delete.retention.ms") or 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReading:
    """The schema and program version by which a topic is read."""

    pin: SchemaPin  # the ids of the schemas of keys and of rows
    schema: str  # SHA-256 of the text of the rows' schema
    program: str  # the version of this program

    @classmethod
    def by(cls, pin: SchemaPin, text: str) -> Self:
        """Return the reading by a schema with this text and the present program version."""
        return cls(pin=pin, schema=sha256(text.encode()).hexdigest(), program=_program())


@cache
def _program() -> str:
    """Return this program's version, looked up once."""
    return version("changelog-store")


def now_ms() -> int:
    """Return the present time by our clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """The description of a kept state: its topic, its frontier, and how the topic was read."""

    topic: str  # its topic
    frontier: Frontier  # at which it was proved
    appended_ms: int  # when the frontier was appended to its topic, by the broker's clock
    cleaning: Cleaning  # the settings of the topic's cleaner then
    reading: SchemaReading  # the schema by which it was read then

    def until_ms(self, now: Cleaning) -> int:
        """Return the time from which a tombstone after the frontier may be gone."""
        lag = min(self.cleaning.lag_ms, now.lag_ms)
        return self.appended_ms + lag + min(self.cleaning.retention_ms, now.retention_ms)


def obstacles(
    proved: Proved,
    frontier: Frontier,
    *,
    reading: SchemaReading,
    cleaning: Cleaning,
    starts: Sequence[int],
    now_ms: int,
) -> Iterator[str]:
    """Yield the reasons why a kept state does not lead to a frontier.

    `reading`: the schema by which the topic would be read now. `cleaning`: its cleaner's present
    settings. `starts`: per partition the first offset that is still there.
    """
    old, topic = proved.frontier, proved.topic
    if topic not in frontier.ends:
        yield f"the frontier at LSN {frontier.lsn} does not have the topic"
        return
    for fact, was, now in _identity(old, frontier, topic):
        if was != now:
            yield f"{fact} changed from {was} to {now}"
    if proved.reading != reading:
        yield f"it was read by {_reading_text(proved.reading)}, now by {_reading_text(reading)}"
    proved_ends, ends = old.ends.get(topic, ()), frontier.ends.get(topic, ())
    if len(proved_ends) != len(ends) or len(proved_ends) != len(starts):
        yield f"it has {len(ends)} partitions and had {len(proved_ends)}"
    elif frontier.lsn < old.lsn or any(e < k for k, e in zip(proved_ends, ends, strict=True)):
        yield f"what was proved is newer: LSN {old.lsn}, not {frontier.lsn}"
    else:
        for partition, (start, end) in enumerate(zip(starts, proved_ends, strict=True)):
            if start > end:
                yield f"partition {partition} starts at offset {start}, behind what was proved"
    yield from unfit(cleaning)
    if (why := too_late(proved, cleaning, now_ms)) is not None:
        yield why


def too_late(proved: Proved, cleaning: Cleaning, now_ms: int) -> str | None:
    """Return a sentence saying that deletes may have been missed since the proof, or None."""
    if now_ms + ALLOWANCE_MS < proved.until_ms(cleaning):
        return None
    return (
        f"what was proved at LSN {proved.frontier.lsn} is older than min.compaction.lag.ms and "
        "delete.retention.ms: deletes may have been missed since"
    )


def unfit(cleaning: Cleaning) -> Iterator[str]:
    """Yield the settings of a topic that forbid bringing any state of it forward."""
    if cleaning.policy != COMPACTED:
        yield f"cleanup.policy is {cleaning.policy}, not {COMPACTED}"
    if cleaning.clock != BROKERS_CLOCK:
        yield f"message.timestamp.type is {cleaning.clock}, not {BROKERS_CLOCK}"


def not_exact(proved: Proved, *, begun_ms: int, ended_ms: int, whole: bool) -> str | None:
    """Return the reason why the read of a state may have missed a record, or None.

    `proved`: the description of the state. `begun_ms`: our clock before the read. `whole`: whether
    the topic was read from its start.
    """
    cleaning, late = proved.cleaning, ended_ms + ALLOWANCE_MS
    if late >= proved.appended_ms + cleaning.lag_ms:
        return "it was read later than min.compaction.lag.ms after its frontier"
    if whole and late >= begun_ms + cleaning.retention_ms * 9 // 10:
        return "reading it took longer than delete.retention.ms allows"
    return None


def cannot_be_kept(frontier: Frontier, topic: str) -> Iterator[str]:
    """Yield the reasons, found in the frontier, why a topic's state is not kept."""
    if frontier.scope_of(topic).form != PLAIN:
        yield "its records are not rows in Avro"
    if -1 in frontier.leader_epochs.get(topic, (-1,)):
        yield "the frontier does not know the leaders of its partitions"


def _reading_text(reading: SchemaReading) -> str:
    key, value = reading.pin.key, reading.pin.value
    return f"schemas {key} and {value} ({reading.schema[:8]}), version {reading.program}"


def _identity(old: Frontier, new: Frontier, topic: str) -> tuple[tuple[str, object, object], ...]:
    return (
        ("the slot", old.slot, new.slot),
        ("the epoch of the slot", old.epoch, new.epoch),
        ("the PostgreSQL cluster", old.system_id, new.system_id),
        ("its timeline", old.timeline, new.timeline),
        ("the Kafka cluster", old.cluster_id, new.cluster_id),
        ("the table", old.tables.get(topic), new.tables.get(topic)),
        ("the topic's id", old.topic_ids.get(topic), new.topic_ids.get(topic)),
        ("when its partitions grew", _grown_ms(old, topic), _grown_ms(new, topic)),
        ("what is alive (since)", old.since.get(topic), new.since.get(topic)),
        ("the last copy of the table (LSN)", old.whole.get(topic), new.whole.get(topic)),
        ("what of the table is captured", old.scope_of(topic), new.scope_of(topic)),
        (
            "who leads its partitions",
            old.leader_epochs.get(topic),
            new.leader_epochs.get(topic),
        ),
    )


def _grown_ms(frontier: Frontier, topic: str) -> int | None:
    growth = frontier.grown.get(topic)
    return None if growth is None else growth.ms
