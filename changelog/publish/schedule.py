"""When a schedule is due, by an expression of cron."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import takewhile

from cronsim import CronSim, CronSimError

from changelog.contract.base.errors import ConfigurationError

_LOOK_S = 0.5


class Schedule:
    """Moments of an expression of cron, in the time zone of this machine."""

    def __init__(self, expression: str) -> None:
        """Take an expression of five fields.

        Raises:
            ConfigurationError: it is none, or names no moment.
        """
        self._expression = expression
        try:
            next(CronSim(expression, datetime.now().astimezone()))
        except (CronSimError, StopIteration) as error:
            raise ConfigurationError(
                f'--every "{expression}" is no schedule of cron: {str(error) or "it is never due"}',
                hint="minute, hour, day, month, weekday: '0 3 * * *' is each night at three",
            ) from None

    def after(self, moment: datetime) -> datetime:
        """Return the first moment that is due after another."""
        found: datetime = next(CronSim(self._expression, moment))
        return found

    def moments(
        self,
        stop: Callable[[], bool],
        *,
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
        wait: Callable[[float], None],
    ) -> Iterator[datetime]:
        """Return each moment when it has come, until stopped; those that passed meanwhile are not.

        Args:
            stop: asked often.
            now: the time.
            wait: waits so many seconds.
        """
        while True:
            due = self.after(now())
            for left in takewhile(lambda _: not stop(), _waits(due, now)):
                wait(min(left, _LOOK_S))
            if stop():
                return
            yield due


def _waits(due: datetime, now: Callable[[], datetime]) -> Iterator[float]:
    while (left := (due - now()) / timedelta(seconds=1)) > 0:
        yield left
