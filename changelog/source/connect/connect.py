"""Connections to PostgreSQL: one way to open them, one meaning for each way they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
from psycopg2 import errorcodes, extensions
from psycopg2.extras import LogicalReplicationConnection

from changelog.contract.base.address import check_address
from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    SourceError,
    UnavailableSourceError,
)
from changelog.contract.base.names import check_length
from changelog.contract.base.secret import redacted
from changelog.contract.rows.text import SESSION_SETTINGS
from changelog.runtime.process.silence import WatchedCursor

Connection = extensions.connection

_DEFAULTS = {
    "connect_timeout": "10",
    # A peer that vanished without a word is noticed in about a minute.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    # Keepalives say nothing while something is on its way: then this does, in milliseconds.
    "tcp_user_timeout": "60000",
}

# libpq gives no SQLSTATE for a failed connection, only text; see `_connection_error`.
_TRANSIENT = (
    "starting up",
    "accepting connections",  # "not yet" until its recovery is consistent
    "shutting down",
    "in recovery mode",
    "too many clients",
    "remaining connection slots",
    "max_wal_senders",
    "terminating connection",
)
_PERMANENT = {
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
_DEAD_CONNECTION = {
    errorcodes.ADMIN_SHUTDOWN,
    errorcodes.CRASH_SHUTDOWN,
    errorcodes.CANNOT_CONNECT_NOW,
    errorcodes.TOO_MANY_CONNECTIONS,
    errorcodes.IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
}


def connect(dsn: str, *, application_name: str = "changelog") -> Connection:
    """Open a connection in autocommit mode whose text output is the contract's.

    Raises:
        UnavailableSourceError: no server answers, or it does not take connections now.
        ConfigurationError: the connection string cannot be used, or the server refuses it.
    """
    return _connect(dsn, application_name, extensions.connection)


def connect_replication(
    dsn: str, *, application_name: str = "changelog"
) -> LogicalReplicationConnection:
    """Open a connection for replication commands of one database.

    Raises:
        UnavailableSourceError: no server answers, or it does not take connections now.
        ConfigurationError: the connection string cannot be used, or the server refuses it.
    """
    connection = _connect(dsn, application_name, LogicalReplicationConnection)
    assert isinstance(connection, LogicalReplicationConnection)  # noqa: S101 - the factory's type
    return connection


def _connect(dsn: str, application_name: str, factory: type[Connection]) -> Connection:
    try:
        given = extensions.parse_dsn(dsn)
    except psycopg2.Error:
        # Without libpq's own words: they quote the string, and so a password.
        raise ConfigurationError(
            "the connection string of PostgreSQL cannot be read",
            hint="an example: postgresql://user@host:5432/database",
        ) from None
    check_address(dsn, given)
    for name in ("application_name", "dbname", "user"):
        check_length(str(given.get(name, "")), f"the connection string's {name}")
    options = " ".join([given.pop("options", ""), *_session_options()]).strip()
    settings = {**_DEFAULTS, "application_name": application_name, **given, "options": options}
    try:
        connection: Connection = psycopg2.connect(connection_factory=factory, **settings)
    except psycopg2.Error as error:
        raise _connection_error(str(error), given) from None
    if factory is extensions.connection:
        connection.autocommit = True
        connection.cursor_factory = WatchedCursor
    return connection


def _session_options() -> list[str]:
    # A space inside a value would end it.
    values = {name: value.replace(" ", "\\ ") for name, value in SESSION_SETTINGS.items()}
    # What we commit ourselves are marks in the WAL: a standby that is away must not stop us.
    values["synchronous_commit"] = "local"
    return [f"-c {name}={value}" for name, value in values.items()]


def _connection_error(text: str, given: dict[str, str]) -> ChangelogError:
    said = redacted(" ".join(text.split()))
    password = given.get("password")
    if password:
        said = said.replace(password, "***")
    lower = said.lower()
    if any(words in lower for words in _TRANSIENT):
        return UnavailableSourceError(f"PostgreSQL does not take connections now: {said}")
    for words, hint in _PERMANENT.items():
        if words in lower:
            return ConfigurationError(f"PostgreSQL refuses the connection: {said}", hint=hint)
    if "FATAL" in said:  # the server speaks, so it is there and means it
        return ConfigurationError(f"PostgreSQL refuses the connection: {said}")
    return UnavailableSourceError(
        f"no PostgreSQL answers: {said}", hint="is the server running, and the address right?"
    )


def source_error(error: psycopg2.Error, what: str, *, lost: bool = False) -> SourceError:
    """Turn an error of psycopg2 into ours.

    Args:
        error: what psycopg2 raised.
        what: what was being done, such as `cannot create the publication "x"`.
        lost: the caller has seen that the connection is closed.
    """
    said = redacted((error.diag.message_primary or str(error)).strip())
    hint = error.diag.message_hint or ""
    code = error.pgcode or ""
    if code == errorcodes.INSUFFICIENT_PRIVILEGE and not hint:
        hint = "grant the right, or connect as a role that has it"
    is_passing = "conflict with recovery" in said  # a standby ends what its replay waits for
    if lost or is_passing or code in _DEAD_CONNECTION or code.startswith("08"):
        return UnavailableSourceError(f"{what}: {said}", hint=hint)
    return SourceError(f"{what}: {said}", hint=hint)


@contextmanager
def source_errors(connection: Connection, what: str) -> Iterator[None]:
    """Raise our errors in place of psycopg2's; `what` says what was being done."""
    try:
        yield
    except psycopg2.Error as error:
        raise source_error(error, what, lost=bool(connection.closed)) from error
