"""Which PostgreSQL this is, and whether it is set up for capture."""

from __future__ import annotations

from dataclasses import dataclass

from changelog.contract.base.errors import SourceError
from changelog.contract.base.lsn import Lsn
from changelog.source.connect.connect import Connection, connect_replication, source_errors

_OLDEST = 140_000  # pgoutput sends logical messages since 14
_READY = """
SELECT current_setting('wal_level'), pg_is_in_recovery(), current_setting('server_encoding')
"""


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """What tells one cluster's history from another's.

    Attributes:
        system_id: set by initdb, kept by copies and standbys.
        timeline: grows with each promotion.
        database: that the connection string names.
    """

    system_id: str
    timeline: int
    database: str


def identify(dsn: str) -> SystemIdentity:
    """Ask the server who it is; also proves that the role may replicate."""
    connection = connect_replication(dsn)
    try:
        with source_errors(connection, "cannot identify the server"):
            cursor = connection.cursor()
            cursor.execute("IDENTIFY_SYSTEM")
            row = cursor.fetchone()
    finally:
        connection.close()
    assert row is not None  # noqa: S101 - the command always gives one row
    return SystemIdentity(str(row[0]), int(row[1]), str(row[3]))


def check_ready(connection: Connection) -> None:
    """Check version and settings.

    Raises:
        SourceError: the first thing that capture cannot work with, and how to change it.
    """
    version = connection.server_version
    if version < _OLDEST:
        raise SourceError(
            f"PostgreSQL {version // 10_000} is too old", hint="capture needs 14 or newer"
        )
    with source_errors(connection, "cannot read settings"), connection.cursor() as cursor:
        cursor.execute(_READY)
        wal_level, standby, encoding = cursor.fetchone() or ("", False, "")
    if standby:
        raise SourceError("the server is a standby", hint="connect to the primary")
    if wal_level != "logical":
        raise SourceError(
            f"wal_level is {wal_level}, and capture needs logical",
            hint="ALTER SYSTEM SET wal_level = logical, then restart PostgreSQL",
        )
    if encoding == "SQL_ASCII":
        raise SourceError(
            "the database has the encoding SQL_ASCII: its text has no known meaning",
            hint="move the data to a database with an encoding, such as UTF8",
        )


def sender_timeout_s(connection: Connection) -> float:
    """Return after how long the server gives up a replication connection; 0 when never."""
    with source_errors(connection, "cannot read settings"), connection.cursor() as cursor:
        cursor.execute("SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'")
        (milliseconds,) = cursor.fetchone() or (0,)
    return float(milliseconds) / 1000


def current_lsn(connection: Connection) -> Lsn:
    """Return the position up to which WAL has been inserted now: later commits lie at or after."""
    with source_errors(connection, "cannot read the WAL position"), connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        (text,) = cursor.fetchone() or ("",)
    return Lsn.parse(text)


def current_snapshot(connection: Connection) -> str:
    """Return what a snapshot taken now sees, as `pg_current_snapshot()` says it."""
    what = "cannot take a snapshot"
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_snapshot()::text")
        (text,) = cursor.fetchone() or ("",)
    return str(text)
