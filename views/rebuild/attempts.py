"""Try again after a server's restart: a broker that returns gives partitions new leaders.

A read across a change of leader is in doubt, since replicas clean each on their own, so it is not
used. The log itself may well be exact: a new read, judged anew, says so, and refuses when it is
not. Nothing of the read that was ended has been published.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from changelog.contract.base.errors import LogMovedError, UnavailableError, UnavailableLogError
from views.rebuild.result.outcome import Outcome

log = logging.getLogger("changelog.views")

PASSING = (UnavailableError, LogMovedError)
"""What the next attempt may not meet. What stays is refused by the verdict before its read."""
_OF_THE_LOG = (UnavailableLogError, LogMovedError)
_WAITS_S = (1.0, 5.0, 15.0)
"""Before each further attempt; a broker needs 4 to 13 s to come back from kill -9."""
_LOOK_S = 0.5


def attempted(attempt: Callable[[], Outcome], stop: Callable[[], bool]) -> Outcome:
    """Return the outcome of the first attempt that the log did not move under.

    Args:
        attempt: freezes a frontier, judges, reads and publishes; leaves nothing when it fails.
        stop: tells whether somebody asked to end.

    Raises:
        ChangelogError: the first attempt could not begin.
    """
    outcome = attempt()
    for number, wait_s in enumerate(_WAITS_S, start=2):
        error = outcome.error
        if stop() or not isinstance(error, _OF_THE_LOG):
            break
        log.warning("%s; reads again, attempt %d of %d", error.args[0], number, len(_WAITS_S) + 1)
        rest(time.monotonic() + wait_s, stop)
        try:
            outcome = attempt()
        except _OF_THE_LOG as still:
            outcome = Outcome(outcome.results, still)
    return outcome


def rest(until: float, stop: Callable[[], bool]) -> None:
    """Wait until a moment of the monotonic clock, or until somebody asks to end."""
    while not stop() and (remaining := until - time.monotonic()) > 0:
        time.sleep(min(remaining, _LOOK_S))
