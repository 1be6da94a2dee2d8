"""A connection to a sink's database: how it is made, its transactions, what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2 import errorcodes, extensions

from changelog.connect.rules.settings import SinkSettings
from changelog.contract.base.errors import ConfigurationError, SinkError, UnavailableError
from changelog.contract.base.secret import redacted

_SESSION = "-c statement_timeout=0 -c datestyle=ISO -c timezone=UTC -c lock_timeout=60000"
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_LATER = {
    errorcodes.ADMIN_SHUTDOWN,
    errorcodes.CRASH_SHUTDOWN,
    errorcodes.CANNOT_CONNECT_NOW,
    errorcodes.TOO_MANY_CONNECTIONS,
    errorcodes.SERIALIZATION_FAILURE,
    errorcodes.DEADLOCK_DETECTED,
    errorcodes.LOCK_NOT_AVAILABLE,
}
_REFUSALS = ("authentication failed", "no password supplied", "pg_hba.conf", "does not exist",
             "certificate", "does not support ssl", "not permitted to log in")  # fmt: skip
_OF_A_ROW = ("21", "22", "23", "54", "P0")  # classes of errors that a row's own values cause


class Session:
    """A connection; one thread at a time uses it."""

    def __init__(self, settings: SinkSettings) -> None:
        """Connect.

        Raises:
            UnavailableError: no server answers.
            SinkError: it refuses.
            ConfigurationError: the address cannot be used.
        """
        wanted = _wanted(settings)
        self._secret = wanted.get("password", "")
        try:
            self._connection: extensions.connection = psycopg2.connect(**wanted)
        except psycopg2.Error as error:
            said = self._clean(str(error))
            if any(words in said.lower() for words in _REFUSALS):
                raise SinkError(
                    f"the database refuses the connection: {said}",
                    hint="look at connection.url, connection.user and connection.password",
                ) from None
            raise UnavailableError(f"the database does not answer: {said}") from None
        self._connection.set_client_encoding("UTF8")

    def close(self) -> None:
        """Close it; what is not committed is not written."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[extensions.cursor]:
        """Do what is done inside all or not at all.

        Raises:
            UnavailableError: the server is away; nothing of this is written, or all of it.
            SinkError: it refuses.
        """
        try:
            with self._connection, self._connection.cursor() as cursor:
                yield cursor
        except psycopg2.Error as error:
            code, said = error.pgcode, self._clean(error.diag.message_primary or str(error))
            if self._connection.closed or code is None or code in _LATER:
                raise UnavailableError(f"the database does not go on: {said}") from error
            raise SinkError(f"the database refuses: {said} ({code})") from error

    def _clean(self, text: str) -> str:
        said = redacted(" ".join(text.split()))
        return said.replace(self._secret, "***") if self._secret else said


def _wanted(settings: SinkSettings) -> dict[str, Any]:
    try:
        given = extensions.parse_dsn(settings.url)
    except psycopg2.Error:
        # Without libpq's own words: they quote the string, and so a password.
        raise ConfigurationError(
            "connection.url is not an address of PostgreSQL",
            hint="an example: postgresql://host:5432/database",
        ) from None
    wanted = {**_DEFAULTS, **given}
    wanted["options"] = f"{given.get('options', '')} {_SESSION}".strip()
    wanted["application_name"] = f"connect-{settings.name}"
    if settings.user:
        wanted["user"] = settings.user
    if settings.password:
        wanted["password"] = settings.password
    return wanted


def is_of_a_row(error: psycopg2.Error) -> bool:
    """Tell whether a row's own values caused an error."""
    code = error.pgcode or ""
    return code.startswith(_OF_A_ROW) or code == errorcodes.DATATYPE_MISMATCH
