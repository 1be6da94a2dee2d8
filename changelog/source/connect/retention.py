"""Reads a slot and the WAL that it retains, in one query.

The versions that we know (10 to 18) have different columns in `pg_replication_slots`; the row is
taken as JSON, so that one query serves all and what a version lacks is null.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from changelog.contract.base.lsn import Lsn
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors
from changelog.source.connect.versions import for_version

WAL_LSN = """
CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END
"""
"""SQL: how far a server's slots can be decoded; a standby decodes what it has replayed."""

SLOT = "to_jsonb(s) || jsonb_build_object('wal_status', s.wal_status)"
"""SQL: a row `s` of `pg_replication_slots`; versions before 13 have no `wal_status` in it."""

# pg_settings hides from a role what it may not see, where current_setting raises an error.
_ASK = f"""
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       w.lsn,
       w.lsn - s.confirmed_flush_lsn,
       w.lsn - s.restart_lsn,
       {SLOT},
       (SELECT setting::bigint * 1048576 FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
       (SELECT setting FROM pg_settings WHERE name = 'data_directory'),
       (SELECT system_identifier FROM pg_control_system()),
       w.wal_bytes,
       extract(epoch FROM clock_timestamp() - w.stats_reset)
  FROM (SELECT wal_bytes, stats_reset, {WAL_LSN} AS lsn FROM pg_stat_wal) w
  LEFT JOIN pg_replication_slots s ON s.slot_name = %s
"""
WAL_REMOVED = "wal_removed"
MISSING = "missing"
"""Of one of several slots that are read together, in the place of the server's own reasons."""

