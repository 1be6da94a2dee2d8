"""A frontier: one LSN, and where each topic stood when all up to it was written.

Half-open on both sides: every record of a transaction whose commit LSN is before `lsn` lies
before `ends`, and no record of a later one does (records sent again after a crash apart).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple, Self

from changelog.contract.base.errors import ConfigurationError, CorruptRecordError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.form import Output
from changelog.contract.log.scope import WHOLE, Scope
from changelog.contract.rows.relation import TableName

COPIED = "it is copied anew, since "
"""Begins the reason of a table that is excluded only until it is copied."""


@dataclass(frozen=True, slots=True)
class Growth:
    """When a topic that held records got more partitions."""

    ms: int  # before it did, milliseconds since 1970
    # what lies before may be in other partitions than what follows. Never before the first frontier
    # that has seen it
    lsn: Lsn


class LastCommit(NamedTuple):
    """The last transaction before a frontier, by which the server's history is known again."""

    end: Lsn  # the first LSN behind its commit record; where the slot began when it has sent none
    ts_us: int  # its commit time, microseconds since 1970; 0 when the slot has sent none


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """An exact cut across the topics of one slot."""

    slot: str  # name of the replication slot; the key of the record on the frontier topic
    epoch: int  # the slot's life; grows when the slot is lost or made anew
    lsn: Lsn  # end of the last transaction on the log
    # commit time of that transaction, or of the keepalive that moved `lsn`, microseconds since 1970
    ts_us: int
    system_id: str = ""  # identifier of the PostgreSQL cluster (`IDENTIFY_SYSTEM`)
    timeline: int = 1  # its timeline
    cluster_id: str = ""  # identifier of the Kafka cluster
    tables: Mapping[str, TableName] = field(default_factory=dict)  # the table of each topic
    # Kafka's id of each topic, also of those that hold no table: the messages. A topic made anew
    # has another
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    # per topic in `topic_ids` the end offset of each partition: the first one not read
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # per topic in `ends` the epoch of each partition's leader when they were asked for: it tells
    # later whether records before them were truncated. A topic without an entry has none known
    leader_epochs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # topics that got more partitions, and hold rows from before. A key's tombstone may stand in
    # another partition than its row, which then outlives it
    grown: Mapping[str, Growth] = field(default_factory=dict)
    # per topic the position before which its records are dead (a fresh snapshot, a truncated
    # table); a topic without an entry has none
    since: Mapping[str, Position] = field(default_factory=dict)
    # per topic and partition the offset before which every record is dead, since all there lie
    # before `since`; a topic without an entry has none. What else is removed from a topic's start
    # is missing
    alive_from: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # what of its table a topic holds; a topic without an entry holds the whole
    scopes: Mapping[str, Scope] = field(default_factory=dict)
    # per topic the LSN of the last rows that were copied to it: in this epoch, no state from before
    # that can be had from the topic, though records are alive since `since`
    whole: Mapping[str, Lsn] = field(default_factory=dict)
    # tables that are captured and of which the frontier does not speak, each with the reason
    excluded: Mapping[TableName, str] = field(default_factory=dict)
    # tables that others inherit from, with all that do. Their rows are those of `ONLY` the table: a
    # `SELECT *` of it at the source has the rows of the children too
    children: Mapping[TableName, tuple[TableName, ...]] = field(default_factory=dict)
    # the last rows of the signal table that were taken, with what became of each
    signals: Mapping[int, str] = field(default_factory=dict)
    # the row that holds the stream at this frontier; None while it goes on
    paused: int | None = None
    # the last transaction that the slot has sent; None where an earlier version of capture has not
    # written it
    commit: LastCommit | None = None
    # per topic the id of the schema of its keys; none of topics of which it is not known, and where
    # records bear no id
    key_ids: Mapping[str, int] = field(default_factory=dict)

    def of(self, _topic: str, /) -> Frontier:
        """Return the frontier that a topic is read to: itself, where it is of one capture."""
        return self

    def is_before(self, other: Frontier) -> bool:
        """Tell whether this is the frontier of an earlier place in the log."""
        return (self.epoch, self.lsn) < (other.epoch, other.lsn)

    def scope_of(self, topic: str) -> Scope:
        """Return the part of its table that a topic holds."""
        return self.scopes.get(topic, WHOLE)

    @property
    def registered(self) -> dict[str, int | None]:
        """Return the topics with records of a registry's schemas, and the id of their keys' one.

        None where keys have none, or it is not known.
        """
        return {
            topic: self.key_ids.get(topic)
            for topic in self.tables
            if self.scope_of(topic).form.output is Output.AVRO and any(self.ends.get(topic, ()))
        }

    def begins(self, topic: str, starts: Sequence[int]) -> tuple[int, ...]:
        """Return per partition the first offset to read of a topic whose partitions start there.

        What lies before is dead, whatever it is: rows of before a fresh copy, or records of others
        that were the reason for one. `starts` has per partition the first offset that is still
        there.
        """
        alive = self.alive_from.get(topic, ())
        begins = [max(pair) for pair in zip_longest(starts, alive, fillvalue=0)]
        return tuple(map(min, begins, self.ends.get(topic, begins)))

    def is_copied(self, topic: str) -> bool:
        """Tell whether a topic got the rows that its table had before; see `Scope.copied`."""
        return self.scope_of(topic).copied

    def missing_of(self, topic: str, starts: Sequence[int]) -> list[str]:
        """Return the losses of a topic whose partitions start at `starts`; see `missing`."""
        return list(missing(starts, self.alive_from.get(topic, ())))

    def lost_of(self, topic: str, ends: Sequence[int]) -> list[str]:
        """Return the partitions, now ending at `ends`, that have lost their last records."""
        places = enumerate(zip(ends, self.ends.get(topic, ()), strict=False))
        return [
            f"partition {partition} ends at {now}, before the frontier's {end}: records lost"
            for partition, (now, end) in places
            if now < end
        ]

    def topic_of(self, table: TableName) -> str | None:
        """Return the topic of a table, or None when it is not captured."""
        return next((topic for topic, name in self.tables.items() if name == table), None)

    def facts_of(self, table: TableName) -> tuple[object, ...]:
        """Return the facts that decide a table's rows: at equal ones they are the same."""
        topic = self.topic_of(table)
        if topic is None:
            return (self.epoch, None, self.why_absent(table))
        return (
            self.epoch,
            topic,
            self.topic_ids.get(topic),
            self.ends.get(topic),
            self.since.get(topic),
            self.whole.get(topic),
            self.scope_of(topic),
        )

    def why_absent(self, table: TableName) -> str:
        """Return the reason why a table is not in the frontier, as the end of a sentence."""
        reason = self.excluded.get(table)
        return "is not captured" if reason is None else f"is excluded: {reason}"

    def to_json(self) -> str:
        """Return the value of the record on the frontier topic."""
        return json.dumps(
            {
                "slot": self.slot,
                "epoch": self.epoch,
                "lsn": str(self.lsn),
                "ts": self.ts_us,
                "system_id": self.system_id,
                "timeline": self.timeline,
                "cluster_id": self.cluster_id,
                "tables": {topic: list(name) for topic, name in self.tables.items()},
                "topic_ids": dict(self.topic_ids),
                "ends": {topic: list(ends) for topic, ends in self.ends.items()},
                "leader_epochs": {
                    topic: list(numbers) for topic, numbers in self.leader_epochs.items()
                },
                "grown": {
                    topic: [growth.ms, str(growth.lsn)] for topic, growth in self.grown.items()
                },
                "since": {topic: str(position) for topic, position in self.since.items()},
                "alive_from": {topic: list(offsets) for topic, offsets in self.alive_from.items()},
                "scopes": {topic: scope.to_json() for topic, scope in self.scopes.items()},
                "whole": {topic: str(lsn) for topic, lsn in self.whole.items()},
                # The log's own name for them, since its first frontiers.
                "aside": [[*table, reason] for table, reason in self.excluded.items()],
                "children": [
                    [*table, [list(child) for child in children]]
                    for table, children in self.children.items()
                ],
                "signals": [list(signal) for signal in self.signals.items()],
                "paused": self.paused,
                "key_ids": dict(self.key_ids),
                "commit": [str(self.commit.end), self.commit.ts_us] if self.commit else None,
            },
            separators=(",", ":"),
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the value of a record on the frontier topic.

        Raises CorruptRecordError: the text is not a frontier.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(
                slot=raw["slot"],
                epoch=raw["epoch"],
                lsn=Lsn.parse(raw["lsn"]),
                ts_us=raw["ts"],
                system_id=raw["system_id"],
                timeline=raw["timeline"],
                cluster_id=raw["cluster_id"],
                tables={topic: TableName(*name) for topic, name in raw["tables"].items()},
                topic_ids=raw["topic_ids"],
                ends={topic: tuple(ends) for topic, ends in raw["ends"].items()},
                leader_epochs={
                    topic: tuple(numbers) for topic, numbers in raw.get("leader_epochs", {}).items()
                },
                grown={
                    topic: Growth(int(growth[0]), Lsn.parse(growth[1]))
                    for topic, growth in raw.get("grown", {}).items()
                },
                since={topic: Position.parse(text) for topic, text in raw["since"].items()},
                alive_from={
                    topic: tuple(offsets) for topic, offsets in raw.get("alive_from", {}).items()
                },
                scopes={
                    topic: Scope.from_json(scope) for topic, scope in raw.get("scopes", {}).items()
                },
                whole={topic: Lsn.parse(lsn) for topic, lsn in raw.get("whole", {}).items()},
                excluded={TableName(*entry[:2]): entry[2] for entry in raw.get("aside", [])},
                children={
                    TableName(*entry[:2]): tuple(TableName(*child) for child in entry[2])
                    for entry in raw.get("children", [])
                },
                signals={int(signal[0]): str(signal[1]) for signal in raw.get("signals", [])},
                paused=raw.get("paused"),
                key_ids=raw.get("key_ids", {}),
                commit=_last_commit(raw.get("commit")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, ConfigurationError) as error:
            raise CorruptRecordError(f"a record is not a frontier: {error!r}") from error


def _last_commit(raw: Sequence[Any] | None) -> LastCommit | None:
    return None if raw is None else LastCommit(Lsn.parse(raw[0]), int(raw[1]))


def frontier_of(key: bytes | None, value: bytes) -> Frontier:
    """Return the frontier that a record of the frontier topic holds.

    Raises CorruptRecordError: capture did not write it: it is no frontier, or one of another slot.
    """
    frontier = Frontier.from_json(value)
    if frontier.slot.encode("utf-8") != key:
        raise CorruptRecordError(f'a record of key {key!r} holds slot "{frontier.slot}"')
    return frontier


def is_strange(key: bytes | None, value: bytes | None) -> bool:
    """Tell whether capture cannot have written a record to the frontier topic as a frontier."""
    if value is None:
        return not key
    try:
        frontier_of(key, value)
    except CorruptRecordError:
        return True
    return False


def missing(starts: Sequence[int], alive_from: Sequence[int]) -> Iterator[str]:
    """Yield the partitions of a compacted topic that may have lost live records.

    The cleaner leaves a partition's start where it is. DeleteRecords moves it, and so does a
    cleanup.policy that deletes, if only for a while. `starts` has per partition the first offset
    that is still there, `alive_from` the offset before which all is dead; 0 where it is not known.
    """
    for partition, (start, alive) in enumerate(zip_longest(starts, alive_from, fillvalue=0)):
        if start > alive:
            yield f"partition {partition} starts at offset {start}: older records were deleted"


@dataclass(frozen=True, slots=True)
class FrontierRecord:
    """A frontier with its place on its topic."""

    frontier: Frontier  # the cut
    offset: int  # of the record on the frontier topic
    # the broker's clock when it was appended, milliseconds since 1970: what the verdict counts
    # from, since the cleaner runs by the same clock
    appended_ms: int
