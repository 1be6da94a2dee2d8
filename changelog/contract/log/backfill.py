"""Progress of backfills: a record on the frontier topic, under a key of its own.

A backfill writes the rows of a table that the log does not have, or has from an attempt that is
over. It goes on for as long as it takes while the stream goes on too, so what is done stands on the
log: a capture that was killed goes on with what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from changelog.contract.base.errors import ConfigurationError, CorruptRecordError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.scope import WHOLE, Scope
from changelog.contract.rows.relation import TableName

_MARK = "#backfill"  # no character of a slot's name


def backfill_key(slot: str) -> bytes:
    """Return the key of a slot's progress on the frontier topic."""
    return f"{slot}{_MARK}".encode()


def is_frontier_key(key: bytes) -> bool:
    """Tell whether a record of the frontier topic is a frontier."""
    return b"#" not in key


@dataclass(frozen=True, slots=True)
class RowStore:
    """A holder of rows: a table, or one leaf of a partitioned one."""

    name: TableName
    filenode: int  # the file that holds its rows; another one after a rewrite or a truncation
    pages: int  # how many there were when the chunks were cut


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBackfill:
    """Progress of the backfill of one table."""

    table: TableName
    reason: str  # why it is copied
    # the first position that will be alive; None before its first fence
    since: Position | None = None
    stale: bool = True  # whether its topic held records before that, some of which may be dead
    scope: Scope = WHOLE  # what of the table is copied
    columns: str = ""  # changes with every change of the table's columns
    stores: tuple[RowStore, ...] = ()  # what holds its rows
    blocks: int = 0  # pages of a chunk
    # the chunks that are on the log: ranges of their numbers, half-open
    done: tuple[tuple[int, int], ...] = ()
    rows: int = 0  # how many rows these had
    # position of the last copied rows; no state before it can be read from the topic
    high: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    topic_id: str = ""  # Kafka's id of the topic
    # per partition where the topic ended when `since` was taken: what is alive lies behind
    alive_from: tuple[int, ...] = ()
    # per partition the end offset at `BackfillRecord.lsn`; empty when not known
    ends: tuple[int, ...] = ()
    # whether the log could not go on with the table as it was: no frontier from then on speaks of
    # it until it is whole again, though older ones do
    is_excluded: bool = False
    # what is wrong with a table that is not copied until somebody asks for it; empty for one that
    # is being copied
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as the record stores it."""
        return {
            "table": list(self.table),
            "reason": self.reason,
            "since": None if self.since is None else str(self.since),
            "stale": self.stale,
            "scope": self.scope.to_json(),
            "columns": self.columns,
            "stores": [[*store.name, store.filenode, store.pages] for store in self.stores],
            "blocks": self.blocks,
            "done": [list(chunk) for chunk in self.done],
            "rows": self.rows,
            "high": str(self.high),
            "topic_id": self.topic_id,
            "alive_from": list(self.alive_from),
            "ends": list(self.ends),
            "set_aside": self.is_excluded,
            "fault": self.fault,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave."""
        return cls(
            table=TableName(*raw["table"]),
            reason=raw["reason"],
            since=None if raw["since"] is None else Position.parse(raw["since"]),
            stale=raw["stale"],
            scope=Scope.from_json(raw["scope"]),
            columns=raw["columns"],
            stores=tuple(RowStore(TableName(*store[:2]), *store[2:]) for store in raw["stores"]),
            blocks=raw["blocks"],
            done=tuple((start, end) for start, end in raw["done"]),
            rows=raw["rows"],
            high=Lsn.parse(raw["high"]),
            topic_id=raw["topic_id"],
            alive_from=tuple(raw.get("alive_from", ())),
            ends=tuple(raw["ends"]),
            is_excluded=raw.get("set_aside", False),
            fault=raw.get("fault", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRecord:
    """The backfills of a slot that are not whole yet."""

    slot: str  # name of the replication slot
    epoch: int  # of the positions
    system_id: str  # identifier of the PostgreSQL cluster
    timeline: int  # its timeline
    # where the slot began; 0 while it is being made
    start_lsn: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    # all streamed records before it lie before the tables' `ends`
    lsn: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    # per topic how far its table is
    tables: Mapping[str, TableBackfill] = field(default_factory=dict)
    # the groups of tables that have a slot of their own, by name. The numbers of rows in a
    # transaction follow from them, so they are the same for all of the epoch
    groups: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the value of the record on the frontier topic."""
        return json.dumps(
            {
                "slot": self.slot,
                "epoch": self.epoch,
                "system_id": self.system_id,
                "timeline": self.timeline,
                "start_lsn": str(self.start_lsn),
                "lsn": str(self.lsn),
                "tables": {topic: table.to_json() for topic, table in self.tables.items()},
                **({"groups": [*self.groups]} if self.groups else {}),
            },
            separators=(",", ":"),
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the value of a record on the frontier topic.

        Raises CorruptRecordError: the text is not the progress of backfills.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(
                slot=raw["slot"],
                epoch=raw["epoch"],
                system_id=raw["system_id"],
                timeline=raw["timeline"],
                start_lsn=Lsn.parse(raw["start_lsn"]),
                lsn=Lsn.parse(raw["lsn"]),
                tables={
                    topic: TableBackfill.from_json(table) for topic, table in raw["tables"].items()
                },
                groups=tuple(raw.get("groups", ())),
            )
        except (ValueError, KeyError, TypeError, AttributeError, ConfigurationError) as error:
            raise CorruptRecordError(f"a record is no progress of backfills: {error!r}") from error


def copies_of(record: BackfillRecord | None) -> Collection[TableBackfill]:
    """Return the tables that a record speaks of; none without a record."""
    return record.tables.values() if record is not None else ()


def ranges_of(numbers: set[int]) -> tuple[tuple[int, int], ...]:
    """Return numbers as ascending half-open ranges.

    >>> ranges_of({4, 0, 1})
    ((0, 2), (4, 5))
    """
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    return tuple(ranges)
