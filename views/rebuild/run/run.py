"""State that the steps of one run share: settings, stages, history, meaning of a failure."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from replay.result.state import States
from replay.verdict.watch import ReadWatch
from views.base.config import RebuildSettings
from views.base.failure import RebuildError, explained, is_of_the_run, of_view
from views.base.progress import Stages
from views.generations.history import PUBLISHED, SEALED, GenerationHistory
from views.generations.lock import Moving
from views.generations.place import LockPlace
from views.generations.served import MakeServed
from views.project.spec import ViewSpec
from views.rebuild.one_view.refused import note_refused
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.plan.histories import doubts_of
from views.rebuild.plan.moments import computed_moments
from views.rebuild.plan.plan import Plan, choices_told, shown, warnings_of
from views.rebuild.result.report import ViewResult
from views.rebuild.takeover import UnpublishedBase

log = logging.getLogger("changelog.views")


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One run of `rebuild-view`, as its steps know it."""

    settings: RebuildSettings  # of the run
    stages: Stages  # shows and times what is done
    make_served: MakeServed  # gives the sinks of a view
    stop: Callable[[], bool]  # tells whether somebody asked the run to end
    is_follower: bool  # whether it is a round of who follows the views
    moving: Moving | None  # held while readers are moved; None until it is known who does
    place: LockPlace  # of the locks
    # of each view the unpublished generation that is brought to the newest frontier; None where new
    # ones are made and published
    bases: Mapping[str, UnpublishedBase] | None
    # tables whose states nothing goes on from: a generation that is made of one cannot be brought
    # to where a follower is
    stands: Collection[TableName] = ()
    # of the tables that the views read; none before they are planned
    schemas: Mapping[TableName, TopicSchemas] = field(default_factory=dict)
    reading: ReadWatch | None = None  # checks that the reading of the log is exact
    # records of each table that could not be read
    quarantined: Mapping[TableName, int] = field(default_factory=dict)
    history: GenerationHistory = field(init=False)  # of all generations
    id: str = field(default_factory=lambda: uuid.uuid4().hex)  # of the run, in the history
    begun: float = field(default_factory=time.monotonic)  # when, by the monotonic clock in seconds

    def __post_init__(self) -> None:
        """Open the history."""
        self.history = GenerationHistory(self.settings.warehouse)

    def catches_up(self, spec: ViewSpec) -> bool:
        """Tell whether a view's generation can be brought to a follower's position."""
        return not set(self.stands) & set(spec.tables)

    def held_still(self) -> AbstractContextManager[object]:
        """Hold the lock on readers and clearing up; a follower holds it for its whole round."""
        return nullcontext() if self.moving is None else self.moving

    @contextmanager
    def stage(self, name: str, text: str, view: str = "") -> Iterator[None]:
        """Show and time a stage, unless a stop was requested."""
        self.check_stop()
        with self.stages.stage(name, text, view):
            yield

    def check_stop(self) -> None:
        """Raise if a stop was requested.

        Raises RebuildError: that is so; LockedError: a lock of the run is lost.
        """
        self.place.check()
        if self.stop():
            raise RebuildError(
                "the rebuild was asked to stop; nothing is published",
                hint="what was published before still serves; run it again when you like",
            )

    @contextmanager
    def answerable(self, build: ViewBuild) -> Iterator[None]:
        """Make an error inside the block a failure of its view: the other views go on.

        What is no view's fault, and all that fails in a run of all or none, goes through.
        """
        try:
            yield
        except Exception as error:
            moments = self._moments(build.spec)
            reason = explained(error, f'view "{build.spec.name}"', build.spec.sql, moments)
            if self.stop() or is_of_the_run(reason) or self._is_reading_ended():
                raise
            build.error = of_view(reason, build.spec.name)
            if reason is not error:
                reason.__cause__ = error
            if self.settings.together:
                raise build.error from error
            log.debug("a view failed", exc_info=error)
            log.warning("%s; the other views go on", build.error.args[0])

    def _is_reading_ended(self) -> bool:
        """Tell whether the jobs of all views were cancelled, since the reading is not exact."""
        return self.reading is not None and self.reading.has_failed

    def _moments(self, spec: ViewSpec) -> tuple[str, ...]:
        """Return the places of a view that compute with dates and moments, for an error."""
        if spec.sql is None:
            return ()
        columns = {
            table: {column.column: column.type for column in schema.viewed.columns}
            for table, schema in self.schemas.items()
            if table in spec.tables
        }
        return computed_moments(spec.sql, columns)

    def record(
        self,
        state: str,
        builds: Sequence[ViewBuild],
        plan: Plan,
        replay: States | None,
    ) -> None:
        """Write the state of generations to the history."""
        rows = [self.result(build, plan, replay).to_history(state, self.id) for build in builds]
        if self.settings.together and state in (SEALED, PUBLISHED):
            numbers = {build.spec.name: build.number for build in builds}
            rows = [replace(row, together=numbers) for row in rows]
        self.history.append(rows)

    def note_refused(self, build: ViewBuild, generation: int) -> None:
        """Record the rows that a generation goes without in some sinks."""
        if not self.settings.rebuild.left_out_at_most:
            return
        build.refused = note_refused(
            self.settings.warehouse, build.spec.name, generation, build.served.sinks, self.id
        )
        for sink, count in build.refused.items():
            log.warning('view "%s": %s goes without %d refused rows', build.spec.name, sink, count)

    def result(self, build: ViewBuild, plan: Plan, replay: States | None) -> ViewResult:
        """Return the result of a view so far."""
        if build.brought is not None:
            replay = build.brought
            plan = Plan(replay.cut.record, replay.cut)
        metrics = replay.metrics() if replay is not None else {}
        own = [metrics.get(table) for table in build.spec.tables]
        measured = [table_metrics for table_metrics in own if table_metrics is not None]
        whole = len(measured) == len(own)
        total = round(time.monotonic() - self.begun, 3)
        return ViewResult(
            view=build.spec.name,
            generation=build.number,
            frontier=shown(plan.record),
            topics=tuple(
                topic for table in build.spec.tables if (topic := plan.cut.topics.get(table))
            ),
            schemas={t: self.schemas[t] for t in build.spec.tables if t in self.schemas},
            columns=build.columns,
            verdict=plan.cut.verdict.kind.value,
            exact_until_ms=plan.cut.verdict.deadline_ms,
            records_read=sum(table_metrics.records_read for table_metrics in measured)
            if whole
            else None,
            rows=build.rows,
            tombstones=sum(table_metrics.tombstones for table_metrics in measured)
            if whole
            else None,
            seconds={**self.stages.seconds(build.spec.name), "total": total},
            verified=build.verified,
            mismatches=build.mismatches,
            published=build.published or (build.unchanged and build.error is None),
            staged=build.staged,
            replaced=build.replaced,
            addresses=build.addresses if build.staged else {},
            switch_seconds=build.switch_seconds,
            sinks=build.spec.sinks,
            mode=self.settings.verify.value,
            reports=build.reports,
            refused=build.refused,
            quarantined=sum(self.quarantined.get(table, 0) for table in build.spec.tables),
            certificate_file=build.certificate_file,
            error=build.error or build.uncertified,
            definition=build.definition,
            declaration=build.declaration,
            origin=build.origin,
            warnings=(
                *warnings_of(build.spec, plan.record),
                *doubts_of(build.spec, self.schemas, plan.record.frontier),
                *(() if replay is None else choices_told(replay.choices(build.spec.tables))),
            ),
        )


@contextmanager
def only_warned(doing: str, *, of: str = "") -> Iterator[None]:
    """Log a failure of the block, which only cleans up: the new generation serves anyway."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the next run retries
        log.warning("%s%s", of, explained(error, doing))
