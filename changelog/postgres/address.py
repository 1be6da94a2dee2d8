"""Connection strings of PostgreSQL whose password would be taken for something else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from changelog.contract.base.errors import ConfigurationError

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
