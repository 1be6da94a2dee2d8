"""Digests of the rows that a follower has sent to the sinks of its views.

A row that is computed again and is the same as it was sent is not sent again. The digests are kept
in memory alone: after a start, rows that are computed again are sent once more, the same or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_KEYS = 300_000
"""Of all views, in 7 MB. One more, and all are forgotten."""
_DIGEST = np.dtype("V16")
_NONE = (np.empty(0, np.int64), np.empty(0, _DIGEST))


class SentDigests:
    """Digests of sent rows, or of their absence, by view and key.

    Python's hash stands for a key. Keys that share one replace each other, so a row of theirs may
    be sent again, but none is left out: a digest is of key and row.
    """

    def __init__(self) -> None:
        # ordered hashes of keys, and the digest of each
        self._sent: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]] = {}

    def unsent(self, view: str, digests: Mapping[str, bytes]) -> set[str]:
        """Return the keys whose digests differ from the last ones sent, and note them as sent.

        `digests`: of 16 bytes, of key and row.
        """
        keys = sorted(digests, key=hash)
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        values = np.frombuffer(b"".join(digests[key] for key in keys), _DIGEST)
        kept, sent = self._sent.get(view, _NONE)
        at = np.searchsorted(kept, hashes)
        is_kept = at < len(kept)
        is_kept[is_kept] = kept[at[is_kept]] == hashes[is_kept]
        is_sent = is_kept.copy()
        is_sent[is_kept] = sent[at[is_kept]] == values[is_kept]
        is_first = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]  # of its hash
        is_new = is_first & ~is_kept
        if sum(len(of_view) for of_view, _ in self._sent.values()) + is_new.sum() > MOST_KEYS:
            self.forget()
            self._sent[view] = hashes[is_first], values[is_first]
        else:
            sent[at[is_kept]] = values[is_kept]
            new = at[is_new]
            self._sent[view] = (
                np.insert(kept, new, hashes[is_new]),
                np.insert(sent, new, values[is_new]),
            )
        return {key for key, was in zip(keys, is_sent.tolist(), strict=True) if not was}

    def forget(self, view: str | None = None) -> None:
        """Forget the digests of a view, or of all views."""
        if view is None:
            self._sent.clear()
        else:
            self._sent.pop(view, None)
