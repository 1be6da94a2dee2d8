"""Decide how capture starts: resume, fresh log, continue a first copy, or refuse (pure).

The slot's position, the last frontier on the log, the progress of backfills and the identity of the
server must be consistent. If they are not, continuing would leave a gap that no reader can see, so
the start is refused.

Before a slot is created, a progress record announces it. So after a crash at any moment there is
either no slot, or one that the log explains.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from changelog.contract.base.errors import ConfigurationError, SlotError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.backfill import BackfillRecord, copies_of
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """Facts about an existing slot that the decision needs."""

    confirmed_flush_lsn: Lsn  # the acknowledged LSN: PostgreSQL may drop the WAL before it
    lost: str = ""  # why it is unusable (`wal_status` is `lost`), or empty
    # the names of the existing slots, if groups of tables have slots of their own
    there: tuple[str, ...] = ()
    furthest: str = ""  # the name of the slot with the given `confirmed_flush_lsn`


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The settings about where capture starts."""

    skip_snapshot: bool = False  # copy no table that is missing on the log
    # where to start the stream of a slot that somebody else created; or None
    start_lsn: Lsn | None = None
    # the slot ends with its connection, so each attempt is a fresh log
    temporary: bool = False
    makes_slot: bool = True  # whether a slot may be created; otherwise it must exist
    # the present end of the server's WAL
    wal_end: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    groups: tuple[str, ...] = ()  # the groups of tables that have a slot of their own


