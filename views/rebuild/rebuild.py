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
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from changelog.contract.base.errors import ChangelogError, RefutedError, VerdictError
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from replay.base.config import OnBadRecord
from replay.result.state import States
from replay.spark.files import Files
from replay.spark.session import session
from replay.store.advancer import Advancer
from replay.store.stored import Stored
from views.base.config import RebuildSettings, Source, VerifyMode
from views.base.failure import RebuildError, explained, is_of_the_run, of_view
from views.base.progress import Stages
from views.generations.generation import Generation
from views.generations.history import FAILED, PUBLISHED, REFUTED, SEALED, STAGED, History
from views.generations.lock import (
    Moving,
    Patience,
    advancing,
    building,
    following,
    locked,
    others_of,
    reserve,
)
from views.generations.served import MakeServed, served_of
from views.generations.staging import take_away
from views.generations.succession import next_generation, serving, staged
from views.generations.swap import HalfPublishedError, retire, settle, swap
from views.generations.sweep import sweep
from views.project.definition import declaration_of, definition_of
from views.project.spec import SqlSource, ViewSpec
from views.rebuild.attempts import attempted
from views.rebuild.one_view.build import frame_of, kept, write
from views.rebuild.one_view.certify import Certifier
from views.rebuild.one_view.forward import (
    CHANGES,
    MOST_KEYS,
    Delta,
    apply,
    delta_of,
    deltas_of,
    forward_sinks,
    position_of,
)
from views.rebuild.one_view.quarantine import write_quarantined
from views.rebuild.one_view.refresh import (
    DELTA,
    Merged,
    Prior,
    Refresher,
    UnchangedView,
    Whole,
    prior_of,
)
from views.rebuild.one_view.refused import note_refused
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.plan.plan import Plan, shown, store_of, tables_of, warnings_of
from views.rebuild.plan.plannable import plannable
from views.rebuild.resident import RECORDED_EVERY, Resident
from views.rebuild.result.outcome import Outcome
from views.rebuild.result.report import ViewResult
from views.rebuild.takeover import Base, Takeover
from views.sinks.base import Change, ChangeableSink, ForwardSink, rows_of
from views.verify.compare.report import VerifyReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("changelog.views")


