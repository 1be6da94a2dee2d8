"""Rebuild views: freeze -> build aside -> seal -> verify -> publish -> retire.

One run has one frontier, one Spark session and one scan per table for all its views. Nothing that
readers see changes before every sink of every view holds its whole new generation and each of
them is verified; then all are swapped, or none. Whatever fails before leaves the old generations
serving and removes the new ones; what a kill leaves behind, the next run removes or finishes.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from changelog.contract.errors import ChangelogError, RefutedError, VerdictError
from changelog.contract.relation import TableName
from replay.advancer import Advancer
from replay.config import OnBadRecord
from replay.files import Files
from replay.replay import Replay
from replay.session import session
from replay.stored import Stored
from views.address import Address
from views.build import frame_of, kept, write
from views.certify import Certifier
from views.config import RebuildSettings, Source, VerifyMode
from views.definition import definition_of
from views.failure import RebuildError, explained
from views.generation import Generation
from views.history import FAILED, PUBLISHED, REFUTED, SEALED, History
from views.lock import locked
from views.plan import Plan, planned, shown, store_of
from views.progress import Stages
from views.quarantine import set_apart
from views.refresh import DELTA, Merged, Prior, Refresher, Unchanged, Whole, prior_of
from views.report import ViewResult
from views.served import MakeServed, Served, served_of
from views.sinks.base import Change, ChangeableSink
from views.spec import SqlSource, ViewSpec
from views.succession import next_generation, serving
from views.swap import HalfPublishedError, retire, settle, swap
from views.sweep import sweep
from views.verify.report import VerifyReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("changelog.views")


@dataclass(slots=True)
class _Work:
    """One view of a run, as far as it has come."""

    spec: ViewSpec
    served: Served
    generation: Generation
    previous: int | None
    rows: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    addresses: Mapping[str, Address] = field(default_factory=dict)
    reports: Mapping[str, VerifyReport] = field(default_factory=dict)
    published: bool = False
    unchanged: bool = False
    definition: str = ""
    origin: str = Source.START.value
    error: ChangelogError | None = None

    @property
    def verified(self) -> bool | None:
        found = [report.verified for report in self.reports.values()]
        if not found or (None in found and False not in found):
            return None
        return False not in found

    @property
    def mismatches(self) -> int | None:
        found = [report.mismatches for report in self.reports.values()]
        return sum(found) if found else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run: one result per view, and why it failed, if it did."""

    results: tuple[ViewResult, ...]
    error: ChangelogError | None = None


