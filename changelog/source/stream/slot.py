"""Replication slots: create with an exported snapshot, inspect, check, drop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

import psycopg2
from psycopg2 import errorcodes, sql
from psycopg2.extras import LogicalReplicationConnection, ReplicationCursor

from changelog.contract.base.errors import (
    LookAgainError,
    SlotError,
    SourceError,
    UnavailableSourceError,
)
from changelog.contract.base.lsn import Lsn
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import connect_replication, row_of, source_error
from changelog.source.connect.open_transactions import naming_open_transactions
from changelog.source.connect.retention import (
    MISSING,
    SLOT,
    WAL_LSN,
    SlotStatus,
    slot_status,
    why_lost,
)
from changelog.source.connect.versions import for_version

PLUGIN = "pgoutput"
FAILOVER_SLOTS = 170_000  # the version from which on standbys may follow a slot

_STOP_LOOK_S = 0.2

_INSPECT = f"""
SELECT {SLOT}, w.lsn - confirmed_flush_lsn, w.lsn - restart_lsn, current_database(),
       pg_is_in_recovery()
  FROM pg_replication_slots s, (SELECT {WAL_LSN} AS lsn) w WHERE slot_name = %s
"""


class SlotBusyError(SlotError):
    """Another process reads the slot now; it may be a dying one of our own."""


_REFUSALS: dict[str, tuple[type[SourceError], str]] = {
    # Capture looks first: another one has made it since.
    errorcodes.DUPLICATE_OBJECT: (LookAgainError, ""),
    errorcodes.CONFIGURATION_LIMIT_EXCEEDED: (
        SlotError,
        "drop an unused slot, or raise max_replication_slots",
    ),
    errorcodes.OBJECT_IN_USE: (
        SlotBusyError,
        "end the other capture, or give this one its own slot",
    ),
    errorcodes.UNDEFINED_OBJECT: (SlotError, "a new slot needs a fresh snapshot"),
    errorcodes.OBJECT_NOT_IN_PREREQUISITE_STATE: (
        SlotError,
        "drop the slot; a new one needs a fresh snapshot",
    ),
}


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A new slot and the snapshot that meets it; lives until closed."""

    slot: str  # name of the slot
    # the snapshot holds transactions whose commit LSN is before it, the stream sends the others
    consistent_point: Lsn
    snapshot_name: str  # for `begin_snapshot`, in as many sessions as wanted
    # which made it, and has to read it when it is temporary
    connection: LogicalReplicationConnection = field(repr=False)

    def close(self) -> None:
        """Release the snapshot; sessions that have it keep it. A permanent slot stays."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def create_slot(
    dsn: str,
    slot: str,
    *,
    temporary: bool = False,
    failover: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> ExportedSnapshot:
    """Create a slot and export the snapshot of its consistent point.

    Make the publication first. Waits until the transactions that are open now have ended,
    and logs which.
    A `temporary` slot lives as long as the connection; one for `failover` (PostgreSQL 17) is
    followed by standbys that have sync_replication_slots. `stop` is asked meanwhile.

    Raises:
        UnavailableSourceError: stopped; there is no slot then.
        LookAgainError: the slot exists already.
        SlotError: there are no free ones.
    """
    connection = connect_replication(dsn)
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    how = "(SNAPSHOT 'export', FAILOVER true)" if failover else "EXPORT_SNAPSHOT"
    command = sql.SQL(f"CREATE_REPLICATION_SLOT {{}} {kind} pgoutput {how}")
    try:
        cursor = connection.cursor()
        with naming_open_transactions(dsn):
            _execute(cursor, command.format(sql.Identifier(slot)), stop)
        row = cursor.fetchone()
    except psycopg2.Error as error:
        connection.close()
        if stop() and error.pgcode == errorcodes.QUERY_CANCELED:
            raise UnavailableSourceError(
                f'stopped before the slot "{slot}" was made: transactions that were open before '
                "have not ended"
            ) from error
        raise slot_error(error, f'cannot create the slot "{slot}"') from error
    assert row is not None  # noqa: S101 - the command always gives one row
    return ExportedSnapshot(slot, Lsn.parse(row[1]), row[2], connection)


def _execute(cursor: ReplicationCursor, command: sql.Composed, stop: Callable[[], bool]) -> None:
    """Run a command in a thread, since libpq takes no signal while it waits; a stop cancels it."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            cursor.execute(command)
            ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - of the caller
            ended.set_exception(error)

    threading.Thread(target=run, name="slot", daemon=True).start()
    while not wait([ended], _STOP_LOOK_S).done:
        if stop():
            with suppress(psycopg2.Error):  # a server that is away ends the command by itself
                cursor.connection.cancel()
    ended.result()


