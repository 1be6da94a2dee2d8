"""A run that may take so long and no longer.

At its end it is asked to stop, as by SIGTERM: it removes what it built and says so. What hangs even
then is ended outright, since a scheduler whose run never ends has no next one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from changelog.runtime.edge import tell
from views.base.failure import RebuildError
from views.rebuild.result.report import ViewResult


@dataclass(slots=True)
class TimeLimit:
    """The time that a run may take."""

    seconds: float | None  # from now on; None is for ever
    stop: Callable[[], bool]  # tells whether somebody else asked the run to end
    clock: Callable[[], float] = time.monotonic  # seconds that only grow
    grace_s: float = 60.0  # from the end of the time until the process is ended, done or not
    _begun: float = field(init=False)
    _was_up: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Begin to count."""
        self._begun = self.clock()

    @property
    def is_over(self) -> bool:
        """Tell whether the time is up."""
        return self.seconds is not None and self.clock() - self._begun >= self.seconds

    def asks_to_stop(self) -> bool:
        """Tell whether the run has to end, for whatever reason."""
        if self.stop():
            return True
        self._was_up = self._was_up or self.is_over
        return self._was_up

    @contextmanager
    def enforced(self, end: Callable[[int], None] = os._exit) -> Iterator[None]:
        """End this process a grace after the time is up, if the block has not ended by then."""
        if self.seconds is None:
            yield
            return

        def ended() -> None:
            tell(
                f"error: not ended {self.grace_s:.0f} s after its time limit: the process is killed"
            )
            end(RebuildError.exit_code)

        timer = threading.Timer(self.seconds + self.grace_s, ended)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def said(self, results: Iterable[ViewResult]) -> list[ViewResult]:
        """Return the results of the run; failures after the time limit name it."""
        if not self._was_up:
            return list(results)
        error = RebuildError(
            f"the run was ended by its time limit of {self.seconds:,.0f} s; no more is published",
            hint="what was published before still serves; --timeout gives it more time",
        )
        return [
            result if result.error is None else replace(result, error=error) for result in results
        ]