_REASONS = {
    WAL_REMOVED: "its WAL was removed, which max_slot_wal_keep_size limits",
    "idle_timeout": "nobody read it for idle_replication_slot_timeout",
    "rows_removed": "rows of the catalogue that it needs were removed",
    MISSING: "it is gone, and others that are read with it are there",
    "wal_level_insufficient": "wal_level was not logical for a while",
}
_STATES = ("lost", "unreserved", "extended", "reserved")
_LAG, _RETAINED, _FOUND = 2, 3, 4  # of the answer
_SYSTEM_ID = struct.Struct("=q")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    """A slot at one moment, as `pg_replication_slots` shows it."""

    name: str
    active: bool  # whether a process reads it
    active_pid: int | None  # that process, as the server numbers it
    wal_status: str  # `reserved`, `extended`, `unreserved` or `lost`
    # why the server has given it up; None while it has not, or where the version does not say
    # (before 16)
    invalidation: str | None
    inactive_since: str | None  # since when nobody reads it, ISO 8601; None before 17
    restart_lsn: Lsn | None  # from where the server keeps WAL; None when it has been lost
    confirmed_flush_lsn: Lsn | None  # what has been acknowledged
    lag_bytes: int | None  # WAL written since `confirmed_flush_lsn`
    retained_bytes: int | None  # WAL that the server keeps for the slot
    # WAL that may still be written before the slot is in danger; None without a limit
    # (`max_slot_wal_keep_size`), or when the slot is lost
    safe_bytes: int | None
    temporary: bool = False  # whether it goes with the connection of the process that reads it
    plugin: str | None = None  # its output plugin; None of a physical slot
    database: str | None = None  # which it decodes
    of_this_database: bool = False  # whether that is the one that was asked
    slot_type: str = "logical"  # `logical` or `physical`
    # the oldest transaction whose dead rows VACUUM keeps for it; None for none
    xmin: int | None = None
    catalog_xmin: int | None = None  # the same of the catalogue's rows, which decoding reads
    # whether standbys may follow it; None before PostgreSQL 17
    survives_failover: bool | None = None
    # whether the server is a standby that keeps it as its primary's: it can be read once the server
    # is promoted
    is_followed: bool = False
    # whether it sends transactions when they are prepared, before anybody has committed them
    two_phase: bool = False
    # of slots that are looked up as one, where each stands that is there
    together: Mapping[str, Lsn | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The server at one moment."""

    now_us: int  # its clock, microseconds since 1970
    wal_lsn: Lsn  # the end of its WAL
    slot: SlotStatus | None  # the slot, or None when there is none
    keep_limit_bytes: int | None  # `max_slot_wal_keep_size`; None without a limit
    # free space where its WAL lies; None when it is not on this machine, or not for us to see.
    # PostgreSQL itself does not tell
    disk_free_bytes: int | None
    wal_bytes: int  # WAL that it has written since its statistics began
    wal_seconds: float | None  # how long ago that was; None when it does not say


def ask_source(connection: Connection, slot: str, groups: Collection[str] = ()) -> SourceState:
    """Ask the server; a slot that is read with the slots of `groups` has the state of the worst.

    Raises UnavailableSourceError: the connection is lost; SourceError: the server refuses, as a
    standby does.
    """
    failure = f'cannot inspect the slot "{slot}"'
    with source_errors(connection, failure), connection.cursor() as cursor:
        ask = for_version(_ASK, connection.server_version)
        cursor.execute(ask, (slot,))
        row = cursor.fetchone()
        others = []
        for name in groups:
            cursor.execute(ask, (name,))
            others.append(cursor.fetchone())
    assert row is not None  # noqa: S101 - pg_stat_wal always has its one row
    now_us, wal, _, _, _, limit, folder, system_id, wal_bytes, seconds = row
    return SourceState(
        now_us=int(now_us),
        wal_lsn=Lsn.parse(wal),
        slot=_worst([_slot_of(slot_row) for slot_row in (row, *others)]),
        keep_limit_bytes=None if limit is None or limit < 0 else int(limit),
        disk_free_bytes=None if folder is None else free_bytes(Path(folder), system_id),
        wal_bytes=int(wal_bytes),
        wal_seconds=None if seconds is None else float(seconds),
    )


def _slot_of(row: Sequence[Any] | None) -> SlotStatus | None:
    if row is None or row[_FOUND] is None:
        return None
    return slot_status(row[_FOUND], row[_LAG], row[_RETAINED])


def _worst(slots: Sequence[SlotStatus | None]) -> SlotStatus | None:
    """Return of slots that are read together the one that is in the worst state."""
    there = [slot for slot in slots if slot is not None]
    if not there or len(slots) == 1:
        return slots[0]
    if len(there) < len(slots):
        return replace(there[0], wal_status="lost", invalidation=MISSING, active=False)
    states = [*_STATES]
    return min(
        there,
        key=lambda slot: (
            states.index(slot.wal_status) if slot.wal_status in states else len(states),
            slot.active,
            -(slot.retained_bytes or 0),
        ),
    )


def slot_status(
    row: Mapping[str, Any], lag: object, retained: object, *, here: str = "", standby: bool = False
) -> SlotStatus:
    """Read a row of `pg_replication_slots`, as JSON, of any version that we know.

    `here` is the database that was asked, of a server that may be a standby.
    """
    return SlotStatus(
        name=row["slot_name"],
        active=row["active"],
        active_pid=row["active_pid"],
        wal_status=row["wal_status"] or "lost",
        invalidation=_invalidation(row),
        inactive_since=row.get("inactive_since"),
        restart_lsn=_lsn(row["restart_lsn"]),
        confirmed_flush_lsn=_lsn(row["confirmed_flush_lsn"]),
        lag_bytes=_number(lag),
        retained_bytes=_number(retained),
        safe_bytes=row.get("safe_wal_size"),
        temporary=row.get("temporary", False),
        plugin=row.get("plugin"),
        database=row.get("database"),
        of_this_database=row.get("database") == here,
        slot_type=row.get("slot_type", "logical"),
        xmin=_number(row.get("xmin")),
        catalog_xmin=_number(row.get("catalog_xmin")),
        survives_failover=row.get("failover"),
        is_followed=standby and bool(row.get("synced")),
        two_phase=bool(row.get("two_phase")),
    )


def _number(text: object) -> int | None:
    return None if text is None else int(str(text))


def _invalidation(row: Mapping[str, Any]) -> str | None:
    """Return the reason why the server invalidated a slot, in version 17's words if they fit.

    Version 16 has one flag for all reasons; only WAL that was removed leaves no `restart_lsn`.
    """
    reason = row.get("invalidation_reason")
    if reason is None and row.get("conflicting"):
        return WAL_REMOVED if row["restart_lsn"] is None else "conflicting with recovery"
    return None if reason is None else str(reason)


def why_lost(invalidation: str | None) -> str:
    """Return for people why a slot is lost; before 16 only WAL can be the reason.

    >>> why_lost("idle_timeout")
    'nobody read it for idle_replication_slot_timeout'
    """
    return _REASONS.get(invalidation or WAL_REMOVED, invalidation or "")


def free_bytes(folder: Path, system_id: int) -> int | None:
    """Return the free space of the disk of `pg_wal`; None unless the server's files are here.

    That a folder of this name exists proves nothing, the server may run elsewhere or in a
    container: its control file must name the same cluster.
    """
    try:
        with (folder / "global" / "pg_control").open("rb") as control:
            (control_id,) = _SYSTEM_ID.unpack(control.read(_SYSTEM_ID.size))
        return shutil.disk_usage(folder / "pg_wal").free if control_id == system_id else None
    except (OSError, struct.error):
        return None


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)
