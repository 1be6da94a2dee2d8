"""The table that readers open, and the interface of the modes that move a generation there."""

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
"""So long a lock is asked for: whoever comes later waits behind the request."""


@dataclass(frozen=True, slots=True)
class Readers(ABC):
    """The table that readers open, in the mode that moves generations there."""

    registry: GenerationRegistry  # the entries of the view
    stable: Stable  # the table
    auto_create: bool  # whether it is ours to make and to change

    @abstractmethod
    def check(self, cursor: Any, columns: Columns = ()) -> None:  # noqa: ANN401
        """Check that it is ours, or fits; `columns` are names and types of the view's columns.

        Raises SinkError: it is somebody else's, or does not.
        """

    def current(self, cursor: Any) -> int | None:  # noqa: ANN401
        """Return the generation that readers see."""
        own = self.registry.made(cursor)
        if own is None or own != self.stable.found(cursor):
            return None
        return self._serving(cursor, own)

    @abstractmethod
    def _serving(self, cursor: Any, table: int) -> int | None:  # noqa: ANN401
        """Return the generation that the table of this object id holds."""

    def prepare(self, cursor: Any, relation: str) -> None:  # noqa: ANN401, B027
        """Make a generation ready, before any lock is asked for."""

    def wait(self, cursor: Any, entry: Entry) -> None:  # noqa: ANN401, B027
        """Raise BusyError while a transaction could not read a generation."""

    @abstractmethod
    def move(self, cursor: Any, entry: Entry, generation: int) -> None:  # noqa: ANN401
        """Show readers a sealed generation once the transaction of a cursor is committed.

        Raises SinkError: the table does not fit, or its rows cannot be those of the generation.
        """

    @abstractmethod
    def drop(self, cursor: Any) -> None:  # noqa: ANN401
        """Remove what readers see."""

    def holds_back(self) -> str | None:
        """Return the reason why readers would see a delta in parts, or None."""
        return None

    def also(self, cursor: Any, generation: int) -> sql.Identifier | None:  # noqa: ANN401, ARG002
        """Return the second table that a delta goes to, after the generation's, if there is one."""
        return None

    def _other_mode(self, evidence: str) -> SinkError:
        return SinkError(
            f"{self.stable.target} {evidence}: it was made in another mode",
            hint=f"`rebuild-view {self.registry.view} --drop` removes it; then rebuild, or "
            "name that mode again",
        )

    def _unfit(self, reason: str, hint: str = "") -> SinkError:
        return SinkError(f"{self.stable.target} does not fit: {reason}", hint=hint)


def briefly(connection: Connection, act: Callable[[Any], None]) -> None:
    """Do something in one transaction that waits for no lock longer than a moment.

    Raises BusyError: somebody holds a lock that it needs.
    """
    with connection, connection.cursor() as cursor, briefly_waiting(cursor):
        act(cursor)


@contextmanager
def briefly_waiting(cursor: Any) -> Iterator[None]:  # noqa: ANN401
    """Wait for no lock longer than a moment, in the block of a transaction.

    Raises BusyError: somebody holds a lock that it needs.
    """
    try:
        cursor.execute(LOCK_TIMEOUT)
        yield
    except psycopg2.Error as error:
        if is_busy(error):
            raise BusyError("a transaction holds a lock on the view's table") from error
        raise
