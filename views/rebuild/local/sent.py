"""Digests of the rows that a follower has sent to the sinks of its views.

A row that is computed again and comes out as it was sent is not sent again. They are held for as
long as the process lives: after a start, what changed is sent once more, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_KEYS = 300_000
"""Of all views: 50 MB. Where they would be more, all are forgotten."""


class SentDigests:
    """Digests of sent rows, or of their absence, by view and key."""

    def __init__(self) -> None:
        self._digests: dict[str, dict[str, bytes]] = {}

    def unsent(self, view: str, digests: Mapping[str, bytes]) -> set[str]:
        """Return the keys whose digests differ from the last ones sent, and note them as sent."""
        sent = self._digests.setdefault(view, {})
        keys = {key for key, digest in digests.items() if sent.get(key) != digest}
        if sum(map(len, self._digests.values())) + len(keys) > MOST_KEYS:
            self.forget()
            sent = self._digests.setdefault(view, {})
        sent.update((key, digests[key]) for key in keys)
        return keys

    def forget(self, view: str | None = None) -> None:
        """Forget the digests of a view, or of all views."""
        if view is None:
            self._digests.clear()
        else:
            self._digests.pop(view, None)
