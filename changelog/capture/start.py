"""How capture begins: resume, begin a fresh log, go on with one that was cut off, or refuse (pure).

The slot's position, the last frontier on the log, the progress of backfills beside it, and the
identity of the server must tell one story. Where they do not, going on would leave a hole that no
reader can see, so it is refused.

Before a slot is made, a record of progress says that it is going to be. So after a crash at any
moment there is either no slot, or one that the log explains.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from changelog.contract.backfill import BackfillRecord
from changelog.contract.errors import SlotError
from changelog.contract.frontier import Frontier
from changelog.contract.lsn import Lsn
from changelog.contract.relation import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """What the decision needs to know of an existing slot.

    Attributes:
        confirmed_flush_lsn: up to where PostgreSQL was told that it may forget.
        lost: whether the WAL that it needs is gone (`wal_status` is `lost`).
    """

    confirmed_flush_lsn: Lsn
    lost: bool


@dataclass(frozen=True, slots=True)
class Fresh:
    """Make a slot and copy every table under a new epoch."""

    epoch: int
    reason: str
    drop_slot: bool


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on with the first copy of every table, which was cut off: no frontier stands yet."""

    record: BackfillRecord


@dataclass(frozen=True, slots=True)
class Resume:
    """Stream on from the last frontier; copy only tables that the log does not have."""

    frontier: Frontier
    added: tuple[TableName, ...]


def decide(
    *,
    slot_name: str,
    frontier: Frontier | None,
    backfill: BackfillRecord | None,
    slot: SlotFacts | None,
    system_id: str,
    timeline: int,
    last_epoch: int,
    tables: Collection[TableName],
) -> Fresh | Continue | Resume:
    """Decide how to begin.

    Args:
        slot_name: the replication slot.
        frontier: the last one on the log, or None.
        backfill: the progress of backfills on the log, or None.
        slot: the slot on the server, or None.
        system_id: the server's identifier.
        timeline: its timeline.
        last_epoch: the highest epoch on the topics, 0 when they are empty.
        tables: what is to be captured.

    Raises:
        SlotError: these do not tell one story.
    """
    first = backfill
    if frontier is not None and (backfill is None or backfill.epoch <= frontier.epoch):
        first = None
    latest = first or frontier
    if latest is None:
        if slot is not None:
            raise SlotError(
                f'slot "{slot_name}" exists, but the log has no frontier of it',
                hint="it may belong to another program: choose another --slot, or drop it with "
                "`changelog slot drop` if it is yours",
            )
        return Fresh(last_epoch + 1, "first start", drop_slot=False)
    epoch = max(last_epoch, latest.epoch) + 1
    if latest.system_id != system_id:
        raise SlotError(
            f'the log of slot "{slot_name}" comes from PostgreSQL system {latest.system_id}, '
            f"this server is {system_id}",
            hint="choose another --slot and --topic-prefix for another server",
        )
    if slot is None:
        return Fresh(epoch, f'slot "{slot_name}" is gone', drop_slot=False)
    if slot.lost:
        return Fresh(epoch, f'the WAL of slot "{slot_name}" is lost', drop_slot=True)
    if latest.timeline != timeline:
        return Fresh(
            epoch, f"timeline {timeline} follows {latest.timeline} (failover)", drop_slot=True
        )
    if first is not None:
        if Lsn(0) < first.start_lsn < slot.confirmed_flush_lsn:
            raise _moved(slot_name, slot, f"past where its log began at {first.start_lsn}")
        return Continue(first)
    assert frontier is not None  # noqa: S101 - one of the two is there
    if slot.confirmed_flush_lsn > frontier.lsn:
        raise _moved(slot_name, slot, f"past the last frontier of the log at {frontier.lsn}")
    known = set(frontier.tables.values())
    return Resume(frontier, tuple(sorted(set(tables) - known)))


def _moved(slot_name: str, slot: SlotFacts, what: str) -> SlotError:
    return SlotError(
        f'slot "{slot_name}" stands at {slot.confirmed_flush_lsn}, {what}: changes between the '
        "two are lost",
        hint="drop the slot with `changelog slot drop`; the next start takes a fresh snapshot",
    )
