"""Keep views fresh: refresh them again and again, as the frontier moves.

The first round goes on, without Spark, from what an earlier follower of the same views has kept
(`views.rebuild.local.kept`). Where nothing fits it is a refresh like any other, and where all sinks
of all views can do it, the next ones bring the generations that serve forward by the changed keys,
without Spark (`views.rebuild.resident`); else each round writes new ones. Whatever ends this
process leaves what serves whole. Which frontier serves is on record with the generation itself, so
the next start goes on from there, and a round that was killed behind its swap is not done a second
time.

Between two rounds the newest frontier is looked at. A frontier behind which no record of the
views' tables lies starts no round, unless the checkpoints grow old: they must not come near the
moment from which deletes may have been missed.

Logs of other programs have no frontier, and those of other captures have one of their own: a round
is made once a partition that is read ends elsewhere. Spark computes views of them whole; without it
they go forward like the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from changelog.contract.base.errors import (
    ChangelogError,
    RefusedAccessError,
    TableCopiedError,
    UnavailableError,
    ViewError,
)
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.runtime.process.memory import leave_code
from replay.base.clock import clock_ms
from views.base.config import RebuildSettings
from views.base.progress import Stages
from views.generations.history import GenerationHistory
from views.generations.lock import Moving, advancing, following
from views.generations.place import LockPlace, place_for
from views.generations.served import MakeServed, served_of
from views.generations.succession import serving
from views.project.definition import changed_declaration
from views.project.spec import ViewSpec, short_name
from views.rebuild.apart import Apart, FollowCommand
from views.rebuild.local.newest import Newest, NewestLogs
from views.rebuild.plan.plan import (
    groups_of,
    logs_of,
    no_frontier,
    tables_of,
    unkeyed_of,
)
from views.rebuild.plan.plannable import plannable
from views.rebuild.rebuild import PASSING, RebuildRun, rest
from views.rebuild.resident import NotHereError, Resident
from views.rebuild.result.report import Outcome, worst
from views.rebuild.sealing import Sealer

log = logging.getLogger("changelog.views")

_FORWARD_S = 1.0
"""Between two rounds that send the changed keys alone, at least."""
_HERE_S = 0.2
"""And between two of those that are made without Spark."""
_IDLE_S = 5.0
"""While nothing comes, the brokers are asked at least this often; else when something comes."""
_SPARK_STAYS_S = 60.0
"""After a round of Spark's its session stays for so long, though no round needs it."""
_OLD_MS = 3_600_000
"""So old a checkpoint gets, at most, while nothing happens."""
_AT_END_S = 5.0
"""Waits so long, at most, for sinks that have not got all yet; then for what is under way."""
_MANY_RECORDS = 10_000
"""A round that reads more leaves much memory that it has freed."""
_WAITS_S = (1, 2, 5, 10, 30)
"""Between attempts while a server does not answer; the last one again and again."""


@dataclass(frozen=True, slots=True)
class SeenFrontier:
    """The parts of a frontier that matter to some tables."""

    record: FrontierRecord
    facts: tuple[object, ...]

    @classmethod
    def of(cls, record: FrontierRecord, tables: Sequence[TableName]) -> SeenFrontier:
        """Return the parts of a frontier that would change the tables' states."""
        return cls(record, tuple(map(record.frontier.facts_of, tables)))

    def calls_for_a_round(self, newest: SeenFrontier, now_ms: int) -> bool:
        """Tell whether a newer frontier has new records, or the present one has grown old."""
        if newest.facts != self.facts:
            return True
        has_moved = newest.record.offset != self.record.offset
        return has_moved and now_ms - self.record.appended_ms >= _OLD_MS


def follow(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    *,
    stages: Callable[[], Stages],
    stop: Callable[[], bool],
    show: Callable[[Outcome], None],
    make: Callable[..., RebuildRun] = RebuildRun,
    command: FollowCommand | None = None,
    end_spark: Callable[[], None] = lambda: None,
) -> Outcome:
    """Refresh views until a stop is requested; return the outcome of a failure that ended it.

    Views that would keep the others waiting are followed by a process of their own, and so are
    those that fail while others do not, unless all are to go together.

    `stop`: tells whether to end; an end between two rounds is no failure. `show`: is given the
    outcome of each round that is done. `command`: follows some of the views; None to follow all of
    them here, whoever waits. `end_spark`: ends the session of this process; it is called when the
    next rounds need none.

    Raises LockedError: another process follows one of the views; ViewError: some views read logs of
    others, and some own tables alone, and all have to be followed here.
    """
    with Apart(None if settings.together else command) as apart:
        here, *others = groups_of(specs, settings)
        if others and not apart.is_possible:
            declared = [spec for spec in specs if logs_of([spec], settings)]
            obstacle = "they cannot be followed together with views of captured tables"
            raise no_frontier(declared, obstacle, "follow them by a command of their own")
        for group in others:
            apart.add([spec.name for spec in group])
        outcome = Outcome(())
        while here:
            rounds = _Following(
                stages=stages, stop=stop, show=show, make=make, apart=apart, end_spark=end_spark
            )
            outcome = rounds.follow(here, settings)
            if not rounds.parted:
                break
            apart.add(list(rounds.parted))
            here = [spec for spec in here if spec.name not in rounds.parted]
        while not (here or stop()):
            apart.begin()
            apart.check()
            rest(time.monotonic() + _FORWARD_S, stop)
        return replace(outcome, error=worst([outcome.error, *apart.failures()]))


