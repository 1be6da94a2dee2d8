"""A physical standby as the source, and its primary: where what has to be written is written.

PostgreSQL 16 and later decode on a standby what it has replayed. Nothing can be written there, so
the marks of copies, the publication and whatever else alters the database go to the primary, and
come to the standby in the WAL.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2

from changelog.contract.base.errors import ConfigurationError, SourceError, UnavailableSourceError
from changelog.contract.base.lsn import Lsn
from changelog.postgres.connection import Connection
from changelog.runtime.process.beside import working_beside
from changelog.source.connect.connect import connect, row_of
from changelog.source.connect.system import (
    SystemIdentity,
    check_ready,
    current_lsn,
    identify,
    in_recovery,
)

log = logging.getLogger("changelog.capture")

_OLDEST = 160_000
_SETTINGS = """
SELECT current_setting('hot_standby_feedback')::bool,
       coalesce(current_setting('primary_slot_name', true), '')
"""
_REPLAYED = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
_LOG_RUNNING = "SELECT pg_log_standby_snapshot()"

REPLAY_S, _NAP_S = 60.0, 0.1
_LOG_EVERY_S = 0.5

HINT = "name it with --primary (`primary` under [postgres])"


def check_source(connection: Connection) -> None:
    """Check version and settings of a source, be it a standby.

    Raises SourceError: the first thing that capture cannot work with, and how to change it.
    """
    check_ready(connection)
    if in_recovery(connection):
        check_standby(connection)


def check_standby(connection: Connection) -> None:
    """Check the settings of a standby that keep a slot on it alive.

    Raises SourceError: the first thing that capture cannot work with, and how to change it.
    """
    if connection.server_version < _OLDEST:
        raise SourceError(
            "the server is a standby, and those before PostgreSQL 16 decode nothing",
            hint="connect to the primary",
        )
    feedback, slot = row_of(connection, "cannot read settings", _SETTINGS)
    if not feedback:
        raise SourceError(
            "the server is a standby with hot_standby_feedback off: its primary would remove rows "
            "of the catalogue that the slot needs, and the slot with them",
            hint="ALTER SYSTEM SET hot_standby_feedback = on, then SELECT pg_reload_conf()",
        )
    if not slot:
        log.warning(
            "the standby has no primary_slot_name: while it is away its primary may remove rows "
            "that the slot needs"
        )


class Primary:
    """The primary of a standby; reached when something has to be written."""

    def __init__(self, dsn: str, standby: SystemIdentity) -> None:
        """Take the primary's connection string, empty where nobody named it, and the standby."""
        self._dsn = dsn
        self._standby = standby
        self._connection: Connection | None = None

    @property
    def is_known(self) -> bool:
        """Tell whether a primary is named."""
        return bool(self._dsn)

    def connection(self) -> Connection:
        """Return a connection in autocommit mode; the first call opens it.

        Raises:
            SourceError: nobody named the primary.
            ConfigurationError: the server is not the standby's primary.
            UnavailableSourceError: it does not answer.
        """
        if not self._dsn:
            raise SourceError(
                "the source is a standby, and this has to be written at its primary", hint=HINT
            )
        if self._connection is None or self._connection.closed:
            self._connection = self._opened()
        return self._connection

    def _opened(self) -> Connection:
        primary = identify(self._dsn)
        if (primary.system_id, primary.database) != (
            self._standby.system_id,
            self._standby.database,
        ):
            raise ConfigurationError(
                f"--primary names the database {primary.database} of PostgreSQL system "
                f"{primary.system_id}, the source is {self._standby.database} of "
                f"{self._standby.system_id}",
                hint="it has to name the same database at the standby's primary",
            )
        connection = connect(self._dsn)
        if in_recovery(connection):
            connection.close()
            raise UnavailableSourceError("the server that --primary names is a standby itself")
        return connection

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()


def await_replay(standby: Connection, primary: Connection) -> Lsn:
    """Wait until a standby has replayed all that its primary has written; return up to where.

    Raises UnavailableSourceError: it does not come that far in `REPLAY_S`.
    """
    end, deadline = current_lsn(primary), time.monotonic() + REPLAY_S
    while True:
        (replayed,) = row_of(standby, "cannot ask the standby", _REPLAYED, (str(end),))
        if replayed or not in_recovery(standby):
            return end
        if time.monotonic() > deadline:
            raise UnavailableSourceError(
                f"the standby has not replayed {end} of its primary in {REPLAY_S:.0f} s",
                hint="is it behind, or does it follow another server?",
            )
        time.sleep(_NAP_S)


@contextmanager
def running_logged(dsn: str) -> Iterator[None]:
    """Make a primary log its running transactions repeatedly while a block runs.

    A slot on a standby is ready once the WAL says which transactions run; an idle primary does not
    say it for minutes, or at all. Without a connection string the block waits for that.
    """
    if not dsn:
        log.info("the slot is ready once the primary has run pg_log_standby_snapshot()")
        yield
        return
    with closing(connect(dsn)) as connection:

        def repeat(done: threading.Event) -> None:
            while not done.wait(_LOG_EVERY_S):
                try:
                    with connection.cursor() as cursor:
                        cursor.execute(_LOG_RUNNING)
                except psycopg2.Error as error:
                    log.warning("cannot run pg_log_standby_snapshot() at the primary: %s", error)
                    return

        with working_beside("running transactions", repeat):
            yield
