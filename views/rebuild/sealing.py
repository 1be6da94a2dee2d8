"""Bring checkpoints forward while a follower makes its rounds without Spark.

Such rounds leave the stored states behind. They are what the next start goes on from, and they must
not come near the moment from which deletes may have been missed; so every few minutes they are
brought to the newest frontier, in a thread: a job of Spark's over what came since. Where no session
of Spark's is there, one is started for it, once an hour.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Self

from changelog.contract.base.errors import ChangelogError
from replay.spark.files import Files
from replay.spark.session import is_started, session
from replay.store.advancer import Advancer
from replay.store.plan import Advance
from views.base.config import RebuildSettings, VerifyMode
from views.generations.lock import advancing
from views.generations.place import LockPlace
from views.generations.sweep import sweep
from views.project.spec import ViewSpec
from views.rebuild.plan.plan import logs_of, store_of
from views.rebuild.plan.plannable import plannable

log = logging.getLogger("changelog.views")

EVERY_S = 180.0
HOURLY_S = 3600.0
"""Where a session of Spark's has to be started for it."""
_NOT_BEFORE_S = 600.0
"""Of a start without Spark: what is due waits for so long."""


class Sealer:
    """Brings the checkpoints of some views' tables forward, in a thread; a context manager."""

    def __init__(
        self, specs: Sequence[ViewSpec], settings: RebuildSettings, place: LockPlace
    ) -> None:
        self._specs, self._settings, self._place = specs, settings, place
        # There are no checkpoints of others' logs.
        self._is_needed = not logs_of(specs, settings)
        self._pool = ThreadPoolExecutor(1, "seal")
        self._running: Future[None] | None = None
        self._sealed = time.monotonic()

    def __enter__(self) -> Self:
        """Do nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what runs."""
        self._pool.shutdown()

    @property
    def is_running(self) -> bool:
        """Tell whether a run is under way."""
        return self._running is not None and not self._running.done()

    def started(self, advance: Advance | None) -> None:
        """Count from when the checkpoints were made: a start without Spark leaves them there."""
        steps = [] if advance is None else advance.steps.values()
        moments = [
            step.checkpoint.at for step in steps if step.checkpoint and not step.needs_no_read
        ]
        if moments:
            age_s = (datetime.now(UTC) - min(moments)).total_seconds()
            self._sealed = time.monotonic() - min(age_s, HOURLY_S - _NOT_BEFORE_S)

    def beside(self) -> None:
        """Start a run if one is due and none is under way."""
        every_s = EVERY_S if is_started() else HOURLY_S
        if self._is_needed and not self.is_running and time.monotonic() - self._sealed >= every_s:
            self._sealed = time.monotonic()
            self._running = self._pool.submit(self._seal)

    def done(self) -> None:
        """Wait for what runs: a round of Spark's brings the same checkpoints forward."""
        if self._running is not None:
            self._running.result()
        self._sealed = time.monotonic()

    def _seal(self) -> None:
        begun = time.monotonic()
        try:
            self._advance()
        except Exception as error:
            is_ours = isinstance(error, ChangelogError)
            log.warning("checkpoints stay where they are: %s", error, exc_info=not is_ours)
        else:
            log.info("checkpoints brought forward: %.1f s", time.monotonic() - begun)

    def _advance(self) -> None:
        project = self._settings.project
        with advancing(self._place):
            # Nobody proves checkpoints: what is computed from them is proved.
            plan = plannable(self._specs, replace(self._settings, verify=VerifyMode.NONE)).plan
            if plan is None or plan.advance is None:
                return
            store = store_of(project)
            stored = Advancer(
                spark=session(self._settings.session()),
                kafka=project.kafka,
                store=store,
                stage=_untold,
                keep_days=self._settings.rebuild.checkpoint_days,
            ).advance(plan.advance, plan.schemas)
        sweep(Files(), store, stored)


@contextmanager
def _untold(_name: str, _text: str) -> Iterator[None]:
    yield