@dataclass(slots=True, kw_only=True)
class _Following:
    """Follows some views in this process; failing or slow views may get a process of their own."""

    stages: Callable[[], Stages]
    stop: Callable[[], bool]
    show: Callable[[Outcome], None]
    make: Callable[..., RebuildRun]
    apart: Apart
    end_spark: Callable[[], None]
    parted: Mapping[str, str] = field(default_factory=dict)  # those, with the reason of each

    def follow(self, specs: Sequence[ViewSpec], settings: RebuildSettings) -> Outcome:
        """Refresh the views again and again; release their locks at the end."""
        failures, by_spark = 0, False
        names = [spec.name for spec in specs]
        moving = Moving(place_for(settings), names, self.stop, keeps=True)
        forward = replace(settings, forward=True)
        locks = ExitStack()
        with (
            locks,
            Resident(forward, moving.place.confirm) as resident,
            Follower(
                specs, forward, resident,
                stages=self.stages, stop=self.stop, make=self.make, moving=moving,
            ) as follower,
        ):  # fmt: skip
            self._lock(locks, moving.place, names)
            while not self.stop():
                begun, was_here = time.monotonic(), follower.is_here
                self.apart.check()
                outcome = follower.round()
                error = outcome.error if outcome is not None else None
                if error is not None and not self.stop() and not isinstance(error, PASSING):
                    failed = outcome or Outcome(())
                    if self._parts_failed(failed, names):
                        self.show(failed)
                        break
                    if not _is_waited_for(failed):
                        # A round without Spark does not tell whose error it is: one of Spark's
                        # does.
                        if failed.results or not was_here or by_spark:
                            return failed
                        by_spark = True
                elif error is None and outcome is not None:
                    by_spark = False
                if error is not None:
                    log.warning("%s", error)
                elif outcome is not None:
                    self.show(outcome)
                    if self._parts(follower):
                        break
                was_long_here = time.monotonic() - follower.by_spark_at >= _SPARK_STAYS_S
                if was_long_here and not follower.needs_spark:
                    self.end_spark()
                self.apart.begin()
                failures = failures + 1 if error is not None else 0
                self._rest(follower, outcome, begun, settings.rebuild.follow_seconds, failures)
        return Outcome(())

    def _rest(
        self,
        follower: Follower,
        outcome: Outcome | None,
        begun: float,
        follow_seconds: float,
        failures: int,
    ) -> None:
        """Wait before the next round, after one that began at a moment; None for no round."""
        least = follow_seconds
        if outcome is None or all(result.switch_seconds is None for result in outcome.results):
            # Nothing was written anew.
            least = min(least, _HERE_S if follower.is_here else _FORWARD_S)
        if failures:
            least = _WAITS_S[min(failures, len(_WAITS_S)) - 1]
        rest(begun + least, self.stop)
        if outcome is None:
            follower.wait(time.monotonic() + _IDLE_S)

    def _lock(self, locks: ExitStack, place: LockPlace, names: Sequence[str]) -> None:
        """Take the locks of the views; wait for brokers that do not answer, until a stop.

        Raises LockedError: another process follows one of the views; RefusedAccessError: the
        brokers do not let us in, which is a matter of configuration at a start.
        """
        failures = 0
        while not self.stop():
            try:
                locks.enter_context(following(place, names))
            except RefusedAccessError:
                raise
            except UnavailableError as error:
                failures += 1
                wait_s = _WAITS_S[min(failures, len(_WAITS_S)) - 1]
                log.warning("%s; tried again in %d s", error, wait_s)
                rest(time.monotonic() + wait_s, self.stop)
            else:
                return

    def _parts_failed(self, outcome: Outcome, names: Sequence[str]) -> bool:
        """Follow failing views apart, so that the rest goes on; return False if none can be."""
        if not self.apart.is_possible:
            return False
        failed = {
            result.view: str(result.error) for result in outcome.results if result.error is not None
        }
        # Where all fail, it is for one reason, and there is nobody to be kept from it.
        if len(failed) == len(names) and (len(names) > 1 or self.apart.is_empty):
            return False
        self.parted = failed
        for view, why in failed.items():
            log.error('view "%s" failed, and is followed by a process of its own: %s', view, why)
        return bool(failed)

    def _parts(self, follower: Follower) -> bool:
        self.parted = follower.keep_others_waiting() if self.apart.is_possible else {}
        for view, why in self.parted.items():
            log.info('view "%s" is followed by a process of its own: %s', view, why)
        return bool(self.parted)


