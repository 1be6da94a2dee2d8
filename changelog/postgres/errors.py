"""Errors of PostgreSQL: whether each passes by itself, and a hint if it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg2
from psycopg2 import errorcodes

from changelog.contract.base.secret import redacted

# libpq gives no SQLSTATE for a connection that could not be opened, only text.
_PASSING = (
    "starting up",
    "accepting connections",  # "not yet" until its recovery is consistent
    "shutting down",
    "in recovery mode",
    "too many clients",
    "remaining connection slots",
    "max_wal_senders",
    "terminating connection",
)
_HINTS = {
    "no encryption": "it wants TLS, or another line in pg_hba.conf: try sslmode=verify-full",
    "root certificate file": "sslrootcert names the file with the authority of its certificate",
    "certificate for": "sslmode=verify-full wants a certificate that names the host: look at host",
    "password authentication failed": "check user and password",
    "no password supplied": "give the password in the connection string, PGPASSWORD or ~/.pgpass",
    "pg_hba.conf": "allow this user and address in pg_hba.conf",
    "authentication failed": "check the authentication of this user in pg_hba.conf",
    "does not exist": "check the names of database, role and files in the connection string",
    "permission denied to start wal sender": "ALTER ROLE … REPLICATION",
    "replication role": "ALTER ROLE … REPLICATION",
    "does not support ssl": "use another sslmode, or turn SSL on at the server",
    "certificate": "sslrootcert has to hold the authority of the server's certificate",
    "is not permitted to log in": "ALTER ROLE … LOGIN",
    "permission denied for database": "GRANT CONNECT ON DATABASE … TO …",
}
_LOST = {
    errorcodes.ADMIN_SHUTDOWN,
    errorcodes.CRASH_SHUTDOWN,
    errorcodes.CANNOT_CONNECT_NOW,
    errorcodes.TOO_MANY_CONNECTIONS,
    errorcodes.IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    errorcodes.IDLE_SESSION_TIMEOUT,
    errorcodes.TRANSACTION_TIMEOUT,
}
_BUSY = {errorcodes.LOCK_NOT_AVAILABLE, errorcodes.DEADLOCK_DETECTED}


@dataclass(frozen=True, slots=True)
class NotOpened:
    """Why a connection could not be opened."""

    message: str  # by libpq or the server, on one line and without secrets
    answers: bool  # whether a server is there
    passes: bool  # whether it may be opened later
    hint: str = ""  # what a user does about it; empty where the words say it


def why_not_opened(error: psycopg2.Error, parts: Mapping[str, str]) -> NotOpened:
    """Classify the error of a connection that could not be opened."""
    message = without_secrets(str(error), parts)
    words = message.lower()
    if any(passing in words for passing in _PASSING):
        return NotOpened(message, answers=True, passes=True)
    hint = next((hint for name, hint in _HINTS.items() if name in words), "")
    # A server that says FATAL is there and means it.
    is_refused = bool(hint) or "FATAL" in message
    return NotOpened(message, answers=is_refused, passes=not is_refused, hint=hint)


def without_secrets(text: str, parts: Mapping[str, str]) -> str:
    """Return a server's words on one line, without the password of a connection string."""
    line = redacted(" ".join(text.split()))
    password = parts.get("password")
    return line.replace(password, "***") if password else line


def is_lost(error: psycopg2.Error, *, closed: bool) -> bool:
    """Tell whether an error of a statement means that the connection is lost."""
    code = error.pgcode or ""
    return closed or code in _LOST or code.startswith("08")


def is_busy(error: psycopg2.Error) -> bool:
    """Tell whether others hold a lock that a statement wanted."""
    return error.pgcode in _BUSY
