"""Checks that the schema registry still has the schemas under which records are written.

Capture itself asks the registry only for the first row of a table version. A registry that lost its
schemas would be noticed at the next start, and until then no reader could decode the new records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from changelog.contract.base.errors import ChangelogError, LookAgainError

log = logging.getLogger("changelog.capture")

LOOK_S = 30.0
"""Time between two checks; each asks about every registered topic."""

Registered = Mapping[str, int | None]
"""The id of each topic's key schema, or None if it has none or it is not known."""


class SchemaWatch:
    """Asks the registry now and then, in a thread, so that a slow answer delays no row."""

    def __init__(
        self,
        find_lost: Callable[[Registered], Collection[str]],
        registered: Callable[[], Registered],
        *,
        look_s: float = LOOK_S,
    ) -> None:
        """Wait `look_s` before the first check.

        `find_lost` returns the topics, of those registered, whose schemas the registry has lost.
        """
        self._find_lost, self._registered, self._look_s = find_lost, registered, look_s
        self._next_at = time.monotonic() + look_s
        self._lost: Collection[str] = ()

    def step(self, absent: Collection[str]) -> None:
        """Start a check if one is due.

        `absent` topics are in no frontier: they are copied again, or not written at all.

        Raises LookAgainError: schemas are gone; the next attempt decides for each table.
        """
        if lost := sorted({*self._lost} - {*absent}):
            raise LookAgainError(
                f"the schema registry has lost the schemas of {len(lost)} topics: {', '.join(lost)}"
            )
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + self._look_s
            topics = {t: n for t, n in self._registered().items() if t not in absent}
            threading.Thread(target=self._check, args=(topics,), daemon=True).start()

    def _check(self, topics: Registered) -> None:
        try:
            self._lost = self._find_lost(topics)
        except ChangelogError as error:
            log.debug("the schemas of topics are checked later: %s", error)
