"""Connections to PostgreSQL: one way to open them, one meaning for each way they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2 import errorcodes, extensions
from psycopg2.extras import LogicalReplicationConnection

from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    SourceError,
    UnavailableSourceError,
)
from changelog.contract.base.names import check_length
from changelog.contract.base.secret import redacted
from changelog.contract.rows.text import SESSION_SETTINGS
from changelog.postgres.connection import DEFAULTS, Connection, opened, parts_of
from changelog.postgres.errors import NotOpened, is_lost, why_not_opened
from changelog.runtime.process.silence import WatchedCursor


def connect(dsn: str, *, application_name: str = "changelog") -> Connection:
    """Open a connection in autocommit mode whose text output is the contract's.

    Raises UnavailableSourceError: no server answers, or it does not take connections now;
    ConfigurationError: the connection string cannot be used, or the server refuses it.
    """
    return _connect(dsn, application_name, extensions.connection)


def connect_replication(
    dsn: str, *, application_name: str = "changelog"
) -> LogicalReplicationConnection:
    """Open a connection for replication commands of one database.

    Raises UnavailableSourceError: no server answers, or it does not take connections now;
    ConfigurationError: the connection string cannot be used, or the server refuses it.
    """
    connection = _connect(dsn, application_name, LogicalReplicationConnection)
    assert isinstance(connection, LogicalReplicationConnection)  # noqa: S101 - the factory's type
    return connection


def _connect(dsn: str, application_name: str, factory: type[Connection]) -> Connection:
    parameters = parts_of(
        dsn,
        named="the connection string of PostgreSQL",
        example="postgresql://user@host:5432/database",
    )
    for name in ("application_name", "dbname", "user"):
        check_length(str(parameters.get(name, "")), f"the connection string's {name}")
    options = " ".join([parameters.pop("options", ""), *_session_options()]).strip()
    settings: dict[str, Any] = {
        **DEFAULTS,
        "application_name": application_name,
        **parameters,
        "options": options,
    }
    try:
        connection = opened(factory, **settings)
    except psycopg2.Error as error:
        raise _connection_error(why_not_opened(error, parameters)) from None
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


def _connection_error(why: NotOpened) -> ChangelogError:
    if not why.passes:
        return ConfigurationError(
            f"PostgreSQL refuses the connection: {why.message}", hint=why.hint
        )
    if why.answers:
        return UnavailableSourceError(f"PostgreSQL does not take connections now: {why.message}")
    return UnavailableSourceError(
        f"no PostgreSQL answers: {why.message}",
        hint="is the server running, and the address right?",
    )


def source_error(error: psycopg2.Error, failure: str, *, lost: bool = False) -> SourceError:
    """Turn an error of psycopg2 into ours.

    `failure` says what was being done, such as `cannot create the publication "x"`; `lost`, that
    the caller has seen that the connection is closed.
    """
    message = redacted((error.diag.message_primary or str(error)).strip())
    hint = error.diag.message_hint or ""
    if error.pgcode == errorcodes.INSUFFICIENT_PRIVILEGE and not hint:
        hint = "grant the right, or connect as a role that has it"
    if error.pgcode == errorcodes.READ_ONLY_SQL_TRANSACTION and "read-only" in message:
        hint = (
            "default_transaction_read_only is on: ALTER ROLE … SET default_transaction_read_only = "
            "off for who captures, or write options=-c default_transaction_read_only=off into "
            "the connection string"
        )
    is_passing = "conflict with recovery" in message  # a standby ends what its replay waits for
    if is_passing or is_lost(error, closed=lost):
        return UnavailableSourceError(f"{failure}: {message}", hint=hint)
    return SourceError(f"{failure}: {message}", hint=hint)


@contextmanager
def source_errors(connection: Connection, failure: str) -> Iterator[None]:
    """Raise our errors in place of psycopg2's; `failure` says what was being done."""
    try:
        yield
    except psycopg2.Error as error:
        raise source_error(error, failure, lost=bool(connection.closed)) from error


def rows_of(
    connection: Connection,
    failure: str,
    query: str,
    arguments: Any = None,  # noqa: ANN401 - psycopg2's
) -> list[tuple[Any, ...]]:
    """Return the rows of a query; raises as `source_errors`."""
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(query, arguments)
        return cursor.fetchall()


def row_of(connection: Connection, failure: str, query: str, arguments: Any = None) -> Any:  # noqa: ANN401
    """Return the one row of a query, or None if it has none; raises as `source_errors`."""
    return next(iter(rows_of(connection, failure, query, arguments)), None)