class Rebuild:
    """One run of `rebuild-view`."""

    def __init__(
        self,
        settings: RebuildSettings,
        stages: Stages,
        *,
        make_served: MakeServed = served_of,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take what a run needs.

        Args:
            settings: of the run.
            stages: shows and times what is done.
            make_served: gives the sinks of a view.
            stop: tells whether somebody asked the run to end.
        """
        self._settings = settings
        self._stages = stages
        self._make_served = make_served
        self._stop = stop
        self._history = History(settings.project.warehouse)
        self._run = uuid.uuid4().hex
        self._begun = time.monotonic()
        self._set_apart: Mapping[TableName, int] = {}

    def run(self, specs: Sequence[ViewSpec]) -> Outcome:
        """Rebuild the views, publish all of them or none.

        Raises:
            LockedError: another run rebuilds one of them.
            VerdictError: the log can no longer give them.
            ChangelogError: the run could not begin; nothing was written.
        """
        project = self._settings.project
        with locked(project.root, [spec.name for spec in specs]):
            return self.run_locked(specs)

    def run_locked(self, specs: Sequence[ViewSpec]) -> Outcome:
        """Do the same for a caller that holds the locks of the views."""
        with self._stages.stage("plan", "frontier and verdict"):
            plan = planned(specs, self._settings)
            plan.cut.verdict.require()
        if plan.logs:
            log.warning("logs of other programs have no frontier: %s", plan.cut.verdict)
        with self._stages.stage("session", "Spark session"):
            spark = session(self._settings.session())
        with self._stages.stage("settle", "what serves now"):
            works = [self._prepared(spark, spec) for spec in specs]
        replay: Replay | Stored | None = None
        try:
            replay = self._opened(spark, plan, specs)
            with Certifier(
                spark, self._settings, replay, self._run, declared=plan.logs
            ) as certifier:
                with replay.watched():
                    self._build(spark, certifier, replay, works)
                if isinstance(replay, Replay):  # checkpoints are sealed after theirs
                    with self._stage("recheck", "topics unchanged during the scan"):
                        replay.recheck()
                self._verify(certifier, replay, _changed(works))
            if _changed(works):
                self._publish(replay, _changed(works))
        except Exception as error:  # noqa: BLE001 - becomes the outcome of the run
            return self._abandoned(error, plan, replay, works)
        self._retire(replay, _changed(works))
        return Outcome(tuple(self._result(work, plan, replay) for work in works))

    def _opened(
        self, spark: SparkSession, plan: Plan, specs: Sequence[ViewSpec]
    ) -> Replay | Stored:
        """Open the states of the tables, from the log or from checkpoints brought up to date."""
        project = self._settings.project
        if plan.advance is None:
            with self._stage("replay", "schemas and explicit offsets"):
                return plan.open(spark, specs, self._settings)
        for topic, why in plan.advance.from_start().items():
            log.warning('topic "%s" is read from its start: %s', topic, why)
        return Advancer(
            spark=spark,
            kafka=project.kafka,
            registry=project.registry,
            store=store_of(project),
            stage=self._stage,
            days=project.checkpoint_days,
        ).advance(plan.advance)

    def _prepared(self, spark: SparkSession, spec: ViewSpec) -> _Work:
        served = self._make_served(spec, self._settings.project, spark)
        held = served.held()
        number = next_generation(list(held.values()), self._history.states(spec.name))
        settle(served, self._history)
        previous = serving(list(served.held().values()))
        return _Work(spec, served, Generation(spec.name, number), previous)

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

    def _build(
        self,
        spark: SparkSession,
        certifier: Certifier,
        replay: Replay | Stored,
        works: Sequence[_Work],
    ) -> None:
        with ExitStack() as held:
            states = _shared_states(replay, works, held)
            refresher = Refresher(spark, replay, held) if isinstance(replay, Stored) else None
            for work in works:
                self._check_stop()
                frame = frame_of(spark, work.spec, states)
                work.columns = tuple(frame.dtypes)
                work.definition = definition_of(
                    work.spec, frame.dtypes, replay.states, self._settings.project.spark_settings
                )
                rows: DataFrame | Change = frame
                if refresher is not None:
                    rows = self._refreshed(refresher, work, frame)
                if work.unchanged:
                    continue
                if not isinstance(rows, Change) and len(work.spec.sinks) > 1:
                    rows = held.enter_context(kept(rows))
                number = work.generation.number
                work.addresses = write(work.served, number, rows, frame.schema, self._stages)
                work.rows = next(iter(work.served.sinks.values())).rows(number)
                work.generation = work.generation.seal()
                certifier.keep_inputs(work.spec, states)
            sets_apart = self._settings.on_bad_record is OnBadRecord.QUARANTINE
            if sets_apart and isinstance(replay, Replay):
                with self._stage("quarantine", "records that cannot be read, set apart"):
                    self._set_apart = set_apart(spark, self._settings, replay, self._run)

    def _refreshed(self, refresher: Refresher, work: _Work, whole: DataFrame) -> DataFrame | Change:
        """Give the rows of a view, most of them carried over where that can be done."""
        work.origin = refresher.told(work.spec)
        if self._settings.source is not Source.REFRESH:
            return whole
        rows = self._history.rows([work.spec.name], generation=work.previous)
        prior = prior_of(rows, work.previous, _place(work))
        with self._stage("merge", f"{work.spec.name}: what changed", work.spec.name):
            found = refresher.rows(work.spec, prior, whole, work.definition)
        match found:
            case Unchanged():
                work.unchanged, work.origin = True, "refresh: unchanged"
                work.rows = prior.rows if isinstance(prior, Prior) else None
                return whole
            case Merged(change, touched):
                work.origin = f"refresh: {touched:,} changed rows merged"
                if not self._is_marked(work, change):
                    return found.frame()
                work.origin += " by deletion vectors"
                return change
            case Whole(why):
                log.warning('view "%s" is computed whole: %s', work.spec.name, why)
                work.origin = f"{work.origin}; computed whole: {why}"
                return whole

    def _is_marked(self, work: _Work, change: Change) -> bool:
        """Tell whether a view is written as a change of what serves, by deletion vectors."""
        if not self._settings.project.deletion_vectors:
            return False
        sink, *others = work.served.sinks.values()
        if others or not isinstance(sink, ChangeableSink):
            why: str | None = "it has a sink that takes only all of its rows"
        else:
            why = sink.obstacle(change)
        if why is not None:
            log.info('view "%s" is written whole: %s', work.spec.name, why)
        return why is None

    def _verify(
        self, certifier: Certifier, replay: Replay | Stored, works: Sequence[_Work]
    ) -> None:
        if self._settings.verify is VerifyMode.NONE:
            return
        for work in works:
            reports: dict[str, VerifyReport] = {}
            for name, address in work.addresses.items():
                text = f"{work.spec.name}: verify {name} ({self._settings.verify.value})"
                with self._stage("verify", text, work.spec.name):
                    reports[name] = certifier.report(work.spec, work.columns, address)
            work.reports = reports
        for work in works:
            work.error = _judged(work)
        first = next((work.error for work in works if work.error is not None), None)
        if first is not None:
            _require_exact(replay, works)
            raise first
        for work in works:
            if work.verified:
                work.generation = work.generation.verify()

    def _publish(self, replay: Replay | Stored, works: Sequence[_Work]) -> None:
        plan = Plan(replay.cut.record, replay.cut)
        self._record(SEALED, works, plan, replay)
        with self._stage("publish", "publish every sink at once"):
            none = self._settings.verify is VerifyMode.NONE
            targets = [(work.served, work.generation.number) for work in works]
            published = [
                work.generation.publish(unverified=none or work.spec.sql is None) for work in works
            ]
            swap(targets)
            for work, generation in zip(works, published, strict=True):
                work.generation, work.published = generation, True
        with self._stages.stage("record", "write the history"):
            try:
                self._record(PUBLISHED, works, plan, replay)
            except ChangelogError as error:
                # Readers see the new generations: this is no failure of the rebuild. The next
                # run finds the row `sealed` and what serves, and adds what is missing.
                log.warning("published, but not recorded: %s", error)

    def _record(
        self, state: str, works: Sequence[_Work], plan: Plan, replay: Replay | Stored
    ) -> None:
        self._history.append(
            self._result(work, plan, replay).to_history(state, self._run) for work in works
        )

    def _retire(self, replay: Replay | Stored, works: Sequence[_Work]) -> None:
        with self._stages.stage("retire", "remove old generations"):
            for work in works:
                with _only_warned("removing old generations", of=f'view "{work.spec.name}": '):
                    keep = self._settings.keep
                    retire(work.served, self._history, previous=work.previous, keep=keep)
            with _only_warned("putting the history together"):
                self._history.tidy()
            if isinstance(replay, Stored):
                with _only_warned("removing old layers of checkpoints"):
                    sweep(Files(), store_of(self._settings.project), replay)

    def _abandoned(
        self, error: Exception, plan: Plan, replay: Replay | Stored | None, works: Sequence[_Work]
    ) -> Outcome:
        """Remove what was built and say why; the old generations serve."""
        log.debug("the run failed", exc_info=error)
        names = ", ".join(work.spec.name for work in works)
        reason = explained(error, f"rebuild of {names}")
        if reason is not error:
            reason.__cause__ = error
        try:
            self._check_stop()
        except RebuildError as stopped:
            reason = stopped
        reasons = [_because(reason, work, works) for work in works]
        for work, found in zip(works, reasons, strict=True):
            work.error = found
        results = [self._result(work, plan, replay) for work in works]
        if not isinstance(error, HalfPublishedError):
            self._discard(works, results)
        return Outcome(tuple(results), reason)

    def _discard(self, works: Sequence[_Work], results: Sequence[ViewResult]) -> None:
        try:
            for work in _changed(works):
                for sink in work.served.sinks.values():
                    sink.discard(work.generation.number)
            rows = [
                result.to_history(REFUTED if result.verified is False else FAILED, self._run)
                for work, result in zip(works, results, strict=True)
                if not work.unchanged
            ]
            self._history.append(rows)
        except Exception as error:  # noqa: BLE001 - the first error matters; the next run cleans up
            log.warning("the unfinished generation stays until the next run: %s", error)

    def _result(self, work: _Work, plan: Plan, replay: Replay | Stored | None) -> ViewResult:
        metrics = replay.metrics() if replay is not None else {}
        own = [metrics.get(table) for table in work.spec.tables]
        known = [found for found in own if found is not None]
        whole = len(known) == len(own)
        total = round(time.monotonic() - self._begun, 3)
        return ViewResult(
            view=work.spec.name,
            generation=work.previous if work.unchanged else work.generation.number,
            frontier=shown(plan.record),
            verdict=plan.cut.verdict.kind.value,
            records_read=sum(found.records_read for found in known) if whole else None,
            rows=work.rows,
            tombstones=sum(found.tombstones for found in known) if whole else None,
            seconds={**self._stages.seconds(work.spec.name), "total": total},
            verified=work.verified,
            mismatches=work.mismatches,
            published=work.published or (work.unchanged and work.error is None),
            sinks=work.spec.sinks,
            mode=self._settings.verify.value,
            reports=work.reports,
            quarantined=sum(self._set_apart.get(table, 0) for table in work.spec.tables),
            error=work.error,
            definition=work.definition,
            origin=work.origin,
        )


def _changed(works: Sequence[_Work]) -> list[_Work]:
    """Leave out the views of which no row changed since what serves."""
    return [work for work in works if not work.unchanged]


@contextmanager
def _only_warned(doing: str, *, of: str = "") -> Iterator[None]:
    """Do what only makes room: should it fail, the new generation serves all the same."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the next run retries
        log.warning("%s%s", of, explained(error, doing))


def _place(work: _Work) -> str | None:
    """Give where the rows that serve can be read as a Delta table."""
    sink = work.served.sinks.get(DELTA)
    if sink is None or work.previous is None:
        return None
    return sink.address(work.previous).location["path"]


def _shared_states(
    replay: Replay | Stored, works: Sequence[_Work], held: ExitStack
) -> dict[TableName, DataFrame]:
    """Give each table's state, kept where it is read more than once."""
    uses: Counter[TableName] = Counter()
    for work in works:
        source = work.spec.source
        if isinstance(source, SqlSource):
            uses.update(found.table for found in source.references)
        else:
            uses.update(dict.fromkeys(work.spec.tables, 2))
    frames = {table: state.frame for table, state in replay.states.items()}
    return {
        table: held.enter_context(kept(frame)) if uses[table] > 1 else frame
        for table, frame in frames.items()
    }


def _require_exact(replay: Replay | Stored, works: Sequence[_Work]) -> None:
    """Check that a difference is one: the verifier reads the log too, and it reads it later.

    Raises:
        VerdictError: the log had begun to lose what the verifier read, so nothing is refuted.
    """
    try:
        replay.recheck()
    except VerdictError:
        for work in works:
            work.error, work.reports = None, {}
        raise


def _judged(work: _Work) -> ChangelogError | None:
    """Give the reason why verification does not let a generation be published.

    A Python view never gets a verdict of its own: its inputs were compared, which can refute it.
    """
    name = work.spec.name
    try:
        for report in work.reports.values():
            report.raise_on_mismatch()
    except RefutedError as error:
        return error
    if work.verified is None and work.spec.sql is not None:
        notes = [note for report in work.reports.values() for note in report.notes]
        return RebuildError(
            f'view "{name}" cannot be verified: {"; ".join(dict.fromkeys(notes)) or "no reason"}',
            hint="--verify none publishes it unproved",
        )
    return None


def _because(reason: ChangelogError, work: _Work, works: Sequence[_Work]) -> ChangelogError:
    """Give a view the reason of the run; one that was well says whose fault it was."""
    blamed = next((other for other in works if other.error is not None), None)
    if work.error is not None or blamed is None:
        return work.error or reason
    text = f'not published, since view "{blamed.spec.name}" of this run is not'
    return RefutedError(text) if isinstance(reason, RefutedError) else RebuildError(text)
