"""Rebuild views: freeze -> build aside -> seal -> verify -> publish -> retire.

One run has one frontier, one Spark session and one scan per table for all its views. Nothing that
readers see changes before every sink of every view holds its whole new generation and each of
them is verified; then they are swapped, brought first to where a follower has got meanwhile. A view
that fails fails by itself, unless the run is asked for all or none: its old generation serves and
its new one is removed. What a kill leaves behind, the next run removes or finishes. A read that the
log moved under is begun again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from changelog.contract.base.errors import (
    ChangelogError,
    LogMovedError,
    RefutedError,
    UnavailableError,
    UnavailableLogError,
)
from replay.result.state import States
from replay.spark.session import session
from replay.store.advancer import Advancer
from replay.store.plan import Advance
from replay.store.stops import Stops
from views.base.config import RebuildSettings, RowsSource
from views.base.failure import RebuildError, explained, of_view
from views.base.progress import Stages
from views.generations.generation import Generation
from views.generations.history import FAILED, REFUTED
from views.generations.lock import (
    LockPatience,
    Moving,
    building,
    locked,
    others_of,
    reserve,
)
from views.generations.place import LockPlace, place_for
from views.generations.served import MakeServed, Unanswered, peers_of, served_of
from views.generations.succession import next_generation, serving
from views.generations.swap import HalfPublishedError, settle
from views.project.spec import ViewSpec
from views.rebuild.one_view.certify import Certifier
from views.rebuild.one_view.refresh import Prior
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.plan.plan import Plan, store_of
from views.rebuild.plan.plannable import Plannable, plannable
from views.rebuild.resident import Resident
from views.rebuild.result.report import Outcome, ViewResult
from views.rebuild.run.forward import Forward, needs_rows, standing
from views.rebuild.run.proof import RunProof
from views.rebuild.run.publication import Brought, Publication
from views.rebuild.run.rows import Rows
from views.rebuild.run.run import RunContext, only_warned
from views.rebuild.run.spark_tasks import told_tasks
from views.rebuild.takeover import UnpublishedBase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("changelog.views")


class RebuildRun:
    """One run of `rebuild-view`."""

    def __init__(
        self,
        settings: RebuildSettings,
        stages: Stages,
        *,
        make_served: MakeServed = served_of,
        stop: Callable[[], bool] = lambda: False,
        resident: Resident | None = None,
        moving: Moving | None = None,
        place: LockPlace | None = None,
        bases: Mapping[str, UnpublishedBase] | None = None,
    ) -> None:
        """Store the parts of a run.

        `make_served`: gives the sinks of a view. `resident`: makes a follower's rounds without
        Spark from here on, where it can. `moving`: held by the caller, who follows the views; None
        where they are rebuilt. `place`: of the locks, where the caller holds some. `bases`: of each
        view the unpublished generation that is brought to the newest frontier; None where new ones
        are made and published.
        """
        self._run = RunContext(
            settings=settings,
            stages=stages,
            make_served=make_served,
            stop=stop,
            is_follower=moving is not None,
            moving=moving,
            place=place or place_for(settings),
            bases=bases,
        )
        self._forward = Forward(self._run)
        self._proof = RunProof(self._run)
        self._publication = Publication(self._run, self._brought)
        self._resident = resident
        self._alone = False

    def run(self, specs: Sequence[ViewSpec]) -> Outcome:
        """Rebuild the views; a read during which the log moved is repeated a few times.

        Somebody may follow the views meanwhile, but for two kinds of runs: readers go back to an
        older state, which that of an archive may be, or what serves is built upon.

        Raises:
            LockedError: another run rebuilds one of them, or follows it and this one is of those.
            VerdictError: the log can no longer give any of them.
            ChangelogError: the run could not begin; nothing was written.
        """
        settings, names = self._run.settings, [spec.name for spec in specs]
        goes_back = settings.as_of is not None and not settings.stage
        goes_back = goes_back or (settings.archive is not None and not settings.stage)
        self._alone = goes_back or settings.source is RowsSource.REFRESH
        place = self._run.place
        self._run.moving = Moving(place, names, self._run.stop)
        patience = LockPatience.of(settings.runs.wait_seconds, self._run.stop)
        with (locked if self._alone else building)(place, names, patience):
            return attempted(lambda: self.run_locked(specs), self._run.stop)

    def run_locked(self, specs: Sequence[ViewSpec]) -> Outcome:
        """Rebuild once, for a caller that holds the locks of the views."""
        planned = self._planned(specs)
        moves = not (self._run.is_follower or self._alone or self._run.settings.stage)
        still = self._uncatchable(planned) if moves else []
        if still and self._run.moving is not None:
            # Planned again, as the follower may have gone on to a later state meanwhile.
            with self._run.moving.holding(still):
                return self._run_found(self._planned(specs), specs)
        return self._run_found(planned, specs)

    def _planned(self, specs: Sequence[ViewSpec]) -> Plannable:
        with self._run.stages.stage("plan", "frontier and verdict"):
            return plannable(specs, self._run.settings)

    @staticmethod
    def _uncatchable(planned: Plannable) -> list[str]:
        """Return the views that cannot be brought to where a follower is; it waits for these."""
        if planned.plan is None:
            return []
        return [spec.name for spec in planned.specs if {*spec.tables} & {*planned.plan.stands}]

    def _run_found(self, planned: Plannable, specs: Sequence[ViewSpec]) -> Outcome:
        done = {result.view: result for result in planned.failed}
        if (plan := planned.plan) is not None:
            builds, unsettled, replay = self._run_planned(plan, planned.specs)
            done |= {build.spec.name: self._run.result(build, plan, replay) for build in builds}
            done |= {result.view: result for result in unsettled}
        return Outcome.of(done[spec.name] for spec in specs)

    def bring(self, specs: Sequence[ViewSpec]) -> Brought:
        """Bring the unpublished generations that this was made for to the newest frontier.

        A generation has gone forward, or another one takes its place and is whole and verified.
        Nothing is published.
        """
        with self._run.stages.stage("plan", "frontier and verdict"):
            planned = plannable(specs, self._run.settings)
        if planned.plan is None:
            return Brought((), planned.failed, None)
        builds, unsettled, replay = self._run_planned(planned.plan, planned.specs)
        return Brought(builds, [*planned.failed, *unsettled], replay)

    def _run_planned(
        self, plan: Plan, specs: Sequence[ViewSpec]
    ) -> tuple[list[ViewBuild], list[ViewResult], States | None]:
        self._run.stands, self._run.schemas = plan.stands, plan.schemas
        if plan.logs:
            log.warning("logs of other programs have no frontier: %s", plan.cut.verdict)
        if self._resident is not None:
            self._resident.foresee(plan)
        with self._run.stages.stage("session", "Spark session"):
            spark = session(self._run.settings.session())
        with told_tasks(spark, self._run.stages.tell):
            return self._run_in(spark, plan, specs)

    def _run_in(
        self, spark: SparkSession, plan: Plan, specs: Sequence[ViewSpec]
    ) -> tuple[list[ViewBuild], list[ViewResult], States | None]:
        with self._run.stages.stage("settle", "what serves now"):
            builds, unsettled = self._all_prepared(spark, specs)
        replay: States | None = None
        try:
            replay = self._opened(spark, plan, builds)
            with Certifier(
                spark,
                self._run.settings,
                replay,
                self._run.id,
                declared=plan.logs,
                keeps=not self._run.stands,
                tell=self._run.stages.tell,
            ) as certifier:
                certifier.read_ahead([build.spec for build in builds])
                with replay.watched() as self._run.reading:
                    self._build(spark, certifier, replay, builds)
                if replay.reads_log:  # checkpoints are sealed after theirs
                    with self._run.stage("recheck", "topics unchanged during the scan"):
                        replay.recheck()
                self._proof.verify(certifier, replay, _pending(builds))
                if forward := [build for build in _pending(builds) if build.delta is not None]:
                    self._forward.apply(replay, forward)
                    self._forward.look(certifier, replay, forward)
            self._forward.rest(replay, [b for b in builds if b.unchanged and b.error is None])
            new = [build for build in _pending(builds) if build.delta is None]
            if new and self._run.settings.stage:
                with self._run.held_still():
                    self._publication.put_aside(replay, new)
            elif new and self._run.bases is None:
                self._publication.publish(replay, new)
        except Exception as error:  # noqa: BLE001 - becomes the outcome of the views
            self._abandon(error, builds)
        self._remove(plan, replay, [build for build in builds if build.error is not None])
        if replay is not None and any(build.error is None for build in builds):
            moved = [build for build in builds if build.published and build.delta is None]
            self._publication.retire(replay, moved)
        self._hold(spark, plan, builds, unsettled, replay)
        return builds, unsettled, replay

    def _opened(self, spark: SparkSession, plan: Plan, builds: Sequence[ViewBuild]) -> States:
        """Open the states of the tables, from the log or from checkpoints brought up to date."""
        project = self._run.settings.project
        if plan.advance is None:
            with self._run.stage("replay", "schemas and explicit offsets"):
                return plan.open(spark, [build.spec for build in builds], project)
        advancer = Advancer(
            spark=spark,
            kafka=project.kafka,
            store=store_of(project),
            stage=self._run.stage,
            keep_days=self._run.settings.rebuild.checkpoint_days,
        )
        superseded: list[str] = []

        def bring(step: Advance) -> None:
            superseded.extend(advancer.advance(step, plan.schemas).superseded)

        rest = self._stops(plan, builds).before(plan.advance, bring)
        for topic, why in rest.from_start().items():
            log.warning('topic "%s" is read from its start: %s', topic, why)
        stored = advancer.advance(rest, plan.schemas)
        return replace(stored, superseded=(*superseded, *stored.superseded))

    def _stops(self, plan: Plan, builds: Sequence[ViewBuild]) -> Stops:
        """Return the generations from which views go on by changed rows."""
        settings = self._run.settings
        places = set()
        for build in builds if settings.source is RowsSource.REFRESH else ():
            stand = standing(self._run, self._forward, build)
            if isinstance(stand.prior, Prior) and needs_rows(build.spec, stand, plan.schemas):
                places.add(stand.prior.position)
        project = settings.project
        store, topic = store_of(project), settings.frontier_topic
        return Stops(kafka=project.kafka, store=store, topic=topic, places=places)

    def _all_prepared(
        self, spark: SparkSession, specs: Sequence[ViewSpec]
    ) -> tuple[list[ViewBuild], list[ViewResult]]:
        """Prepare the views; one whose sinks fail then fails by itself if there are others."""
        # Held once for all: taking and releasing it for each view would take as long as all do.
        with self._run.held_still():
            return self._each_prepared(spark, specs)

    def _each_prepared(
        self, spark: SparkSession, specs: Sequence[ViewSpec]
    ) -> tuple[list[ViewBuild], list[ViewResult]]:
        builds, unsettled = [], []
        unanswered = Unanswered()
        for spec in specs:
            try:
                with unanswered.waiting_once(spec.sinks):
                    builds.append(self._prepared(spark, spec))
            except Exception as error:
                if self._run.settings.together or len(specs) == 1 or self._run.stop():
                    raise
                reason = of_view(explained(error, f'view "{spec.name}"'), spec.name)
                log.warning("%s; the other views go on", reason.args[0])
                unsettled.append(ViewResult(view=spec.name, sinks=spec.sinks, error=reason))
        return builds, unsettled

    def _prepared(self, spark: SparkSession, spec: ViewSpec) -> ViewBuild:
        place = self._run.place
        served = self._run.make_served(spec, self._run.settings.project, spark)
        if self._run.bases is not None:
            base = self._run.bases[spec.name]
            generation = Generation(spec.name, base.next)
            return ViewBuild(
                spec=spec, served=served, generation=generation, previous=base.generation
            )
        others = others_of(place, spec.name, builds=not self._run.is_follower)
        held_by_sink = served.held()
        number = next_generation(
            list(held_by_sink.values()),
            self._run.history.states(spec.name),
            others.spared | others.dead,
        )
        if not self._run.is_follower:
            reserve(place, spec.name, [number])
        settle(
            served,
            self._run.history,
            others,
            peers=peers_of(self._run.settings.project, self._run.make_served),
        )
        previous = serving(list(served.held().values()))
        return ViewBuild(
            spec=spec,
            served=served,
            generation=Generation(spec.name, number),
            previous=previous,
        )

    def _build(
        self,
        spark: SparkSession,
        certifier: Certifier,
        replay: States,
        builds: Sequence[ViewBuild],
    ) -> None:
        Rows(self._run, self._forward).build(spark, certifier, replay, builds)

    def _brought(
        self,
        settings: RebuildSettings,
        bases: Mapping[str, UnpublishedBase],
        specs: Sequence[ViewSpec],
    ) -> Brought:
        """Bring unpublished generations to the newest frontier by a run of its own."""
        run = self._run
        again = RebuildRun(
            settings,
            run.stages,
            make_served=run.make_served,
            stop=run.stop,
            place=run.place,
            bases=bases,
        )
        return again.bring(specs)

    def _hold(
        self,
        spark: SparkSession,
        plan: Plan,
        builds: Sequence[ViewBuild],
        unsettled: Sequence[ViewResult],
        replay: States | None,
    ) -> None:
        """Keep in memory the states for a follower's next rounds, once all its views are held."""
        if self._resident is None or replay is None or unsettled or plan.unkeyed:
            return
        if not all(b.error is None and (b.published or b.unchanged) for b in builds):
            return
        try:
            self._resident.begin(spark, builds, replay, plan, self._run.stages)
        except Exception as error:
            # Whoever is asked to end has his jobs cancelled, and needs nothing for a next round.
            if not self._run.stop():
                raise explained(error, "holding the rows for rounds without Spark") from error
            log.debug("nothing is held: %s", error)
            self._resident.forget()

    def _abandon(self, error: Exception, builds: Sequence[ViewBuild]) -> None:
        """Record the reason why generations are not published; the old ones serve."""
        log.debug("the run failed", exc_info=error)
        reason = explained(error, f"rebuild of {', '.join(build.spec.name for build in builds)}")
        if reason is not error:
            reason.__cause__ = error
        try:
            self._run.check_stop()
        except RebuildError as stopped:
            reason = stopped
        blamed = next((build for build in builds if build.error is reason), None)
        for build in builds:
            # What failed by itself keeps its own reason, whatever ends the others.
            if not (build.published or build.staged) and build.error is None:
                build.error = reason if blamed is None else _because(blamed, build)

    def _remove(self, plan: Plan, replay: States | None, builds: Sequence[ViewBuild]) -> None:
        """Record failures and remove their generations; the next run removes leftovers."""
        gone = [
            build
            for build in builds
            if build.number != build.previous and not isinstance(build.error, HalfPublishedError)
        ]
        # A follower that is ended in a round has not failed: what it was at serves as before.
        is_ended = self._run.is_follower and self._run.stop()
        with only_warned("recording a failure"):
            for state in (REFUTED,) if is_ended else (REFUTED, FAILED):
                own = [build for build in gone if (build.verified is False) is (state == REFUTED)]
                self._run.record(state, own, plan, replay)
        for build in gone:
            for name, sink in build.served.sinks.items():
                with only_warned(f'removing an unfinished generation of "{build.spec.name}"'):
                    log.debug("discarding generation %d in %s", build.generation.number, name)
                    sink.discard(build.generation.number)


