"""Open transactions of a server, which a new slot waits for.

A prepared transaction (PREPARE TRANSACTION) has no session that could be seen to wait, survives
restarts, and holds a new slot up for as long as nobody ends it, in whichever database it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from changelog.contract.base.errors import ChangelogError
from changelog.postgres.connection import Connection
from changelog.runtime.process.beside import working_beside
from changelog.source.connect.connect import connect, rows_of

log = logging.getLogger("changelog.capture")

_TOLD_AFTER_S = 3.0
_TOLD_EVERY_S = 60.0
_MOST = 5
_PREPARED = """
SELECT format('the prepared transaction %L of database "%s", since %s: COMMIT PREPARED or '
              'ROLLBACK PREPARED there ends it', gid, database, prepared::timestamptz(0))
  FROM pg_prepared_xacts ORDER BY prepared
"""
_RUNNING = """
SELECT format('server process %s of role "%s" in database "%s", since %s', pid, usename, datname,
              xact_start::timestamptz(0))
  FROM pg_stat_activity
 WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start
"""


def prepared_transactions(connection: Connection) -> list[str]:
    """Describe the prepared transactions of all databases, the oldest first."""
    return _described(connection, _PREPARED)


@contextmanager
def naming_open_transactions(dsn: str) -> Iterator[None]:
    """Log which transactions a block waits for, when it takes more than a moment.

    Of sessions of other roles PostgreSQL shows none to a role without `pg_read_all_stats`.
    """

    def tell(done: threading.Event) -> None:
        wait_s = _TOLD_AFTER_S
        while not done.wait(wait_s):
            wait_s = _TOLD_EVERY_S
            try:
                with closing(connect(dsn)) as connection:
                    waited_for = prepared_transactions(connection)
                    waited_for += _described(connection, _RUNNING)
            except ChangelogError as error:
                log.warning("cannot ask which transactions are open: %s", error)
                return
            if waited_for:
                more = f", and {len(waited_for) - _MOST} more" if len(waited_for) > _MOST else ""
                log.warning(
                    "the slot is made once these open transactions have ended: %s%s",
                    "; ".join(waited_for[:_MOST]),
                    more,
                )

    with working_beside("open transactions", tell):
        yield


def _described(connection: Connection, query: str) -> list[str]:
    rows = rows_of(connection, "cannot ask which transactions are open", query)
    return [text for (text,) in rows]
