"""Opens connections to the PostgreSQL that serves views; its errors become SinkErrors.

A client is pickled for executors: with its address and times, without its kept connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg2
from psycopg2 import errorcodes

from changelog.contract.base.errors import SinkError
from changelog.postgres.connection import DEFAULTS, Connection, opened, parts_of
from changelog.postgres.errors import NotOpened, is_lost, why_not_opened, without_secrets
from changelog.postgres.watched import watched
from views.sinks.base import BusyError, UnavailableSinkError
from views.sinks.kept import KeptConnection
from views.sinks.retrying import retrying

T = TypeVar("T")

_SESSION = (
    "-c statement_timeout=0 -c datestyle=ISO -c standard_conforming_strings=on "
    "-c extra_float_digits=3 -c intervalstyle=postgres -c bytea_output=hex "
    "-c timezone=UTC -c default_transaction_isolation=read\\ committed "
    "-c default_transaction_read_only=off -c idle_in_transaction_session_timeout=0"
)
_DEPENDS = "drop what depends on it, and create it again afterwards"
_HINTS = {
    errorcodes.DISK_FULL: "free space at the server or keep fewer generations, then run it again",
    errorcodes.INSUFFICIENT_PRIVILEGE: "grant the right, or take another user for the sink",
    errorcodes.DEPENDENT_OBJECTS_STILL_EXIST: _DEPENDS,
    errorcodes.FEATURE_NOT_SUPPORTED: _DEPENDS,
    errorcodes.UNTRANSLATABLE_CHARACTER: "leave such values out, or cast the column to a string",
}


@dataclass(frozen=True, slots=True)
class PostgresClient:
    """A client of a PostgreSQL server that serves views."""

    # libpq's connection string; user, password and TLS parameters may be in it
    url: str = field(repr=False)
    retry_seconds: float  # about how long requests to a busy or absent server are repeated
    answer_seconds: float = 60.0  # how long it may be silent before a connection is given up
    kept: KeptConnection = field(default_factory=KeptConnection, repr=False, compare=False)

    @contextmanager
    def connection(self, name: str = "changelog") -> Iterator[Connection]:
        """Open a connection in autocommit mode; errors inside the block become SinkErrors.

        A thread that keeps its connection gets the same one again.

        Raises:
            UnavailableSinkError: no server answers, or it ended the connection.
            ConfigurationError: the address cannot be used.
            SinkError: the server refuses the login, or a statement.
        """
        settings = self._settings(name)
        with (
            self.kept.lent(lambda: self._connected(settings)) as connection,
            watched(connection, settings, self.answer_seconds) as watch,
        ):
            try:
                yield connection
            except psycopg2.Error as error:
                if watch.is_cut:
                    raise self._silent() from error
                raise self._error(error, closed=bool(connection.closed)) from error

    def patiently(self, act: Callable[[], T]) -> T:
        """Repeat an action while others hold the locks that it needs."""
        try:
            return retrying(BusyError, self.retry_seconds, 0.05, 1.0)(act)
        except BusyError as error:
            raise UnavailableSinkError(
                f"{self.place}: {error}", hint="end that transaction, or run it again later"
            ) from error

    @property
    def place(self) -> str:
        """Return the server's address without the password."""
        parameters = self._parameters()
        host, port = parameters.get("host", "localhost"), parameters.get("port", "5432")
        return f"PostgreSQL at {host}:{port}/{parameters.get('dbname', '')}"

    def _parameters(self) -> dict[str, str]:
        return parts_of(
            self.url,
            named="sinks.postgres.url",
            example="postgresql://user:password@host:5432/database?sslmode=verify-full",
        )

    def _settings(self, name: str) -> dict[str, Any]:
        parameters = self._parameters()
        options = f"{parameters.pop('options', '')} {_SESSION}".strip()
        # With the encoding given here, psycopg2 does not request it.
        fixed = {"options": options, "application_name": name, "client_encoding": "UTF8"}
        return {**DEFAULTS, **parameters, **fixed}

    def _connected(self, settings: Mapping[str, Any]) -> Connection:
        def once() -> Connection:
            try:
                connection = opened(**settings)
            except psycopg2.Error as error:
                raise self._refusal(why_not_opened(error, settings)) from None
            connection.autocommit = True
            connection.set_client_encoding("UTF8")
            return connection

        return retrying(UnavailableSinkError, self.retry_seconds, 0.2, 5.0)(once)

    def _refusal(self, why: NotOpened) -> SinkError:
        if why.passes:
            return UnavailableSinkError(
                f"{self.place} does not answer: {why.message}",
                hint="see that it runs, then run it again",
            )
        return SinkError(
            f"{self.place} refuses the connection: {why.message}",
            hint="look at sinks.postgres.url" + (f": {why.hint}" if why.hint else ""),
        )

    def _silent(self) -> SinkError:
        return UnavailableSinkError(
            f"{self.place} answers nobody for {self.answer_seconds:.0f} s",
            hint="see that it runs, then run it again",
        )

    def _error(self, error: psycopg2.Error, *, closed: bool) -> SinkError:
        primary, code = error.diag.message_primary, error.pgcode
        is_wordless = primary is None and isinstance(error, psycopg2.OperationalError)
        if is_wordless or is_lost(error, closed=closed):
            message = self._clean(primary or str(error))
            return UnavailableSinkError(
                f"{self.place} ended the connection: {message}",
                hint="see that it runs, then run it again",
            )
        parts = [primary or str(error), error.diag.message_detail or ""]
        # Other lines of the context may contain values.
        context = (error.diag.context or "").splitlines()
        parts += [line for line in context if line.startswith("COPY")]
        message = self._clean("; ".join(part for part in parts if part))
        return SinkError(f"{self.place}: {message}", hint=_HINTS.get(code or "", ""))

    def _clean(self, text: str) -> str:
        return without_secrets(text, self._parameters())[:600]
