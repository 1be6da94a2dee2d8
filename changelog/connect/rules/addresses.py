"""Addresses of databases that are given by REST: the parts that they may have.

Whoever asks for a connector is not the user who started the worker. So a connector must not use the
credentials of that user: no password, password file, certificate or service from libpq's variables
and files, and no socket of this machine, on which PostgreSQL trusts the process's user.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from changelog.contract.base.errors import ConfigurationError
from changelog.postgres.connection import parts_of

ALLOWED = frozenset(
    """
    host hostaddr port dbname user password application_name fallback_application_name
    channel_binding client_encoding connect_timeout gssencmode keepalives keepalives_count
    keepalives_idle keepalives_interval load_balance_hosts options require_auth
    ssl_max_protocol_version ssl_min_protocol_version sslmode sslnegotiation sslrootcert sslsni
    target_session_attrs tcp_user_timeout
    """.split()  # noqa: SIM905
)
"""The allowed parts of a connection string: none names a file with a secret, or a service."""

_NOWHERE = os.path.join(os.devnull, "none")  # noqa: PTH118 - a text; no file can be there
_TLS = "PGSSL"
_TLS_CREDENTIALS = {"PGSSLCERT", "PGSSLKEY", "PGSSLPASSWORD"}


def address_of(dsn: str, named: str) -> dict[str, str]:
    """Return the parts of a connection string, a URL or key=value.

    `named` is its setting, for messages.

    Raises ConfigurationError: it cannot be parsed, has a part that is not allowed, or names no
    host; the message quotes none of its values.
    """
    parts = parts_of(dsn, named=named, example="postgresql://host:5432/database")
    check_parts(parts, named)
    return parts


def check_parts(parts: Mapping[str, str], named: str) -> None:
    """Check the parts of an address.

    Raises ConfigurationError: one is not allowed, or it names no host.
    """
    forbidden = sorted(parts.keys() - ALLOWED)
    if forbidden:
        raise ConfigurationError(
            f"{named} has {', '.join(forbidden)}, which connectors may not have"
        )
    hosts = parts.get("host", "").split(",")
    if not parts.get("hostaddr") and not all(hosts):
        raise ConfigurationError(f"{named} names no host")
    if any(host.startswith(("/", "@")) for host in hosts):
        raise ConfigurationError(f"{named} names a socket of this machine instead of a host")


def without_defaults(parts: Mapping[str, str]) -> dict[str, str]:
    """Return an address to which libpq adds nothing from its variables and files.

    An empty password counts as none, and keeps libpq from looking for one.
    """
    user = parts.get("user") or pwd.getpwuid(os.geteuid()).pw_name
    return {
        "port": "5432",
        "dbname": user,
        "password": "",
        "hostaddr": "",
        "options": "",
        "sslkey": _NOWHERE,
        **parts,
        "user": user,
        "passfile": _NOWHERE,
        "sslcert": _NOWHERE,
    }


def without_libpq(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without libpq's variables, apart from ones that make TLS stricter."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("PG") or (name.startswith(_TLS) and name not in _TLS_CREDENTIALS)
    }
