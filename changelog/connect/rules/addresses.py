"""Addresses of databases that are given by REST: which parts they may have, and what they lack.

Who may ask for a connector is not whoever started the worker. So a connector uses none of what that
one has for databases of its own: no password, file of passwords, certificate or service of libpq's
variables and files, no socket of this machine, where PostgreSQL believes the process's user.
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
"""Parts of a connection string: none of them names a file with a secret, or another service."""

_NOWHERE = os.path.join(os.devnull, "none")  # noqa: PTH118 - a text; no file can be there
_KEPT = "PGSSL"
_TAKEN = {"PGSSLCERT", "PGSSLKEY", "PGSSLPASSWORD"}


def address_of(dsn: str, named: str) -> dict[str, str]:
    """Return the parts of a connection string, a URL or key=value; `named` names it to users.

    Raises ConfigurationError: it is none, has a part that is not allowed, or names no host; nothing
    of its values is quoted.
    """
    parts = parts_of(dsn, named=named, example="postgresql://host:5432/database")
    check_parts(parts, named)
    return parts


def check_parts(parts: Mapping[str, str], named: str) -> None:
    """Check the parts of an address.

    Raises ConfigurationError: one is not allowed, or it names no host.
    """
    others = sorted(parts.keys() - ALLOWED)
    if others:
        raise ConfigurationError(f"{named} has {', '.join(others)}, which connectors may not have")
    hosts = parts.get("host", "").split(",")
    if not parts.get("hostaddr") and not all(hosts):
        raise ConfigurationError(f"{named} names no host")
    if any(host.startswith(("/", "@")) for host in hosts):
        raise ConfigurationError(f"{named} names a socket of this machine in place of a host")


def alone(parts: Mapping[str, str]) -> dict[str, str]:
    """Return an address that libpq adds nothing to which the worker's user has.

    An empty password is none, and keeps libpq from looking for one.
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


def without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without libpq's variables, except the ones that make TLS stricter."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("PG") or (name.startswith(_KEPT) and name not in _TAKEN)
    }
