"""How capture begins: resume, take a fresh snapshot, or refuse (pure).

The slot's position, the last frontier on the log and the identity of the server must tell one
story. Where they do not, going on would leave a hole that no reader can see, so it is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

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
    """Take a snapshot of every table under a new epoch."""

    epoch: int
    reason: str
    drop_slot: bool


@dataclass(frozen=True, slots=True)
class Resume:
    """Stream on from the last frontier; snapshot only tables that the log does not have."""

    frontier: Frontier
    added: tuple[TableName, ...]


def decide(
    *,
    slot_name: str,
    frontier: Frontier | None,
    slot: SlotFacts | None,
    system_id: str,
    timeline: int,
    last_epoch: int,
    tables: Collection[TableName],
) -> Fresh | Resume:
    """Decide how to begin.

    Args:
        slot_name: the replication slot.
        frontier: the last one on the log, or None.
        slot: the slot on the server, or None.
        system_id: the server's identifier.
        timeline: its timeline.
        last_epoch: the highest epoch on the topics, 0 when they are empty.
        tables: what is to be captured.

    Raises:
        SlotError: the three do not tell one story.
    """
    epoch = max(last_epoch, frontier.epoch if frontier else 0) + 1
    if frontier is None:
        if slot is not None:
            raise SlotError(
                f'slot "{slot_name}" exists, but the log has no frontier of it',
                hint="it may belong to another program: choose another --slot, or drop it with "
                "`changelog slot drop` if it is yours",
            )
        return Fresh(epoch, "first start", drop_slot=False)
    if frontier.system_id != system_id:
        raise SlotError(
            f'the log of slot "{slot_name}" comes from PostgreSQL system {frontier.system_id}, '
            f"this server is {system_id}",
            hint="choose another --slot and --topic-prefix for another server",
        )
    if slot is None:
        return Fresh(epoch, f'slot "{slot_name}" is gone', drop_slot=False)
    if slot.lost:
        return Fresh(epoch, f'the WAL of slot "{slot_name}" is lost', drop_slot=True)
    if frontier.timeline != timeline:
        return Fresh(
            epoch, f"timeline {timeline} follows {frontier.timeline} (failover)", drop_slot=True
        )
    if slot.confirmed_flush_lsn > frontier.lsn:
        raise SlotError(
            f'slot "{slot_name}" stands at {slot.confirmed_flush_lsn}, past the last frontier of '
            f"the log at {frontier.lsn}: changes between the two are lost",
            hint="drop the slot with `changelog slot drop`; the next start takes a fresh snapshot",
        )
    known = set(frontier.tables.values())
    return Resume(frontier, tuple(sorted(set(tables) - known)))
