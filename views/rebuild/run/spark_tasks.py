"""The progress of Spark's running tasks, from its status tracker, once a second.

A stage of a rebuild may be one job of Spark's for minutes, as where a large view is written. Which
jobs follow is decided as it runs (adaptive execution), so what is told is of the stages that run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from views.base.pace import Pace, Tell

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

log = logging.getLogger("changelog.views")

_EVERY_S = 1.0


class Tasks(NamedTuple):
    """Tasks of the stages that run now."""

    stages: frozenset[int]  # their ids
    done: int  # tasks that have ended
    total: int  # of all


@contextmanager
def told_tasks(spark: SparkSession, tell: Tell) -> Iterator[None]:
    """Report the progress of Spark's tasks while the block runs, where Spark knows it.

    A session of Spark Connect has no status tracker here.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    ended = threading.Event()
    teller = TaskProgress(tell)
    watch = threading.Thread(
        target=_watch,
        args=(context.statusTracker(), teller, ended),
        name="spark-tasks",
        daemon=True,
    )
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


class TaskProgress:
    """Reports the progress of tasks between looks; each new stage is counted from 0."""

    def __init__(self, tell: Tell, make: Callable[[Tell, str, int, str], Pace] = Pace) -> None:
        """Begin with no look."""
        self._tell, self._make = tell, make
        self._seen = Tasks(frozenset(), 0, 0)
        self._pace: Pace | None = None

    def look(self, tasks: Tasks) -> None:
        """Update the pace from the tasks that Spark has finished."""
        if tasks.stages != self._seen.stages:
            tasks_ahead = tasks.total - tasks.done
            self._pace = (
                self._make(self._tell, "Spark:", tasks_ahead, "tasks") if tasks_ahead else None
            )
        elif self._pace is not None:
            self._pace.add(tasks.done - self._seen.done)
        self._seen = tasks


def _watch(tracker: StatusTracker, teller: TaskProgress, ended: threading.Event) -> None:
    while not ended.wait(_EVERY_S):
        try:
            tasks = running(tracker)
        except Exception as error:  # noqa: BLE001 - a session that ends has another way to say so
            log.debug("Spark does not say how far it is: %s", error)
            return
        teller.look(tasks)


def running(tracker: StatusTracker) -> Tasks:
    """Return the tasks of the stages that run now."""
    stages = {
        number: info
        for number in tracker.getActiveStageIds()
        if (info := tracker.getStageInfo(number)) is not None
    }
    return Tasks(
        frozenset(stages),
        sum(stage.numCompletedTasks for stage in stages.values()),
        sum(stage.numTasks for stage in stages.values()),
    )
