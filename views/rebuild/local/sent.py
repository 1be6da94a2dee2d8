"""Digests of the rows that a follower has sent to the sinks of its views.

A row that is computed again and is the same as it was sent is not sent again. The digests are kept
in memory alone: after a start, rows that are computed again are sent once more, the same or not.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_KEYS = 300_000
"""Of all views, in about 50 MB. One more, and all are forgotten."""


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
