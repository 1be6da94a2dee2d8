"""Connection strings, and the settings of a connection whose string does not give others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psycopg2
from psycopg2 import extensions

from changelog.contract.base.errors import ConfigurationError

Connection = extensions.connection

DEFAULTS = {
    "connect_timeout": "10",
    # A peer that vanished without a word is noticed in about a minute.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    # Keepalives say nothing while something is on its way: then this does, in milliseconds.
    "tcp_user_timeout": "60000",
}

_TIMEOUTS = (
    (90_600, "idle_in_transaction_session_timeout"),
    (140_000, "idle_session_timeout"),
    (170_000, "transaction_timeout"),
)
"""By which a server ends sessions that stand still or take long, each with its first version."""


def opened(factory: type[Connection] = Connection, **settings: Any) -> Connection:  # noqa: ANN401 - libpq's
    """Open a session that no timeout of a database or a role ends.

    A snapshot that waits for the log stands still, and so does a session between two looks.
    Not by `options`: a server refuses one that its version does not have.

    Raises psycopg2.Error: no server answers, or it refuses.
    """
    connection: Connection = psycopg2.connect(connection_factory=factory, **settings)
    try:
        _outlast(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _outlast(connection: Connection) -> None:
    version = connection.server_version
    names = [name for since, name in _TIMEOUTS if version >= since]
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"set_config('{name}', '0', false)" for name in names))
    if connection.status == extensions.STATUS_BEGIN:
        connection.commit()  # else a rollback would take them back


def parts_of(dsn: str, *, named: str, example: str) -> dict[str, str]:
    """Return the parts of a connection string, as libpq reads it.

    `named` is what the user calls it, `example` one that can be read.

    Raises ConfigurationError: it cannot be read, or its password would be taken for something else.
    """
    try:
        parts = extensions.parse_dsn(dsn)
    except psycopg2.Error:
        # Without libpq's own words: they quote the string, and so a password.
        raise ConfigurationError(f"{named} cannot be read", hint=f"an example: {example}") from None
    check_address(dsn, parts)
    return parts


_SCHEME = re.compile(r"\s*postgres(?:ql)?://")
_PORTS = re.compile(r"[\d,\s]*", re.ASCII)


def check_address(dsn: str, parts: Mapping[str, str]) -> None:
    """Refuse a string in which a part of the password is host, port or database for libpq.

    libpq ends a password at its first @, and user and password at the first /; what is behind is
    then a name that its messages quote. `parts` are those that libpq reads in it.

    Raises ConfigurationError: it is such a string; nothing of it is quoted.
    """
    scheme = _SCHEME.match(dsn)
    rest = dsn[scheme.end() :] if scheme else ""
    head, at, tail = rest.partition("@")
    behind = tail if at and "/" not in head else rest
    if "@" in behind.partition("?")[0] or not _PORTS.fullmatch(parts.get("port", "")):
        raise ConfigurationError(
            "the connection string of PostgreSQL has a password that is not escaped, or a port "
            "that is no number",
            hint="in a URL write %40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %25 for %",
        )
