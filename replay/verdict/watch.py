"""Watch a read under way, and end it once it is no longer exact."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from changelog.contract.base.errors import LogError, VerdictError

log = logging.getLogger("changelog.replay")

LOOK_S = 30.0
_AGAIN_S = 0.5


class ReadWatch:
    """Checks in a thread of its own, while the work runs, until the block is left.

    What it has found is raised when the block is left, in place of what its end has made of the
    work.
    """

    def __init__(
        self,
        check: Callable[[], float],
        cancel: Callable[[], None],
        *,
        first_s: float = LOOK_S,
        look_s: float = LOOK_S,
    ) -> None:
        """Prepare to watch.

        `check`: raises VerdictError when the read is exact no more; gives in how many seconds it
        has to be asked again at the latest. `cancel`: ends the work; called again and again, since
        the work may be between two jobs. `first_s`: when to check first, in seconds from the start.
        `look_s`: the longest time between two checks, in seconds.
        """
        self._check = check
        self._cancel = cancel
        self._first_s = first_s
        self._look_s = look_s
        self._ended = threading.Event()
        self._verdict_error: VerdictError | None = None
        self._thread = threading.Thread(target=self._run, name="verdict", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching.

        Raises VerdictError: a check has failed.
        """
        self._ended.set()
        self._thread.join()
        if self._verdict_error is not None:
            raise self._verdict_error from error

    @property
    def has_failed(self) -> bool:
        """Tell whether a check has failed, so that errors of the work are only of its end."""
        return self._verdict_error is not None

    def _run(self) -> None:
        wait_s = min(self._first_s, self._look_s)
        while not self._ended.wait(wait_s):
            try:
                wait_s = min(self._look_s, max(_AGAIN_S, self._check()))
            except VerdictError as error:
                self._verdict_error = error
                break
            except LogError as error:
                log.debug("the log cannot be watched now", exc_info=error)
                wait_s = _AGAIN_S  # whoever reads fails too, or its check after the read does
        while self._verdict_error is not None and not self._ended.wait(_AGAIN_S):
            self._cancel()