def _is_waited_for(failed: Outcome) -> bool:
    """Tell whether the views of a round all fail only until a table is copied."""
    errors = [result.error for result in failed.results if result.error is not None]
    return bool(errors) and all(isinstance(error, TableCopiedError) for error in errors)


class Follower:
    """Makes the rounds, and remembers which frontiers they have applied; a context manager.

    `make`: makes a round of Spark's. `moving`: lets nobody else move readers during a round; its
    own if None. `make_served`: gives the sinks of a view.
    """

    def __init__(
        self,
        specs: Sequence[ViewSpec],
        settings: RebuildSettings,
        resident: Resident,
        *,
        stages: Callable[[], Stages],
        stop: Callable[[], bool],
        make: Callable[..., RebuildRun],
        moving: Moving | None = None,
        make_served: MakeServed = served_of,
    ) -> None:
        names = [spec.name for spec in specs]
        self._moving = moving or Moving(place_for(settings), names, stop)
        self._place = self._moving.place
        self._make_served = make_served
        self._serves: dict[str, int] = {}
        self._specs = specs
        self._settings = settings
        self._resident = resident
        self._looked = time.monotonic()
        self.by_spark_at = time.monotonic()
        """When Spark made a round last, or, before the first one, when this began."""
        self._stages = stages
        self._stop = stop
        self._make = make
        self._tables = tables_of(specs)
        self._done: SeenFrontier | None = None
        self._has_started = False
        self._holds_still = False
        self._is_settled = False
        self._sealer = Sealer(specs, settings, self._place)
        self._newest = NewestLogs(specs, settings, resident.kafka)

    def __enter__(self) -> Self:
        """Do nothing yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the proved rows to the sinks that answer, and wait for background work."""
        sending = self._resident.sending
        if kind is None and self._holds_still:
            sending.drain(_AT_END_S)
        is_idle = sending.end(_AT_END_S)
        if not is_idle:
            log.warning("a sink does not answer; the next start brings it forward from where it is")
        if self._holds_still and is_idle:
            self._moving.__exit__()
        self._sealer.__exit__(kind, error, trace)
        self._newest.close()

    def wait(self, until: float) -> None:
        """Wait for new records, at most until a moment, if rounds without Spark can follow them."""
        if self.is_here and not self._resident.sending.is_busy:
            self._newest.wait(until, self._stop)

    def round(self) -> Outcome | None:
        """Refresh once if there are new records; return None if there are none.

        Raises LockedError: it was asked to end while a rebuild moved readers.
        """
        try:
            self._hold_still()
        except UnavailableError as error:
            return Outcome((), error)
        try:
            return self._round()
        finally:
            # Whoever moves readers waits until no sink is written to any more.
            if not self._resident.sending.is_busy or self._moving.is_wanted():
                self._let_others()

    def _hold_still(self) -> None:
        """Hold the lock on readers for as long as a sink may be written to."""
        if not self._holds_still:
            self._moving.__enter__()
            self._holds_still = True
            self._resident.sending.resume()

    def _let_others(self) -> None:
        if self._resident.sending.pause(self._stop):
            self._holds_still = False
            self._moving.__exit__()
        else:
            self._resident.sending.resume()

    def _round(self) -> Outcome | None:
        try:
            newest = self._newest.read()
        except UnavailableError as error:
            return Outcome((), error)
        record = newest.record
        seen = SeenFrontier.of(record, self._tables)
        is_new = self._done is None or self._done.calls_for_a_round(seen, clock_ms())
        every = self._settings.rebuild.follow_look_minutes * 60
        looks = time.monotonic() - self._looked >= every
        # A look at what rests takes no round of Spark's: that would write or compare nothing.
        rests = not (is_new or (looks and self._resident.proves))
        if rests and self._resident.sending.calls_for_spark is None:
            return None
        try:
            if looks or self._settings.together:
                self._notice_others()
            self._start()
            outcome = self._here(newest, looks=looks)
            if outcome is None:
                self._is_settled = False
                # No sink is written to beside a round of Spark's.
                self._resident.forget()
                self._notice_others()
                self._sealer.done()
                with advancing(self._place, self._stop):
                    outcome = self._by_spark(looks=looks)
            else:
                self._sealer.beside()
                self._settle(outcome)
        except ChangelogError as error:
            return Outcome((), error)
        for result in outcome.results:
            if result.published and result.generation is not None:
                self._serves[result.view] = result.generation
        if outcome.error is None:
            self._looked = time.monotonic() if looks else self._looked
            frontier = outcome.results[0].frontier
            applied = replace(record, frontier=frontier) if frontier is not None else record
            self._done = SeenFrontier.of(applied, self._tables)
        else:
            self._done = None
        return outcome

    def _settle(self, outcome: Outcome) -> None:
        """Give back memory that the next rounds do not need: after a first and a large round."""
        is_first, self._is_settled = not self._is_settled, True
        counts = [result.records_read or 0 for result in outcome.results]
        if is_first or max(counts, default=0) > _MANY_RECORDS:
            self._resident.return_freed()
        if is_first:
            leave_code()

    def _start(self) -> None:
        """Go on, once, from what an earlier follower has kept, where that fits."""
        if self._has_started:
            return
        if not self._resident.may_resume(self._specs):
            self._has_started = True  # what is kept from now on is this follower's own
            return
        stages = self._stages()
        with stages.stage("plan", "frontier and verdict"):
            plan = plannable(self._specs, self._settings)
        if not plan.failed and self._resident.resume(plan, self._make_served, stages):
            log.info("goes on from what an earlier follower has kept, without Spark")
            self._sealer.started(plan.plan.advance if plan.plan is not None else None)
        self._has_started = True

    def _by_spark(self, *, looks: bool) -> Outcome:
        rebuild = self._make(
            replace(self._settings, looks=looks),
            self._stages(),
            stop=self._stop,
            resident=self._resident,
            moving=self._moving,
            place=self._place,
        )
        try:
            return rebuild.run_locked(self._specs)
        finally:
            self.by_spark_at = time.monotonic()

    def _notice_others(self) -> None:
        """Continue from a generation that a rebuild has published since the last round."""
        for spec in self._specs:
            last_serving = self._serves.get(spec.name)
            if last_serving is None:
                continue
            try:
                served = self._make_served(spec, self._settings.project, None)
                number = serving(list(served.held_without_listing().values()))
            except ChangelogError:
                continue  # a sink that is away is told by the round
            if number in {None, last_serving}:
                continue
            self._resident.forget()
            rows = GenerationHistory(self._settings.warehouse).rows([spec.name], generation=number)
            declared = next((row.declaration for row in reversed(rows) if row.declaration), None)
            since = f"generation {number}"
            if declared is not None and changed_declaration(declared, spec, since=since):
                raise ViewError(
                    f'view "{spec.name}": generation {number}, which somebody published, has '
                    "another definition than the one that is followed",
                    hint="start --follow again",
                )
            log.info('view "%s": goes on from generation %s', spec.name, number)

    def keep_others_waiting(self) -> Mapping[str, str]:
        """Return the views that take a round of Spark's each time, with the reason of each.

        None where all do: then nobody waits who would not wait anyhow; and none where the next
        round is made without Spark, which is asked for several times a second.
        """
        if self.is_here:
            return {}
        reasons = {**self._unkeyed(), **self._resident.whole}
        return reasons if len(reasons) < len(self._specs) else {}

    def _unkeyed(self) -> dict[str, str]:
        if self._done is None or logs_of(self._specs, self._settings):
            return {}
        frontier = self._done.record.frontier
        topics = {table: frontier.topic_of(table) for table in self._tables}
        unkeyed = unkeyed_of({t: topic for t, topic in topics.items() if topic}, frontier)
        return {
            spec.name: f"{short_name(table)} has no primary key"
            for spec in self._specs
            for table in spec.tables
            if table in unkeyed
        }

    @property
    def is_here(self) -> bool:
        """Tell whether the next round is made without Spark."""
        return self._resident.is_ready

    @property
    def needs_spark(self) -> bool:
        """Tell whether the next rounds or the checkpoints need Spark's session."""
        return self._sealer.is_running or self._resident.needs_spark

    def _here(self, newest: Newest, *, looks: bool) -> Outcome | None:
        """Make the round in this process; return None if Spark has to."""
        if not self._resident.is_ready:
            return None
        try:
            return self._resident.round(newest, self._stages(), looks=looks)
        except NotHereError as error:
            log.info("this round is made by Spark: %s", error)
            return None
        except UnavailableError:
            # Once it answers again, what is kept of the tables leads on as after a start.
            self._resident.forget()
            self._has_started = False
            raise
        except BaseException:
            self._resident.forget()
            raise
