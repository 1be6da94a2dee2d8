"""Connections to the PostgreSQL that serves views, and its errors as ours.

Holds nothing but the address, so it can be pickled for executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg2
from psycopg2 import errorcodes, extensions
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from changelog.contract.base.address import check_address
from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.contract.base.secret import redacted
from views.base.watched import watched
from views.sinks.base import UnavailableSinkError

T = TypeVar("T")
Connection = extensions.connection

_DEFAULTS = {
    "connect_timeout": "10",
    # A peer that vanished without a word is noticed in about a minute.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_SESSION = (
    "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c datestyle=ISO "
    "-c timezone=UTC -c default_transaction_isolation=read\\ committed "
    "-c default_transaction_read_only=off"
)
# libpq gives no SQLSTATE for a failed connection, only text.
_REFUSALS = ("authentication failed", "no password supplied", "pg_hba.conf", "does not exist",
             "certificate", "does not support ssl", "not permitted to log in")  # fmt: skip
_LOST = {
    errorcodes.ADMIN_SHUTDOWN,
    errorcodes.CRASH_SHUTDOWN,
    errorcodes.CANNOT_CONNECT_NOW,
    errorcodes.TOO_MANY_CONNECTIONS,
}
_DEPENDS = "drop what depends on it, and make it anew afterwards"
_HINTS = {
    errorcodes.DISK_FULL: "free space at the server or keep fewer generations, then run it again",
    errorcodes.INSUFFICIENT_PRIVILEGE: "grant the right, or take another user for the sink",
    errorcodes.DEPENDENT_OBJECTS_STILL_EXIST: _DEPENDS,
    errorcodes.FEATURE_NOT_SUPPORTED: _DEPENDS,
    errorcodes.UNTRANSLATABLE_CHARACTER: "leave such values out, or cast the column to a string",
}


class BusyError(Exception):
    """A lock is held by others, or a transaction would be disturbed; later it may go."""


@dataclass(frozen=True, slots=True)
class PostgresClient:
    """A server.

    Attributes:
        url: libpq's connection string; user, password and TLS parameters may be in it.
        retry_seconds: about how long a busy or absent server is asked again.
        answer_seconds: how long it may answer nobody before a connection is given up.
    """

    url: str = field(repr=False)
    retry_seconds: float
    answer_seconds: float = 60.0

    @contextmanager
    def connection(self, name: str = "changelog") -> Iterator[Connection]:
        """Open a connection in autocommit mode; errors inside the block become SinkErrors.

        Raises:
            UnavailableSinkError: no server answers, or it ended the connection.
            ConfigurationError: the address cannot be used.
            SinkError: the server refuses the login, or a statement.
        """
        settings = self._settings(name)
        connection = self._connected(settings)
        try:
            with watched(connection, settings, self.answer_seconds) as watch:
                try:
                    yield connection
                except psycopg2.Error as error:
                    if watch.is_cut:
                        raise self._silent() from error
                    raise self._error(error, is_lost=bool(connection.closed)) from error
        finally:
            connection.close()

    def patiently(self, act: Callable[[], T]) -> T:
        """Repeat an action while others hold the locks it needs.

        Raises:
            UnavailableSinkError: they do so for too long.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(BusyError),
            stop=stop_after_delay(self.retry_seconds),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            reraise=True,
        )
        try:
            return retrying(act)
        except BusyError as error:
            raise UnavailableSinkError(
                f"{self.place}: {error}", hint="end that transaction, or run it again later"
            ) from error

    @property
    def place(self) -> str:
        """Return the server without any password."""
        given = self._given()
        host, port = given.get("host", "localhost"), given.get("port", "5432")
        return f"PostgreSQL at {host}:{port}/{given.get('dbname', '')}"

    def _given(self) -> dict[str, str]:
        try:
            given = extensions.parse_dsn(self.url)
        except psycopg2.Error:
            # Without libpq's own words: they quote the string, and so a password.
            raise ConfigurationError(
                "sinks.postgres.url is not a connection string of PostgreSQL",
                hint="an example: postgresql://user:password@host:5432/database?sslmode=verify-full",
            ) from None
        check_address(self.url, given)
        return given

    def _settings(self, name: str) -> dict[str, Any]:
        given = self._given()
        options = f"{given.pop('options', '')} {_SESSION}".strip()
        # With the encoding named here, a new connection asks for nothing else.
        fixed = {"options": options, "application_name": name, "client_encoding": "UTF8"}
        return {**_DEFAULTS, **given, **fixed}

    def _connected(self, settings: Mapping[str, Any]) -> Connection:
        retrying = Retrying(
            retry=retry_if_exception_type(UnavailableSinkError),
            stop=stop_after_delay(self.retry_seconds),
            wait=wait_random_exponential(multiplier=0.2, max=5.0),
            reraise=True,
        )

        def once() -> Connection:
            try:
                connection: Connection = psycopg2.connect(**settings)
            except psycopg2.Error as error:
                raise self._refusal(str(error)) from None
            connection.autocommit = True
            connection.set_client_encoding("UTF8")
            return connection

        return retrying(once)

    def _refusal(self, text: str) -> SinkError:
        said = self._clean(text)
        if any(words in said.lower() for words in _REFUSALS):
            return SinkError(
                f"{self.place} refuses the connection: {said}",
                hint="check user, password, database and TLS parameters of sinks.postgres.url",
            )
        return UnavailableSinkError(
            f"{self.place} does not answer: {said}", hint="see that it runs, then run it again"
        )

    def _silent(self) -> SinkError:
        return UnavailableSinkError(
            f"{self.place} answers nobody for {self.answer_seconds:.0f} s",
            hint="see that it runs, then run it again",
        )

    def _error(self, error: psycopg2.Error, *, is_lost: bool) -> SinkError:
        primary, code = error.diag.message_primary, error.pgcode
        if (
            is_lost
            or code in _LOST
            or (primary is None and isinstance(error, psycopg2.OperationalError))
        ):
            said = self._clean(primary or str(error))
            return UnavailableSinkError(
                f"{self.place} ended the connection: {said}",
                hint="see that it runs, then run it again",
            )
        parts = [primary or str(error), error.diag.message_detail or ""]
        # Other lines of the context may quote the value.
        context = (error.diag.context or "").splitlines()
        parts += [line for line in context if line.startswith("COPY")]
        said = self._clean("; ".join(part for part in parts if part))
        return SinkError(f"{self.place}: {said}", hint=_HINTS.get(code or "", ""))

    def _clean(self, text: str) -> str:
        said = redacted(" ".join(text.split()))
        password = self._given().get("password")
        return (said.replace(password, "***") if password else said)[:600]


def is_busy(error: psycopg2.Error) -> bool:
    """Tell whether an error says that others hold a lock."""
    return error.pgcode in {errorcodes.LOCK_NOT_AVAILABLE, errorcodes.DEADLOCK_DETECTED}