class Rebuild:
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
        bases: Mapping[str, Base] | None = None,
    ) -> None:
        """Take what a run needs.

        Args:
            settings: of the run.
            stages: shows and times what is done.
            make_served: gives the sinks of a view.
            stop: tells whether somebody asked the run to end.
            resident: makes a follower's rounds without Spark from here on, where it can.
            moving: held by the caller, who follows the views; None where they are rebuilt.
            bases: of each view the unpublished generation that is brought to the newest frontier;
                None where new ones are made and published.
        """
        self._is_follower = moving is not None
        self._moving = moving
        self._bases = bases
        self._resident = resident
        self._settings = settings
        self._stages = stages
        self._make_served = make_served
        self._stop = stop
        self._history = History(settings.warehouse)
        self._run = uuid.uuid4().hex
        self._begun = time.monotonic()
        self._quarantined: Mapping[TableName, int] = {}
        self._alone, self._catches_up = False, True

    def run(self, specs: Sequence[ViewSpec]) -> Outcome:
        """Rebuild the views; a read that the log moved under is begun again, a few times.

        Somebody may follow the views meanwhile, but for two kinds of runs: readers go back to an
        older state, or what serves is built upon.

        Raises:
            LockedError: another run rebuilds one of them, or follows it and this one is of those.
            VerdictError: the log can no longer give any of them.
            ChangelogError: the run could not begin; nothing was written.
        """
        settings, names = self._settings, [spec.name for spec in specs]
        goes_back = settings.as_of is not None and not settings.stage
        # A follower of logs of other programs cannot be caught up with: they have no positions.
        has_others = any(log.table in tables_of(specs) for log in settings.logs)
        self._alone = goes_back or has_others or settings.source is Source.REFRESH
        root = settings.project.root
        self._moving = Moving(root, names, self._stop)
        patience = Patience.of(settings.runs.wait_seconds, self._stop)
        with (locked if self._alone else building)(root, names, patience):
            return attempted(lambda: self.run_locked(specs), self._stop)

    def run_locked(self, specs: Sequence[ViewSpec]) -> Outcome:
        """Rebuild once, for a caller that holds the locks of the views."""
        with self._stages.stage("plan", "frontier and verdict"):
            found = plannable(specs, self._settings)
        done = {result.view: result for result in found.failed}
        if (plan := found.plan) is not None:
            with self._unfollowed(plan, found.specs):
                builds, unsettled, replay = self._run_planned(plan, found.specs)
            done |= {build.spec.name: self._result(build, plan, replay) for build in builds}
            done |= {result.view: result for result in unsettled}
        return Outcome.of(done[spec.name] for spec in specs)

    def _unfollowed(self, plan: Plan, specs: Sequence[ViewSpec]) -> AbstractContextManager[object]:
        """Let nobody follow views of tables without a key: a rebuild cannot catch up with them."""
        if not plan.is_whole or self._is_follower or self._alone:
            return nullcontext()
        return following(self._settings.project.root, [spec.name for spec in specs])

    def bring(self, specs: Sequence[ViewSpec]) -> tuple[Sequence[ViewBuild], States | None]:
        """Bring the unpublished generations that this was made for to the newest frontier.

        Returns:
            The views: a generation has gone forward, or another one takes its place and is whole
            and verified; and the states that this was made of. Nothing is published.
        """
        with self._stages.stage("plan", "frontier and verdict"):
            found = plannable(specs, self._settings)
        if found.plan is None or found.failed:
            error = found.failed[0].error
            raise error if error is not None else RebuildError("nothing can be brought forward")
        builds, _, replay = self._run_planned(found.plan, found.specs)
        return builds, replay

    def _run_planned(
        self, plan: Plan, specs: Sequence[ViewSpec]
    ) -> tuple[list[ViewBuild], list[ViewResult], States | None]:
        self._catches_up = not (plan.logs or plan.is_whole)
        if plan.logs:
            log.warning("logs of other programs have no frontier: %s", plan.cut.verdict)
        with self._stages.stage("session", "Spark session"):
            spark = session(self._settings.session())
        with self._stages.stage("settle", "what serves now"):
            builds, unsettled = self._all_prepared(spark, specs)
        replay: States | None = None
        try:
            replay = self._opened(spark, plan, [build.spec for build in builds])
            with Certifier(
                spark,
                self._settings,
                replay,
                self._run,
                declared=plan.logs,
                keeps=self._catches_up,
                tell=self._stages.tell,
            ) as certifier:
                certifier.read_ahead([build.spec for build in builds])
                with replay.watched():
                    self._build(spark, certifier, replay, builds)
                if replay.reads_log:  # checkpoints are sealed after theirs
                    with self._stage("recheck", "topics unchanged during the scan"):
                        replay.recheck()
                self._verify(certifier, replay, _pending(builds))
                if forward := [build for build in _pending(builds) if build.delta is not None]:
                    self._go_forward(replay, forward)
                    self._look(certifier, forward)
            new = [build for build in _pending(builds) if build.delta is None]
            if new and self._settings.stage:
                with self._held_still():
                    self._put_aside(replay, new)
            elif new and self._bases is None:
                self._publish(replay, new)
        except Exception as error:  # noqa: BLE001 - becomes the outcome of the views
            self._abandon(error, builds)
        self._remove(plan, replay, [build for build in builds if build.error is not None])
        if replay is not None and any(build.error is None for build in builds):
            moved = [build for build in builds if build.published and build.delta is None]
            self._retire(replay, moved)
        self._hold(spark, builds, unsettled, replay)
        return builds, unsettled, replay

    def _opened(self, spark: SparkSession, plan: Plan, specs: Sequence[ViewSpec]) -> States:
        """Open the states of the tables, from the log or from checkpoints brought up to date."""
        project = self._settings.project
        if plan.advance is None:
            with self._stage("replay", "schemas and explicit offsets"):
                return plan.open(spark, specs, project)
        for topic, why in plan.advance.from_start().items():
            log.warning('topic "%s" is read from its start: %s', topic, why)
        return Advancer(
            spark=spark,
            kafka=project.kafka,
            store=store_of(project),
            stage=self._stage,
            days=self._settings.rebuild.checkpoint_days,
        ).advance(plan.advance, plan.schemas)

    def _all_prepared(
        self, spark: SparkSession, specs: Sequence[ViewSpec]
    ) -> tuple[list[ViewBuild], list[ViewResult]]:
        """Prepare the views; one whose sinks do not answer fails by itself if there are others."""
        builds, unsettled = [], []
        for spec in specs:
            try:
                builds.append(self._prepared(spark, spec))
            except ChangelogError as error:
                if self._settings.together or len(specs) == 1:
                    raise
                reason = of_view(error, spec.name)
                log.warning("%s; the other views go on", reason.args[0])
                unsettled.append(ViewResult(view=spec.name, sinks=spec.sinks, error=reason))
        return builds, unsettled

    def _prepared(self, spark: SparkSession, spec: ViewSpec) -> ViewBuild:
        root = self._settings.project.root
        served = self._make_served(spec, self._settings.project, spark)
        if self._bases is not None:
            base = self._bases[spec.name]
            generation = Generation(spec.name, base.next)
            return ViewBuild(
                spec=spec, served=served, generation=generation, previous=base.generation
            )
        with self._held_still():
            others = others_of(root, spec.name, builds=not self._is_follower)
            held = served.held()
            number = next_generation(
                list(held.values()), self._history.states(spec.name), others.spared | others.dead
            )
            if not self._is_follower:
                reserve(root, spec.name, [number])
            settle(served, self._history, others)
            previous = serving(list(served.held().values()))
        return ViewBuild(
            spec=spec,
            served=served,
            generation=Generation(spec.name, number),
            previous=previous,
        )

    def _held_still(self) -> AbstractContextManager[object]:
        """Let nobody else move readers or clear up; a follower holds that for its whole round."""
        return nullcontext() if self._moving is None else self._moving

    @contextmanager
    def _stage(self, name: str, text: str, view: str = "") -> Iterator[None]:
        self._check_stop()
        with self._stages.stage(name, text, view):
            yield

    def _check_stop(self) -> None:
        if self._stop():
            raise RebuildError(
                "the rebuild was asked to stop; nothing is published",
                hint="what was published before still serves; run it again when you like",
            )

    @contextmanager
    def _answerable(self, build: ViewBuild) -> Iterator[None]:
        """Let what fails inside be the view's own failure: the other views go on.

        What is no view's fault, and all that fails in a run of all or none, goes through.
        """
        try:
            yield
        except Exception as error:
            reason = explained(error, f'view "{build.spec.name}"')
            if self._stop() or is_of_the_run(reason):
                raise
            build.error = of_view(reason, build.spec.name)
            if reason is not error:
                reason.__cause__ = error
            if self._settings.together:
                raise build.error from error
            log.debug("a view failed", exc_info=error)
            log.warning("%s; the other views go on", build.error.args[0])

    def _build(
        self,
        spark: SparkSession,
        certifier: Certifier,
        replay: States,
        builds: Sequence[ViewBuild],
    ) -> None:
        with ExitStack() as held:
            states = _shared_states(replay, builds, held)
            refresher = None
            if isinstance(replay, Stored):
                refresher = Refresher(spark, replay, held)
            for build in builds:
                self._check_stop()
                with self._answerable(build):
                    rows, schema = self._rows(
                        spark, certifier, replay, refresher, build, states=states
                    )
                    if build.unchanged:
                        self._note_refused(build, build.number)
                    if build.unchanged or build.delta is not None:
                        continue
                    if not isinstance(rows, Change) and len(build.spec.sinks) > 1:
                        rows = held.enter_context(kept(rows))
                    number = build.generation.number
                    build.addresses = write(build.served, number, rows, schema, self._stages)
                    build.rows = rows_of(next(iter(build.served.sinks.values())), number)
                    self._note_refused(build, number)
                    build.generation = build.generation.seal()
                    certifier.keep_inputs(build.spec, states)
            quarantines = self._settings.on_bad_record is OnBadRecord.QUARANTINE
            if quarantines and replay.reads_log:
                with self._stage("quarantine", "records that cannot be read"):
                    self._quarantined = write_quarantined(spark, self._settings, replay, self._run)

    def _note_refused(self, build: ViewBuild, generation: int) -> None:
        """Put on record the rows that a generation goes without in some sinks."""
        if not self._settings.rebuild.left_out_at_most:
            return
        build.refused = note_refused(
            self._settings.warehouse, build.spec.name, generation, build.served.sinks, self._run
        )
        for sink, count in build.refused.items():
            log.warning('view "%s": %s goes without %d refused rows', build.spec.name, sink, count)

    def _rows(
        self,
        spark: SparkSession,
        certifier: Certifier,
        replay: States,
        refresher: Refresher | None,
        build: ViewBuild,
        *,
        states: Mapping[TableName, DataFrame],
    ) -> tuple[DataFrame | Change, StructType]:
        """Return the rows of a view, or what changed of them, and their schema."""
        frame = frame_of(spark, build.spec, states)
        build.columns, build.schema = tuple(frame.dtypes), frame.schema
        build.declaration = declaration_of(build.spec, build.columns)
        build.definition = definition_of(
            build.spec, frame.dtypes, replay.states, self._settings.spark.settings
        )
        if refresher is None:
            return frame, frame.schema
        return self._refreshed(certifier, replay, refresher, build, frame), frame.schema

    def _refreshed(
        self,
        certifier: Certifier,
        replay: States,
        refresher: Refresher,
        build: ViewBuild,
        whole: DataFrame,
    ) -> DataFrame | Change:
        """Return the rows of a view, most of them carried over where that can be done."""
        build.origin = refresher.told(build.spec)
        if self._settings.source is not Source.REFRESH:
            return whole
        rows = self._history.rows([build.spec.name], generation=build.previous)
        build.recorded_at = rows[-1].at if rows else None
        forward = self._forward_sinks(build)
        if forward and build.previous is not None:
            position = position_of(forward, build.previous)
            prior = prior_of(rows, build.previous, None, goes_forward=True, position=position)
        else:
            prior = prior_of(rows, build.previous, _place(build))
        with self._stage("merge", f"{build.spec.name}: what changed", build.spec.name):
            merged = refresher.rows(build.spec, prior, whole, build.definition)
            found: UnchangedView | Merged | Delta | Whole = merged
            if isinstance(merged, Merged) and forward:
                build.forward = forward
                found = self._delta(certifier, replay, build, merged, whole.schema)
        match found:
            case UnchangedView():
                build.unchanged, build.origin = True, "refresh: unchanged"
                build.rows = prior.rows if isinstance(prior, Prior) else None
                return whole
            case Delta():
                build.delta = found
                build.origin = f"forward: {found.table.num_rows:,} changed keys"
                return whole
            case Merged(change, touched):
                build.origin = f"refresh: {touched:,} changed rows merged"
                if not self._is_marked(build, change):
                    return found.frame()
                build.origin += " by deletion vectors"
                return change
            case Whole(why):
                log.warning('view "%s" is computed whole: %s', build.spec.name, why)
                build.origin = f"{build.origin}; computed whole: {why}"
                return whole

    def _forward_sinks(self, build: ViewBuild) -> Mapping[str, ForwardSink]:
        """Return the sinks of a view if the generation that serves may go forward, else none."""
        proves_changes = self._settings.verify in {VerifyMode.CHANGED, VerifyMode.NONE}
        if not self._settings.forward or build.previous is None or not proves_changes:
            return {}
        found = forward_sinks(build.served, build.previous)
        if isinstance(found, str):
            log.info('view "%s" is written anew: %s', build.spec.name, found)
            return {}
        return found

    def _delta(
        self,
        certifier: Certifier,
        replay: States,
        build: ViewBuild,
        found: Merged,
        schema: StructType,
    ) -> Delta | Whole:
        """Return what brings a generation forward in one step, the last one if it takes several.

        What readers see goes forward in one step or not at all; a generation that nobody sees yet
        may be given the others, each proved, at once.
        """
        key, sinks, keys = build.spec.key, build.forward, found.change.keys
        if self._bases is None:
            if keys > MOST_KEYS:
                return Whole(f"{keys:,} keys are affected, more than go forward at once")
            return delta_of(found.change, schema, key, sinks)
        parts = deltas_of(found.change, schema, key, sinks, parts=-(-keys // MOST_KEYS) or 1)
        delta = next(parts)
        for after in parts:
            self._require_proved(certifier, build, delta)
            assert build.previous is not None  # noqa: S101 - it is the base
            (error,) = apply([(sinks, build.previous, delta)], _position(replay))
            if error is not None:
                raise error
            delta = after
        return delta

    def _require_proved(self, certifier: Certifier, build: ViewBuild, delta: Delta) -> None:
        if self._settings.verify is VerifyMode.NONE:
            return
        report = certifier.report(build.spec, build.columns, delta.sent())
        report.raise_on_mismatch()
        if report.verified is None:
            raise RebuildError(
                f'view "{build.spec.name}" cannot be verified: {"; ".join(report.notes)}',
                hint="--verify none publishes it unproved",
            )

    def _is_marked(self, build: ViewBuild, change: Change) -> bool:
        """Tell whether a view is written as a change of what serves, by deletion vectors."""
        if not self._settings.rebuild.deletion_vectors:
            return False
        sink, *others = build.served.sinks.values()
        if others or not isinstance(sink, ChangeableSink):
            why: str | None = "it has a sink that takes only all of its rows"
        else:
            why = sink.obstacle(change)
        if why is not None:
            log.info('view "%s" is written whole: %s', build.spec.name, why)
        return why is None

    def _verify(self, certifier: Certifier, replay: States, builds: Sequence[ViewBuild]) -> None:
        if self._settings.verify is VerifyMode.NONE:
            return
        for build in builds:
            with self._answerable(build):
                build.reports = self._reports(certifier, build)
                error = _judged(build)
                if error is not None:
                    _require_exact(replay, build)
                    raise error
                if build.verified and build.delta is None:
                    build.generation = build.generation.verify()
        with self._stage("keep", "what was proved"), _only_warned("keeping what was proved"):
            certifier.keep()

    def _reports(self, certifier: Certifier, build: ViewBuild) -> dict[str, VerifyReport]:
        reports: dict[str, VerifyReport] = {}
        if build.delta is not None:
            text = f"{build.spec.name}: verify {build.delta.table.num_rows:,} keys"
            with self._stage("verify", text, build.spec.name):
                return {CHANGES: certifier.report(build.spec, build.columns, build.delta.sent())}
        for name, address in build.addresses.items():
            text = f"{build.spec.name}: verify {name} ({self._settings.verify.value})"
            with self._stage("verify", text, build.spec.name):
                reports[name] = certifier.report(build.spec, build.columns, address)
        return reports

    def _put_aside(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Let the generations wait, in place of those that waited before; no reader moves."""
        with self._stage("stage", "put aside"):
            generations = [build.generation.stage() for build in builds]
            # This row is what keeps them from being taken for what a killed run left.
            self._record(STAGED, builds, Plan(replay.cut.record, replay.cut), replay)
            for build, generation in zip(builds, generations, strict=True):
                build.generation, build.staged = generation, True
        for build in builds:
            with _only_warned("removing what was staged before"):
                *older, newest = staged(self._history.states(build.spec.name))
                note = f"replaced by generation {newest}"
                take_away(build.served, self._history, older, note=note)
                build.replaced = tuple(older)

    def _go_forward(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Let the sinks have what was proved of some keys, in one step each."""
        deltas = [
            (build.forward, build.previous, build.delta)
            for build in builds
            if build.previous is not None and build.delta is not None
        ]
        with self._stage("apply", "changed keys to every sink"):
            failed = apply(deltas, _position(replay))
        for build, error in zip(builds, failed, strict=True):
            with self._answerable(build):
                if error is not None:
                    raise error
                build.published = self._bases is None
                build.rows = rows_of(next(iter(build.forward.values())), build.number)
                self._note_refused(build, build.number)
        due = [build for build in builds if build.published and _is_due(build)]
        with self._stages.stage("record", "write the history"), _only_warned("the history"):
            self._record(PUBLISHED, due, Plan(replay.cut.record, replay.cut), replay)

    def _look(self, certifier: Certifier, builds: Sequence[ViewBuild]) -> None:
        """Compare all that sinks serve: a proof of some keys does not say that no other changed."""
        if not self._settings.looks or self._settings.verify is VerifyMode.NONE:
            return
        for build in builds:
            with self._answerable(build):
                if not build.published:
                    continue
                for name, sink in build.forward.items():
                    text = f"{build.spec.name}: verify all of {name}"
                    with self._stage("verify", text, build.spec.name):
                        address = sink.address(build.number)
                        report = certifier.report(build.spec, build.columns, address)
                        build.reports = {**build.reports, name: report}
                error = _judged(build)
                if error is not None:
                    raise error

    def _publish(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        plan = Plan(replay.cut.record, replay.cut)
        self._record(SEALED, builds, plan, replay)
        follows = not self._is_follower and self._settings.as_of is None and self._catches_up
        takeover = Takeover(self._settings, self._history, self._brought)
        if follows:
            # Most of the way is made while the follower goes on.
            takeover.bring_near([build for build in builds if build.error is None])
        with self._held_still():
            if follows:
                takeover.bring([build for build in builds if build.error is None])
            # Told again: by its place in the history a swap that is cut off is known.
            whole = [build for build in builds if build.error is None]
            if any(build.brought or (build.previous or 0) > build.number for build in whole):
                self._record(SEALED, whole, plan, replay)
            with self._stage("publish", "publish every sink at once"):
                if self._settings.together:
                    self._swap(whole)
                else:
                    for build in whole:
                        with self._answerable(build):
                            self._swap([build])
            with self._stages.stage("record", "write the history"):
                try:
                    published = [build for build in whole if build.published]
                    self._record(PUBLISHED, published, plan, replay)
                except ChangelogError as error:
                    # Readers see the new generations: this is no failure of the rebuild. The next
                    # run finds the row `sealed` and what serves, and adds what is missing.
                    log.warning("published, but not recorded: %s", error)

    def _brought(self, builds: Sequence[ViewBuild]) -> None:
        """Bring unpublished generations to the newest frontier, as a follower would."""
        root = self._settings.project.root
        verify = self._settings.verify
        changed = VerifyMode.NONE if verify is VerifyMode.NONE else VerifyMode.CHANGED
        settings = replace(
            self._settings, source=Source.REFRESH, forward=True, verify=changed, looks=False
        )
        bases = {}
        with self._held_still():
            for build in builds:
                own = build.generation.number
                others = others_of(root, build.spec.name, builds=True)
                held, states = build.served.held(), self._history.states(build.spec.name)
                number = next_generation(list(held.values()), states, others.dead | {own})
                reserve(root, build.spec.name, [own, number])
                bases[build.spec.name] = Base(own, number)
        again = Rebuild(
            settings, self._stages, make_served=self._make_served, stop=self._stop, bases=bases
        )
        with advancing(root):
            brought, states_then = again.bring([build.spec for build in builds])
        for build, there in zip(builds, brought, strict=True):
            with self._answerable(build):
                if there.error is not None:
                    raise there.error
                assert states_then is not None  # noqa: S101 - else there is an error
                build.bring(there, states_then)

    def _swap(self, builds: Sequence[ViewBuild]) -> None:
        """Move the readers of the views in all their sinks, or of none."""
        none = self._settings.verify is VerifyMode.NONE
        published = [
            build.generation.publish(unverified=none or build.spec.sql is None) for build in builds
        ]
        seconds = swap([(build.served, build.generation.number) for build in builds])
        for build, generation in zip(builds, published, strict=True):
            build.generation, build.published = generation, True
            build.switch_seconds = seconds

    def _record(
        self,
        state: str,
        builds: Sequence[ViewBuild],
        plan: Plan,
        replay: States | None,
    ) -> None:
        self._history.append(
            self._result(build, plan, replay).to_history(state, self._run) for build in builds
        )

    def _retire(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        root, keep = self._settings.project.root, self._settings.rebuild.keep
        with self._stages.stage("retire", "remove old generations"), self._held_still():
            for build in builds:
                name = build.spec.name
                others = others_of(root, name, builds=not self._is_follower)
                with _only_warned("removing old generations", of=f'view "{name}": '):
                    retire(
                        build.served,
                        self._history,
                        previous=build.previous,
                        keep=keep,
                        spared=others.spared,
                    )
            with _only_warned("putting the history together"):
                self._history.tidy()
            if isinstance(replay, Stored):
                with _only_warned("removing old layers of checkpoints"):
                    sweep(Files(), store_of(self._settings.project), replay)

    def _hold(
        self,
        spark: SparkSession,
        builds: Sequence[ViewBuild],
        unsettled: Sequence[ViewResult],
        replay: States | None,
    ) -> None:
        """Let a follower hold what its next rounds need, once all its views stand here."""
        if self._resident is None or not isinstance(replay, Stored) or unsettled:
            return
        if all(build.error is None and (build.published or build.unchanged) for build in builds):
            self._resident.begin(spark, builds, replay, self._stages)

    def _abandon(self, error: Exception, builds: Sequence[ViewBuild]) -> None:
        """Note why what is not published is not; the old generations serve."""
        log.debug("the run failed", exc_info=error)
        reason = explained(error, f"rebuild of {', '.join(build.spec.name for build in builds)}")
        if reason is not error:
            reason.__cause__ = error
        try:
            self._check_stop()
        except RebuildError as stopped:
            reason = stopped
        blamed = next((build for build in builds if build.error is reason), None)
        for build in builds:
            if not (build.published or build.staged):
                build.error = reason if blamed is None else _because(blamed, build)

    def _remove(self, plan: Plan, replay: States | None, builds: Sequence[ViewBuild]) -> None:
        """Put failures on record and remove what was built; what stays, the next run removes."""
        gone = [
            build
            for build in builds
            if build.number != build.previous and not isinstance(build.error, HalfPublishedError)
        ]
        with _only_warned("recording a failure"):
            for state in (REFUTED, FAILED):
                own = [build for build in gone if (build.verified is False) is (state == REFUTED)]
                self._record(state, own, plan, replay)
        for build in gone:
            for name, sink in build.served.sinks.items():
                with _only_warned(f'removing an unfinished generation of "{build.spec.name}"'):
                    log.debug("discarding generation %d in %s", build.generation.number, name)
                    sink.discard(build.generation.number)

    def _result(self, build: ViewBuild, plan: Plan, replay: States | None) -> ViewResult:
        if build.brought is not None:
            replay = build.brought
            plan = Plan(replay.cut.record, replay.cut)
        metrics = replay.metrics() if replay is not None else {}
        own = [metrics.get(table) for table in build.spec.tables]
        known = [found for found in own if found is not None]
        whole = len(known) == len(own)
        total = round(time.monotonic() - self._begun, 3)
        return ViewResult(
            view=build.spec.name,
            generation=build.number,
            frontier=shown(plan.record),
            verdict=plan.cut.verdict.kind.value,
            exact_until_ms=plan.cut.verdict.deadline_ms,
            records_read=sum(found.records_read for found in known) if whole else None,
            rows=build.rows,
            tombstones=sum(found.tombstones for found in known) if whole else None,
            seconds={**self._stages.seconds(build.spec.name), "total": total},
            verified=build.verified,
            mismatches=build.mismatches,
            published=build.published or (build.unchanged and build.error is None),
            staged=build.staged,
            replaced=build.replaced,
            addresses=build.addresses if build.staged else {},
            switch_seconds=build.switch_seconds,
            sinks=build.spec.sinks,
            mode=self._settings.verify.value,
            reports=build.reports,
            refused=build.refused,
            quarantined=sum(self._quarantined.get(table, 0) for table in build.spec.tables),
            error=build.error,
            definition=build.definition,
            declaration=build.declaration,
            origin=build.origin,
            warnings=warnings_of(build.spec, plan.record),
        )


def _pending(builds: Sequence[ViewBuild]) -> list[ViewBuild]:
    """Return the views that have something to verify and publish."""
    return [build for build in builds if build.is_pending]


@contextmanager
def _only_warned(doing: str, *, of: str = "") -> Iterator[None]:
    """Do what only makes room: should it fail, the new generation serves all the same."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the next run retries
        log.warning("%s%s", of, explained(error, doing))


def _position(replay: States) -> Position:
    """Return the first position that states at a frontier do not hold any more."""
    frontier = replay.cut.record.frontier
    return Position(frontier.epoch, frontier.lsn, 0)


def _is_due(build: ViewBuild) -> bool:
    """Tell whether the history has not been told for a while where a generation is."""
    at = build.recorded_at
    return at is None or datetime.now(UTC) - at >= RECORDED_EVERY


def _place(build: ViewBuild) -> str | None:
    """Return where the rows that serve can be read as a Delta table."""
    sink = build.served.sinks.get(DELTA)
    if sink is None or build.previous is None:
        return None
    return sink.address(build.previous).location["path"]


def _shared_states(
    replay: States, builds: Sequence[ViewBuild], held: ExitStack
) -> dict[TableName, DataFrame]:
    """Return each table's state, kept where it is read more than once."""
    uses: Counter[TableName] = Counter()
    for build in builds:
        source = build.spec.source
        if isinstance(source, SqlSource):
            uses.update(source.tables())
        else:
            uses.update(dict.fromkeys(build.spec.tables, 2))
    return {
        table: state.rows.read(held.enter_context(kept(state.rows.logged)))
        if uses[table] > 1
        else state.frame
        for table, state in replay.states.items()
    }


def _require_exact(replay: States, build: ViewBuild) -> None:
    """Check that a difference is one: the verifier reads the log too, and it reads it later.

    Raises:
        VerdictError: the log had begun to lose what the verifier read, so nothing is refuted.
    """
    try:
        replay.recheck()
    except VerdictError:
        build.reports = {}
        raise


def _judged(build: ViewBuild) -> ChangelogError | None:
    """Return the reason why verification does not let a generation be published.

    A Python view never gets a verdict of its own: its inputs were compared, which can refute it.
    """
    name = build.spec.name
    try:
        for report in build.reports.values():
            report.raise_on_mismatch()
    except RefutedError as error:
        return error
    if build.verified is None and build.spec.sql is not None:
        notes = [note for report in build.reports.values() for note in report.notes]
        return RebuildError(
            f'view "{name}" cannot be verified: {"; ".join(dict.fromkeys(notes)) or "no reason"}',
            hint="--verify none publishes it unproved",
        )
    return None


def _because(blamed: ViewBuild, build: ViewBuild) -> ChangelogError:
    """Return why a view of a run of all or none is not published: its own error, or the blame."""
    assert blamed.error is not None  # noqa: S101 - that is what it is blamed for
    if build is blamed:
        return blamed.error
    text = f'view "{build.spec.name}" is not published, since view "{blamed.spec.name}" is not'
    return RefutedError(text) if isinstance(blamed.error, RefutedError) else RebuildError(text)