def _pending(builds: Sequence[ViewBuild]) -> list[ViewBuild]:
    """Return the views that have something to verify and publish."""
    return [build for build in builds if build.is_pending]


def _because(blamed: ViewBuild, build: ViewBuild) -> ChangelogError:
    """Return the reason why a view of an all-or-none run is not published."""
    assert blamed.error is not None  # noqa: S101 - that is what it is blamed for
    if build is blamed:
        return blamed.error
    text = f'view "{build.spec.name}" is not published, since view "{blamed.spec.name}" is not'
    return RefutedError(text) if isinstance(blamed.error, RefutedError) else RebuildError(text)


# A read across a change of leader is in doubt, since replicas clean each on their own, so it is
# not used. The log itself may well be exact: a new read, judged anew, says so, and refuses when
# it is not. Nothing of the read that was ended has been published.
PASSING = (UnavailableError, LogMovedError)
"""Errors after which a rebuild is tried again. A lasting cause is refused by the next verdict."""
_OF_THE_LOG = (UnavailableLogError, LogMovedError)
_WAITS_S = (1.0, 5.0, 15.0)
"""Before each further attempt; a broker needs 4 to 13 s to come back from kill -9."""
_LOOK_S = 0.5


def attempted(attempt: Callable[[], Outcome], stop: Callable[[], bool]) -> Outcome:
    """Repeat a run until the log does not move during it; return the outcome.

    `attempt`: freezes a frontier, judges, reads and publishes; leaves nothing when it fails.

    Raises ChangelogError: the first attempt could not begin.
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
    """Wait until a moment of the monotonic clock, or until a stop is requested."""
    while not stop() and (remaining := until - time.monotonic()) > 0:
        time.sleep(min(remaining, _LOOK_S))
