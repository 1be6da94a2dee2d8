"""How often a stream is read: for many small transactions at once, not for each."""

from __future__ import annotations

import time
from collections.abc import Callable

from changelog.native import Texts

_BUSY = 100  # messages at once that tell of more to come
_NAPS, _NAP_S = 4, 0.002
_PACE_S = 0.003


class Pace:
    """Spaces the rounds of a reader: a round costs more than its rows."""

    def __init__(self) -> None:
        self._until = 0.0

    def wait(self) -> None:
        """Wait until the next round may begin."""
        remaining_s = self._until - time.monotonic()
        if remaining_s > 0:
            time.sleep(remaining_s)

    def gather(self, payloads: Texts, limit: int, read: Callable[[], object]) -> None:
        """Wait until a busy server has filled the socket: one large batch costs less than many.

        Args:
            payloads: what the round has so far.
            limit: the most that it takes.
            read: adds what has arrived; gives something false where nothing has.
        """
        if len(payloads) < _BUSY:
            return
        for _ in range(_NAPS):
            if len(payloads) >= limit // 2:
                break
            time.sleep(_NAP_S)
            if not read():
                break

    def ended(self, payloads: Texts) -> None:
        """Note the payloads of a round."""
        self._until = time.monotonic() + _PACE_S if len(payloads) else 0.0
