"""The table that readers open, and the interface of the modes that publish to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2 import sql

from changelog.contract.base.errors import SinkError
from changelog.postgres.connection import Connection
from changelog.postgres.errors import is_busy
from views.sinks.base import BusyError
from views.sinks.postgres.registry import Entry, GenerationRegistry
from views.sinks.postgres.stable import Columns, Stable

LOCK_TIMEOUT = "SET LOCAL lock_timeout = '100ms'"
"""Short, because later requests for the table wait for this one."""


@dataclass(frozen=True, slots=True)
class Readers(ABC):
    """The table that readers open, in one of the modes of publishing."""

    registry: GenerationRegistry  # the entries of the view
    stable: Stable  # the table
    auto_create: bool  # whether we create and change it

    @abstractmethod
    def check(self, cursor: Any, columns: Columns = ()) -> None:  # noqa: ANN401
        """Check that it is ours, or fits; `columns` are names and types of the view's columns.

        Raises SinkError: it was created by others, or does not fit.
        """

    def current(self, cursor: Any) -> int | None:  # noqa: ANN401
        """Return the generation that readers see."""
        own = self.registry.made(cursor)
        if own is None or own != self.stable.oid(cursor):
            return None
        return self._serving(cursor, own)

    @abstractmethod
    def _serving(self, cursor: Any, table: int) -> int | None:  # noqa: ANN401
        """Return the generation in the table with this object id."""

    def prepare(self, cursor: Any, relation: str) -> None:  # noqa: ANN401, B027
        """Prepare a generation, before any lock is requested."""

    def wait(self, cursor: Any, entry: Entry) -> None:  # noqa: ANN401, B027
        """Raise BusyError while a transaction would not see the generation's rows."""

    @abstractmethod
    def move(self, cursor: Any, entry: Entry, generation: int) -> None:  # noqa: ANN401
        """Publish a sealed generation when the transaction of a cursor is committed.

        Raises SinkError: the table does not fit, or its rows cannot become the generation's.
        """

    @abstractmethod
    def drop(self, cursor: Any) -> None:  # noqa: ANN401
        """Remove the table that readers open."""

    def holds_back(self) -> str | None:
        """Return the reason why readers would see a delta in parts, or None."""
        return None

    def also(self, cursor: Any, generation: int) -> sql.Identifier | None:  # noqa: ANN401, ARG002
        """Return the second table that a delta is applied to, besides the generation's, or None."""
        return None

    def _other_mode(self, evidence: str) -> SinkError:
        return SinkError(
            f"{self.stable.target} {evidence}: it was created in another mode",
            hint=f"`rebuild-view {self.registry.view} --drop` removes it; then rebuild, or "
            "name that mode again",
        )

    def _unfit(self, reason: str, hint: str = "") -> SinkError:
        return SinkError(f"{self.stable.target} does not fit: {reason}", hint=hint)


def briefly(connection: Connection, act: Callable[[Any], None]) -> None:
    """Run an action in one transaction that waits for locks only briefly.

    Raises BusyError: others hold a lock that it needs.
    """
    with connection, connection.cursor() as cursor, briefly_waiting(cursor):
        act(cursor)


@contextmanager
def briefly_waiting(cursor: Any) -> Iterator[None]:  # noqa: ANN401
    """Wait for locks only briefly, in the block of a transaction.

    Raises BusyError: others hold a lock that it needs.
    """
    try:
        cursor.execute(LOCK_TIMEOUT)
        yield
    except psycopg2.Error as error:
        if is_busy(error):
            raise BusyError("a transaction holds a lock on the view's table") from error
        raise
