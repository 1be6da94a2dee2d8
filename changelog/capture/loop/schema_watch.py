"""Watches that the schema registry has the schemas under which records are written.

Rows need the registry at the first of their version alone. One that was emptied meanwhile would be
noticed at the next start, and until then no reader could decode what is written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from changelog.contract.base.errors import ChangelogError, LookAgainError

log = logging.getLogger("changelog.capture")

LOOK_S = 30.0
"""Time between two looks."""

Registered = Mapping[str, int | None]
"""Topics with the id of their keys' schema; None where keys have none, or it is not known."""


class SchemaWatch:
    """Asks the registry now and then, in a thread: a slow answer holds no row up."""

    def __init__(
        self,
        ask: Callable[[Registered], Collection[str]],
        registered: Callable[[], Registered],
        *,
        look_s: float = LOOK_S,
    ) -> None:
        """Prepare; the first look comes after `look_s`.

        `ask` returns which of the registered topics the registry has lost the schemas of.
        """
        self._ask, self._registered, self._look_s = ask, registered, look_s
        self._next_at = time.monotonic() + look_s
        self._lost: Collection[str] = ()

    def step(self, absent: Collection[str]) -> None:
        """Look, unless the last time was a moment ago.

        No frontier speaks of `absent` topics: they are written anew, or not at all.

        Raises LookAgainError: schemas are gone; the next attempt says of which tables, and decides.
        """
        if lost := sorted({*self._lost} - {*absent}):
            raise LookAgainError(
                f"the schema registry has lost the schemas of {len(lost)} topics: {', '.join(lost)}"
            )
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + self._look_s
            topics = {t: n for t, n in self._registered().items() if t not in absent}
            threading.Thread(target=self._look, args=(topics,), daemon=True).start()

    def _look(self, topics: Registered) -> None:
        try:
            self._lost = self._ask(topics)
        except ChangelogError as error:
            log.debug("the schemas of topics are looked for later: %s", error)
