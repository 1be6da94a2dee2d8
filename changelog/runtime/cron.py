"""When a schedule is due, by an expression of cron."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.runtime.edge import say_error

log = logging.getLogger("changelog")

_LOOK_S = 0.5


class CronSchedule:
    """Moments of an expression of cron, in one time zone."""

    def __init__(self, expression: str, *, zone: str = "", where: str = "--every") -> None:
        """Take an expression of five fields: minute, hour, day, month, day of the week.

        A zone is such as `Europe/Berlin`; that of this machine where it is empty. `where` is who
        gave the expression, for errors.

        Raises ConfigurationError: it is none, or names no moment; or there is no such time zone.
        """
        self._expression = expression
        try:
            self._zone = ZoneInfo(zone) if zone else None
        except (ValueError, ZoneInfoNotFoundError, OSError):
            raise ConfigurationError(
                f'{where}: there is no time zone "{zone}"', hint="one such as Europe/Berlin, or UTC"
            ) from None
        try:
            self.after(datetime.now(UTC))
        except (CronSimError, StopIteration) as error:
            why = str(error) or "it is never due"
            raise ConfigurationError(
                f'{where}: "{expression}" is no schedule of cron: {why}',
                hint="minute, hour, day, month, weekday: '0 3 * * *' is each night at three",
            ) from None

    def after(self, moment: datetime) -> datetime:
        """Return the first moment that is due after another."""
        due: datetime = next(CronSim(self._expression, moment.astimezone(self._zone)))
        return due

    def moments(
        self,
        stop: Callable[[], bool],
        *,
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
        wait: Callable[[float], None],
    ) -> Iterator[datetime]:
        """Yield each moment when it has come, until stopped; moments missed meanwhile are skipped.

        `stop` is asked often; `wait` waits so many seconds.
        """
        while True:
            due = self.after(now())
            for wait_s in takewhile(lambda _: not stop(), _waits(due, now)):
                wait(min(wait_s, _LOOK_S))
            if stop():
                return
            yield due


def _waits(due: datetime, now: Callable[[], datetime]) -> Iterator[float]:
    while (wait_s := (due - now()) / timedelta(seconds=1)) > 0:
        yield wait_s


def repeat(expression: str, run: Callable[[], None], stop: Callable[[], bool]) -> None:
    """Run at each moment of an expression until `stop`; the next run follows one that failed.

    Raises ConfigurationError: the expression is none, or a run is configured wrong.
    """
    schedule = CronSchedule(expression)
    _log_next(schedule)
    for _ in schedule.moments(stop, wait=time.sleep):
        try:
            run()
        except ConfigurationError:
            raise
        except ChangelogError as error:
            say_error(error)
        _log_next(schedule)


def _log_next(schedule: CronSchedule) -> None:
    log.info("the next run is at %s", schedule.after(datetime.now(UTC)).isoformat(" ", "minutes"))
