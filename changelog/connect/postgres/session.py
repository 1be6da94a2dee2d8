"""A connection to a sink's database: its parameters, its transactions, its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg2
from psycopg2 import errorcodes, extensions

from changelog.connect.rules.addresses import without_defaults
from changelog.connect.rules.settings import SinkConnectorSettings
from changelog.contract.base.errors import SinkError, UnavailableError
from changelog.postgres.connection import DEFAULTS, opened, parts_of
from changelog.postgres.errors import is_busy, is_lost, why_not_opened, without_secrets

_SESSION = (
    "-c statement_timeout=0 -c datestyle=ISO -c timezone=UTC -c lock_timeout=60000 "
    "-c standard_conforming_strings=on"
)
_OF_A_ROW = ("21", "22", "23", "54", "P0")  # classes of errors that the values of a row cause


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """The address of a database, and its name in messages."""

    url: str = field(repr=False)  # libpq's connection string
    user: str = ""  # replaces the string's; empty to keep that
    password: str = field(default="", repr=False)  # replaces the string's; empty to keep that
    application: str  # the session's application_name
    options: str = ""  # further options of the session
    named: str  # the setting that holds the address, for messages
    look_at: str  # the settings to check if the server refuses, for messages
    # whether libpq must not add anything from variables and files of the process's user
    is_alone: bool = False


def of_sink(settings: SinkConnectorSettings) -> DatabaseAddress:
    """Return the address of a sink's database."""
    return DatabaseAddress(
        url=settings.url,
        user=settings.user,
        password=settings.password,
        application=f"connect-{settings.name}",
        named="connection.url",
        look_at="connection.url, connection.user and connection.password",
        is_alone=True,
    )


class Session:
    """A connection to a database, for one thread at a time."""

    def __init__(self, address: DatabaseAddress) -> None:
        """Connect.

        Raises:
            UnavailableError: no server answers.
            SinkError: the server refuses.
            ConfigurationError: the address cannot be used.
        """
        parameters = self._parameters = _parameters(address)
        try:
            self.connection: extensions.connection = opened(**parameters)  # psycopg2's
        except psycopg2.Error as error:
            why = why_not_opened(error, parameters)
            if why.passes:
                raise UnavailableError(f"the database does not answer: {why.message}") from None
            raise SinkError(
                f"the database refuses the connection: {why.message}",
                hint=f"check {address.look_at}" + (f"; {why.hint}" if why.hint else ""),
            ) from None
        self.connection.set_client_encoding("UTF8")

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[extensions.cursor]:
        """Run the body in a transaction.

        Raises UnavailableError: the server does not answer, so the transaction may or may not have
        been committed; SinkError: the server refuses.
        """
        try:
            with self.connection, self.connection.cursor() as cursor:
                yield cursor
        except psycopg2.Error as error:
            code, message = error.pgcode, self.clean(error.diag.message_primary or str(error))
            is_passing = is_busy(error) or code in {None, errorcodes.SERIALIZATION_FAILURE}
            if is_passing or is_lost(error, closed=bool(self.connection.closed)):
                raise UnavailableError(f"the database cannot continue now: {message}") from error
            raise SinkError(f"the database refuses: {message} ({code})") from error

    def clean(self, text: str) -> str:
        """Return a message of the server on one line, without secrets."""
        return without_secrets(text, self._parameters)


def _parameters(address: DatabaseAddress) -> dict[str, Any]:
    parts = parts_of(address.url, named=address.named, example="postgresql://host:5432/database")
    if address.is_alone:
        parts = without_defaults(parts)
    parameters: dict[str, Any] = {**DEFAULTS, **parts}
    parameters["options"] = f"{parts.get('options', '')} {_SESSION} {address.options}".strip()
    parameters["application_name"] = address.application
    if address.user:
        parameters["user"] = address.user
    if address.password:
        parameters["password"] = address.password
    return parameters


def is_of_a_row(error: psycopg2.Error) -> bool:
    """Return whether the values of a row caused an error."""
    code = error.pgcode or ""
    return code.startswith(_OF_A_ROW) or code == errorcodes.DATATYPE_MISMATCH
