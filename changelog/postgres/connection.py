"""Connection strings, and the settings of a connection whose string does not give others."""

from __future__ import annotations

import psycopg2
from psycopg2 import extensions

from changelog.contract.base.errors import ConfigurationError
from changelog.postgres.address import check_address

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


def parts_of(dsn: str, *, named: str, example: str) -> dict[str, str]:
    """Return the parts of a connection string, as libpq reads it.

    Args:
        dsn: a URL or `key=value` pairs.
        named: what the user calls it.
        example: of one that can be read.

    Raises:
        ConfigurationError: it cannot be read, or its password would be taken for something else.
    """
    try:
        parts = extensions.parse_dsn(dsn)
    except psycopg2.Error:
        # Without libpq's own words: they quote the string, and so a password.
        raise ConfigurationError(f"{named} cannot be read", hint=f"an example: {example}") from None
    check_address(dsn, parts)
    return parts
