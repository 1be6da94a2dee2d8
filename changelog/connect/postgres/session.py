"""A connection to a sink's database: how it is made, its transactions, what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg2
from psycopg2 import errorcodes, extensions

from changelog.connect.rules.addresses import alone
from changelog.connect.rules.settings import SinkSettings
from changelog.contract.base.address import check_address
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a database is, and how it is spoken of.

    Attributes:
        url: libpq's connection string.
        user: in place of that of the string; empty for none.
        password: likewise.
        application: as the server lists the session.
        options: of the session, beside those that each has.
        named: what names the address to a user.
        look_at: what a user looks at when the server refuses.
        is_alone: whether it is all that is known of the database: no variable or file of the
            process's user adds to it.
    """

    url: str = field(repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    application: str
    options: str = ""
    named: str
    look_at: str
    is_alone: bool = False


def of_sink(settings: SinkSettings) -> Address:
    """Return the address of a sink's database."""
    return Address(
        url=settings.url,
        user=settings.user,
        password=settings.password,
        application=f"connect-{settings.name}",
        named="connection.url",
        look_at="connection.url, connection.user and connection.password",
        is_alone=True,
    )


class Session:
    """A connection; one thread at a time uses it.

    Attributes:
        connection: psycopg2's.
    """

    def __init__(self, address: Address) -> None:
        """Connect.

        Raises:
            UnavailableError: no server answers.
            SinkError: it refuses.
            ConfigurationError: the address cannot be used.
        """
        wanted = _wanted(address)
        self._secret = wanted.get("password", "")
        try:
            self.connection: extensions.connection = psycopg2.connect(**wanted)
        except psycopg2.Error as error:
            said = self.clean(str(error))
            if any(words in said.lower() for words in _REFUSALS):
                raise SinkError(
                    f"the database refuses the connection: {said}",
                    hint=f"look at {address.look_at}",
                ) from None
            raise UnavailableError(f"the database does not answer: {said}") from None
        self.connection.set_client_encoding("UTF8")

    def close(self) -> None:
        """Close it; what is not committed is not written."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[extensions.cursor]:
        """Do what is done inside all or not at all.

        Raises:
            UnavailableError: the server is away; nothing of this is written, or all of it.
            SinkError: it refuses.
        """
        try:
            with self.connection, self.connection.cursor() as cursor:
                yield cursor
        except psycopg2.Error as error:
            code, said = error.pgcode, self.clean(error.diag.message_primary or str(error))
            if self.connection.closed or code is None or code in _LATER:
                raise UnavailableError(f"the database does not go on: {said}") from error
            raise SinkError(f"the database refuses: {said} ({code})") from error

    def clean(self, text: str) -> str:
        """Return what the server says on one line, without a secret."""
        said = redacted(" ".join(text.split()))
        return said.replace(self._secret, "***") if self._secret else said


def _wanted(address: Address) -> dict[str, Any]:
    try:
        given = extensions.parse_dsn(address.url)
    except psycopg2.Error:
        # Without libpq's own words: they quote the string, and so a password.
        raise ConfigurationError(
            f"{address.named} is not an address of PostgreSQL",
            hint="an example: postgresql://host:5432/database",
        ) from None
    check_address(address.url, given)
    if address.is_alone:
        given = alone(given)
    wanted = {**_DEFAULTS, **given}
    wanted["options"] = f"{given.get('options', '')} {_SESSION} {address.options}".strip()
    wanted["application_name"] = address.application
    if address.user:
        wanted["user"] = address.user
    if address.password:
        wanted["password"] = address.password
    return wanted


def is_of_a_row(error: psycopg2.Error) -> bool:
    """Tell whether a row's own values caused an error."""
    code = error.pgcode or ""
    return code.startswith(_OF_A_ROW) or code == errorcodes.DATATYPE_MISMATCH