NOTHING_ASKED = Wish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Where the log's timeline and the server's parted."""

    # where the log's timeline ended in the server's history, or None if it is not part of it
    at: Lsn | None = None
    # how far the log goes: its last frontier, or records after it
    reached: Lsn = Lsn(0)  # noqa: RUF009 - immutable


UNKNOWN_FORK = Fork()


@dataclass(frozen=True, slots=True)
class Fresh:
    """Make a slot and copy every table under a new epoch."""

    epoch: int
    reason: str
    drop_slot: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """Begin a fresh log at an LSN of a slot that somebody else created."""

    epoch: int
    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Continue:
    """Continue the interrupted first copy of every table: the log has no frontier yet."""

    record: BackfillRecord


@dataclass(frozen=True, slots=True)
class Resume:
    """Stream from the last frontier; copy only tables that are missing on the log."""

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
    wish: Wish = NOTHING_ASKED,
    fork: Fork = UNKNOWN_FORK,
    undone: str = "",
) -> Fresh | Adopt | Continue | Resume:
    """Decide how capture starts.

    `last_epoch` is the highest on the topics, 0 if they are empty. `fork` says where different
    timelines parted. `undone` is the reason why a server of the same timeline has lost changes that
    are on the log, or empty.

    Raises SlotError: log, slot and server are inconsistent; ConfigurationError: the settings ask
    for a start that is not possible.
    """
    first_copy = backfill
    if frontier is not None and (backfill is None or backfill.epoch <= frontier.epoch):
        first_copy = None
    latest = first_copy or frontier
    epoch = max(last_epoch, latest.epoch if latest is not None else 0) + 1
    if latest is not None and latest.system_id != system_id:
        raise SlotError(
            f'the log of slot "{slot_name}" comes from PostgreSQL system {latest.system_id}, '
            f"this server is {system_id}",
            hint="choose another --slot and --topic-prefix for another server",
        )
    if wish.temporary and slot is not None:
        raise ConfigurationError(
            f'slot "{slot_name}" exists and is not temporary',
            hint="choose another --slot and --topic-prefix for an experiment",
        )
    if latest is None:
        return _first_epoch(slot_name, slot, epoch, wish)
    if slot is None:
        reason = f'{"temporary " if wish.temporary else ""}slot "{slot_name}" is gone'
        return _fresh(slot_name, epoch, reason, wish)
    _check_groups(slot_name, latest, backfill, wish)
    reason = undone
    if slot.lost:
        reason = f'slot "{slot_name}" is lost: {slot.lost}'
    elif latest.timeline != timeline and (parted := _parted(first_copy, backfill, frontier, fork)):
        reason = f"timeline {timeline} follows {latest.timeline} (failover), {parted}"
    if reason:
        return _fresh(slot_name, epoch, reason, wish, drop_slot=True)
    if first_copy is not None:
        if Lsn(0) < first_copy.start_lsn < slot.confirmed_flush_lsn:
            raise _moved(slot_name, slot, f"past where its log began at {first_copy.start_lsn}")
        _check_continued(slot_name, first_copy, wish)
        return Continue(first_copy)
    assert frontier is not None  # noqa: S101 - one of the two is there
    if slot.confirmed_flush_lsn > frontier.lsn:
        raise _moved(slot_name, slot, f"past the last frontier of the log at {frontier.lsn}")
    _check_resumed(slot_name, frontier, backfill, wish)
    logged = set(frontier.tables.values())
    return Resume(frontier, tuple(sorted(set(tables) - logged)))


def _check_groups(
    slot_name: str,
    latest: Frontier | BackfillRecord,
    backfill: BackfillRecord | None,
    wish: Wish,
) -> None:
    """Check that the groups of tables are the same as when the log was begun.

    The groups determine the sequence numbers of a transaction's rows. With other groups, rows that
    are sent again after a crash would get numbers of different rows on the log.
    """
    is_same = backfill is not None and backfill.epoch == latest.epoch
    groups = backfill.groups if backfill is not None and is_same else ()
    if groups == wish.groups:
        return
    had, has = (", ".join(names) or "none" for names in (groups, wish.groups))
    raise SlotError(
        f'the log of slot "{slot_name}" was begun with other groups of tables: {had}; '
        f"the settings name {has}",
        hint="name the same groups; or drop the slots with `changelog slot drop`: the next start "
        "copies every table anew",
    )


def _parted(
    first_copy: BackfillRecord | None,
    backfill: BackfillRecord | None,
    frontier: Frontier | None,
    fork: Fork,
) -> str:
    """Return the reason why a failover ends the log, or "" if the server has all its changes.

    Both histories are equal up to the fork. So a log that ends before the fork is also a log of the
    new timeline; a longer one holds changes that the server has lost.
    """
    if fork.at is None:
        return "and the server's history does not have the log's"
    if fork.reached > fork.at:
        return f"which parted at {fork.at}, and the log goes to {fork.reached}"
    same = backfill is not None and frontier is not None and backfill.epoch == frontier.epoch
    copying = (
        [copy for copy in copies_of(backfill) if not copy.fault and copy.since] if same else []
    )
    if first_copy is not None or copying:
        return "in the middle of a copy of tables"
    return ""


def _first_epoch(slot_name: str, slot: SlotFacts | None, epoch: int, wish: Wish) -> Fresh | Adopt:
    """Decide the start without a log: create a slot, or adopt the existing one."""
    if slot is None:
        return _fresh(slot_name, epoch, "first start", wish)
    slot_lsn = slot.confirmed_flush_lsn
    if wish.start_lsn is None and not wish.makes_slot:
        return Adopt(epoch, slot_lsn)
    if wish.groups:
        names = ", ".join(f'"{name}"' for name in slot.there)
        noun, whom = ("slots", "them") if len(slot.there) > 1 else ("slot", "it")
        raise SlotError(
            f'the log has no frontier of slot "{slot_name}", but there is already the {noun} '
            f"{names}",
            hint=f"another program may use {whom}: choose another --slot, or drop {whom} with "
            "`changelog slot drop`",
        )
    if wish.start_lsn is None:
        raise SlotError(
            f'slot "{slot_name}" exists, but the log has no frontier of it',
            hint="it may belong to another program: choose another --slot, or drop it with "
            "`changelog slot drop` if it is yours; to stream from its position, say "
            f"--start-lsn {slot_lsn}",
        )
    return Adopt(epoch, first_place(slot_name, slot_lsn, wish.start_lsn, wish.wal_end))


def first_place(slot_name: str, slot_lsn: Lsn, first_lsn: Lsn | None, wal_end: Lsn) -> Lsn:
    """Return the LSN at which the stream of an adopted slot starts.

    `slot_lsn` is the slot's position, `first_lsn` is `--start-lsn`.

    Raises ConfigurationError: the stream cannot start at `first_lsn`.
    """
    if first_lsn is None:
        return slot_lsn
    if first_lsn < slot_lsn:
        raise ConfigurationError(
            f'--start-lsn {first_lsn} is before {slot_lsn}, the position of slot "{slot_name}"',
            hint=f"PostgreSQL may have dropped the WAL in between: begin at {slot_lsn} or later",
        )
    if first_lsn > wal_end:
        raise ConfigurationError(
            f"--start-lsn {first_lsn} is after the end of the WAL at {wal_end}",
            hint="is it an LSN of another server?",
        )
    return first_lsn


def _fresh(
    slot_name: str, epoch: int, reason: str, wish: Wish, *, drop_slot: bool = False
) -> Fresh:
    if not wish.makes_slot:
        drops = f"SELECT pg_drop_replication_slot('{slot_name}'); " if drop_slot else ""
        raise ConfigurationError(
            f'slot "{slot_name}" would have to be made ({reason}), and may not (--no-create-slot)',
            hint=f"make the publication, and then the slot: {drops}"
            f"SELECT pg_create_logical_replication_slot('{slot_name}', 'pgoutput')",
        )
    if wish.start_lsn is not None:
        raise ConfigurationError(
            f"--start-lsn {wish.start_lsn} is not possible: {reason}, and a new slot begins "
            "at the end of the WAL",
            hint="leave --start-lsn out; or make the publication and then the slot yourself, "
            "before what is to be streamed: pg_create_logical_replication_slot(…, 'pgoutput')",
        )
    return Fresh(epoch, reason, drop_slot=drop_slot)


def _check_continued(slot_name: str, first_copy: BackfillRecord, wish: Wish) -> None:
    if wish.start_lsn not in {None, first_copy.start_lsn}:
        raise _began_elsewhere(slot_name, first_copy.start_lsn, wish)
    if wish.skip_snapshot and any(table.since is not None for table in first_copy.tables.values()):
        raise ConfigurationError(
            f'the first snapshot of slot "{slot_name}" has begun',
            hint="let it go on without --skip-snapshot; or drop the slot with `changelog slot "
            "drop`: the next start is a fresh log",
        )


def _check_resumed(
    slot_name: str, frontier: Frontier, backfill: BackfillRecord | None, wish: Wish
) -> None:
    """Check that the log began at `--start-lsn`: the same command may be run again."""
    began = Lsn(0)
    if backfill is not None and backfill.epoch == frontier.epoch:
        began = backfill.start_lsn
    if wish.start_lsn is not None and wish.start_lsn != began:
        raise _began_elsewhere(slot_name, began, wish)


def _began_elsewhere(slot_name: str, began: Lsn, wish: Wish) -> ConfigurationError:
    there = f"began at {began}" if began else "has begun"
    return ConfigurationError(
        f'the log of slot "{slot_name}" {there}, not at --start-lsn {wish.start_lsn}',
        hint="leave --start-lsn out to continue; for a fresh log choose another --slot and "
        "--topic-prefix",
    )


def _moved(slot_name: str, slot: SlotFacts, place: str) -> SlotError:
    return SlotError(
        f'slot "{slot.furthest or slot_name}" is at {slot.confirmed_flush_lsn}, {place}: '
        "changes between the two are lost",
        hint="drop the slot with `changelog slot drop`; the next start takes a fresh snapshot",
    )
