"""Which PostgreSQL this is, and whether it is set up for capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from psycopg2.extras import LogicalReplicationConnection

from changelog.contract.base.errors import SourceError
from changelog.contract.base.lsn import Lsn
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import connect_replication, row_of, source_errors
from changelog.source.connect.versions import OLDEST, for_version

_WAL_END = """
SELECT CASE WHEN pg_is_in_recovery()
            THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
            ELSE pg_current_wal_insert_lsn() END
"""
_SNAPSHOT = "SELECT pg_current_snapshot()::text"
IN_RECOVERY = "SHOW in_hot_standby"
"""Asks whether a server is a standby; takes no snapshot, from 14 on."""
_READY = """
SELECT current_setting('wal_level'), current_setting('server_encoding')
"""


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """Identity of a cluster and its timeline."""

    system_id: str  # set by initdb, kept by copies and standbys
    timeline: int  # grows with each promotion
    database: str  # that the connection string names
    # where earlier timelines of this history ended, by their numbers
    ended: Mapping[int, Lsn] = field(default_factory=dict)


def identify(dsn: str) -> SystemIdentity:
    """Ask the server who it is; also proves that the role may replicate."""
    connection = connect_replication(dsn)
    try:
        with source_errors(connection, "cannot identify the server"):
            cursor = connection.cursor()
            cursor.execute("IDENTIFY_SYSTEM")
            row = cursor.fetchone()
            assert row is not None  # noqa: S101 - the command always gives one row
            ended = _history(connection, int(row[1]))
    finally:
        connection.close()
    return SystemIdentity(str(row[0]), int(row[1]), str(row[3]), ended)


def _history(connection: LogicalReplicationConnection, timeline: int) -> dict[int, Lsn]:
    if timeline == 1:
        return {}  # it has no history, nor a file of it
    cursor = connection.cursor()
    cursor.execute(f"TIMELINE_HISTORY {timeline:d}")
    row = cursor.fetchone()
    return {} if row is None else parse_history(str(row[1]))


def parse_history(content: str) -> dict[int, Lsn]:
    r"""Return the end of each timeline, from a timeline's history file.

    >>> parse_history("1\t0/3000148\tno recovery target specified\n")
    {1: Lsn(0/3000148)}
    """
    lines = (line.split() for line in content.splitlines())
    return {
        int(columns[0]): Lsn.parse(columns[1])
        for columns in lines
        if columns and columns[0].isdigit()
    }


def check_ready(connection: Connection) -> None:
    """Check version and settings.

    Raises SourceError: the first thing that capture cannot work with, and how to change it.
    """
    version = connection.server_version
    if version < OLDEST:
        raise SourceError(
            f"PostgreSQL {version // 10_000} is too old", hint="capture needs 10 or newer"
        )
    wal_level, encoding = row_of(connection, "cannot read settings", _READY)
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
    query = "SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'"
    (milliseconds,) = row_of(connection, "cannot read settings", query) or (0,)
    return float(milliseconds) / 1000


def current_lsn(connection: Connection) -> Lsn:
    """Return the position up to which WAL has been inserted now: later commits are at or after it.

    Of a standby it is what it has received: a commit may be seen there a moment before the standby
    says that it is replayed.
    """
    (text,) = row_of(connection, "cannot read the WAL position", _WAL_END)
    return Lsn.parse(text)


def in_recovery(connection: Connection) -> bool:
    """Tell whether the server is a standby now; takes no snapshot."""
    query = for_version(IN_RECOVERY, connection.server_version)
    (answer,) = row_of(connection, "cannot ask the server", query)
    return bool(answer == "on")


def current_snapshot(connection: Connection) -> str:
    """Return `pg_current_snapshot()`: the transactions that a snapshot taken now sees."""
    query = for_version(_SNAPSHOT, connection.server_version)
    (text,) = row_of(connection, "cannot take a snapshot", query)
    return str(text)