def enable_failover(dsn: str, slot: str) -> None:
    """Make a slot that nobody reads a failover slot, for standbys (PostgreSQL 17).

    Raises SlotBusyError: a process reads it; SlotError: the server refuses.
    """
    connection = connect_replication(dsn)
    try:
        command = sql.SQL("ALTER_REPLICATION_SLOT {} (FAILOVER true)")
        connection.cursor().execute(command.format(sql.Identifier(slot)))
    except psycopg2.Error as error:
        raise slot_error(error, f'cannot let standbys follow the slot "{slot}"') from error
    finally:
        connection.close()


def inspect_slot(connection: Connection, slot: str) -> SlotStatus | None:
    """Look a slot up, or return None if there is none of that name."""
    failure = f'cannot inspect the slot "{slot}"'
    row = row_of(connection, failure, for_version(_INSPECT, connection.server_version), (slot,))
    if row is None:
        return None
    slot_row, lag, retained, here, standby = row
    return slot_status(slot_row, lag, retained, here=here, standby=standby)


def inspect_slots(connection: Connection, slots: Collection[str]) -> SlotStatus | None:
    """Look up slots that are read together, as one, or return None if none of them exists.

    What is wrong with one is wrong with all: that one is shown. One that is missing beside the
    others is lost. They are acknowledged one after the other, so the furthest tells how far they
    are, and the one behind how much WAL is kept.
    """
    by_name = {name: inspect_slot(connection, name) for name in slots}
    there = [status for status in by_name.values() if status is not None]
    if not there:
        return None
    together = {status.name: status.confirmed_flush_lsn for status in there}
    if gone := [name for name, status in by_name.items() if status is None]:
        return replace(
            there[0],
            name=gone[0],
            active=False,
            wal_status="lost",
            invalidation=MISSING,
            together=together,
        )
    worst = next((status for status in there if not _is_ready(status)), there[0])
    return replace(
        worst,
        together=together,
        restart_lsn=_all(min, [status.restart_lsn for status in there]),
        confirmed_flush_lsn=_all(max, [status.confirmed_flush_lsn for status in there]),
        lag_bytes=_all(max, [status.lag_bytes for status in there]),
        retained_bytes=_all(max, [status.retained_bytes for status in there]),
    )


def _is_ready(status: SlotStatus) -> bool:
    is_ours = status.plugin == PLUGIN and status.of_this_database and not status.two_phase
    return is_ours and not status.active and status.wal_status != "lost"


def _all(choose: Callable[[list[int]], int], some: list[Any]) -> Any:  # noqa: ANN401 - as given
    """Choose one of several values, or return None if any of them is unknown."""
    return None if None in some else choose(some)


def check_slot(status: SlotStatus) -> None:
    """Check that a slot can be streamed from here and now.

    Raises SlotBusyError: another process reads it; SlotError: it is of another plugin or database,
    sends prepared transactions, or PostgreSQL has dropped its WAL.
    """
    subject = f'slot "{status.name}"'
    if status.plugin != PLUGIN:
        kind = f'uses the plugin "{status.plugin}"' if status.plugin else "is a physical slot"
        raise SlotError(f"{subject} {kind}, not {PLUGIN}", hint="use another slot name")
    if not status.of_this_database:
        raise SlotError(
            f'{subject} belongs to the database "{status.database}"',
            hint="connect to that database, or use another slot name",
        )
    if status.is_followed:
        raise UnavailableSourceError(
            f"{subject} is the primary's, which this standby follows: it can be read once the "
            "standby is promoted",
            hint="connect to the primary; or give a capture of the standby its own slot",
        )
    if status.two_phase:
        raise SlotError(
            f"{subject} sends transactions when they are prepared (two_phase), and a log has them "
            "when they are committed",
            hint="use another slot name, and this one is made; or make one without two_phase",
        )
    check_idle(status)
    if status.wal_status == "lost" or status.confirmed_flush_lsn is None:
        raise SlotError(
            f"{subject} is lost: {why_lost(status.invalidation)}",
            hint="drop the slot; a new one needs a fresh snapshot",
        )


def check_idle(status: SlotStatus) -> None:
    """Check that nobody reads a slot; raises SlotBusyError if another process does."""
    if status.active:
        raise SlotBusyError(
            f'slot "{status.name}" is read by the server process {status.active_pid}',
            hint="end the other capture, or give this one its own slot",
        )


def drop_slot(connection: Connection, slot: str) -> None:
    """Drop a slot.

    Raises SlotBusyError: a process reads it; SlotError: it does not exist.
    """
    failure = f'cannot drop the slot "{slot}"'
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    except psycopg2.Error as error:
        raise slot_error(error, failure, lost=bool(connection.closed)) from error


def slot_error(error: psycopg2.Error, failure: str, *, lost: bool = False) -> SourceError:
    """Turn an error of a slot's command into ours; arguments as for `source_error`."""
    kind, hint = _REFUSALS.get(error.pgcode or "", (None, ""))
    if kind is None:
        return source_error(error, failure, lost=lost)
    message = (error.diag.message_primary or str(error)).strip()
    return kind(f"{failure}: {message}", hint=hint)
