"""Logical messages: marks in the WAL that the stream brings back as `Emitted`."""

from __future__ import annotations

import psycopg2

from changelog.contract.base.lsn import Lsn
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import row_of

OWN_PREFIX = "changelog"  # of the messages that capture writes to itself; no user's

DROP_IF_EMPTY = """
DO $block$ BEGIN
    DROP SCHEMA IF EXISTS changelog;
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;
END $block$;
"""
"""SQL that removes the schema of our triggers and tables unless something is still in it."""

_EMIT = "SELECT pg_logical_emit_message(%s, %s, %s::bytea)"
# The second one has a commit, which flushes the first.
_EMIT_MARK = (
    "SELECT pg_logical_emit_message(false, %(prefix)s, %(content)s::bytea), "
    "pg_logical_emit_message(true, %(prefix)s, ''::bytea)"
)
# Its number without the epoch, as the stream tells it.
_COMMIT_MARK = (
    "SELECT pg_logical_emit_message(true, %(prefix)s, ''::bytea), "
    "txid_current() & ((1::bigint << 32) - 1)"
)


def emit(connection: Connection, prefix: str, content: bytes, *, transactional: bool) -> Lsn:
    """Write a message and return the end of its record.

    A transactional one, in autocommit, is flushed with its own commit; another one is sent at
    once, whatever becomes of the transaction, but flushed only with the next commit or by the
    WAL writer.
    """
    arguments = (transactional, prefix, psycopg2.Binary(content))
    (text,) = row_of(connection, "cannot write a message", _EMIT, arguments)
    return Lsn.parse(text)


def is_own(prefix: str) -> bool:
    """Tell whether a message is one that this program writes to itself."""
    return prefix == OWN_PREFIX or prefix.startswith(f"{OWN_PREFIX}.")


def commit_mark(connection: Connection) -> tuple[Lsn, int]:
    """Commit a transaction that changes nothing; return a place before its end, and its number.

    Servers that keep messages to themselves (before 14) send such a transaction, an empty one, in
    the order of commits: it is a mark that the stream brings back as well.
    """
    mark = {"prefix": OWN_PREFIX}
    text, xid = row_of(connection, "cannot write a mark", _COMMIT_MARK, mark)
    return Lsn.parse(text), int(xid)


def emit_mark(connection: Connection, prefix: str, content: bytes) -> Lsn:
    """Write a message that is no part of a transaction, flush it, and return the end of its record.

    The stream brings it between two transactions, at its own place in the WAL.
    """
    message = {"prefix": prefix, "content": psycopg2.Binary(content)}
    text, _ = row_of(connection, "cannot write a message", _EMIT_MARK, message)
    return Lsn.parse(text)
