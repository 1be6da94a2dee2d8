"""State that a follower keeps in this process, and its rounds without Spark.

A round of Spark's costs seconds whatever has changed: checkpoints, plans, files. Once all views of
a follower stand at one frontier, the rows of their tables are held here, by the follower and once
more by the verifier, each from its own reading of the log. A round then reads what came since,
finds the keys that are affected, computes their rows by DataFusion, has them computed again by
DuckDB, and hands them to the workers of the sinks (`views.rebuild.sending`), which do not wait for
one another; a run of all or none waits for all of them.

Whatever does not fit in ends this and is told: the next round is one of Spark's, from the stored
states, and this begins anew behind it. Nothing is lost by that: the sinks know where they are.

The rows of the tables are kept below the warehouse, round by round, so that a start goes on from
there (`resume`) and needs no Spark either. What is kept is compared with the log, row by row.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.types import StructType

from changelog.avro.rows import DecodedBodies
from changelog.contract.base.errors import (
    ChangelogError,
    RefutedError,
    UnavailableError,
    VerdictError,
)
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from changelog.kafka.clients import KeptKafka
from changelog.runtime.process.memory import leave_code, return_freed
from replay.base.config import OnBadRecord
from replay.decode.schemas import TopicSchemas
from replay.result.state import States
from replay.spark.files import uri_of
from views.base.arrow_types import arrow_schema
from views.base.config import RebuildSettings, VerifyMode
from views.base.progress import Stages
from views.generations.history import (
    CHANGES,
    PUBLISHED,
    REFUTED,
    UNCHANGED,
    UNCHANGED_EVERY,
    GenerationHistory,
    unchanged_at,
)
from views.generations.served import MakeServed
from views.project.lineage import KeyLineage, Untraceable, trace
from views.project.spec import SqlSource, TableReference, ViewSpec
from views.rebuild.local.by_spark import BySpark
from views.rebuild.local.kept import LocalTables, UnfitError, place_of, remove_of, stand_of
from views.rebuild.local.logs import HeldLogs, OpenedLogs, Step, opened_logs
from views.rebuild.local.newest import Newest
from views.rebuild.local.related import Related, Walk, check_classes, columns_of
from views.rebuild.local.room import TooLargeError, require_few
from views.rebuild.local.rows import KEY
from views.rebuild.local.sent import SentDigests
from views.rebuild.local.table import LocalTable, Touched
from views.rebuild.local.visible import VisibleChanges
from views.rebuild.one_view.certify import request_of
from views.rebuild.one_view.delta import (
    Affected,
    Delta,
    apply,
    delta_from_arrow,
    delta_from_spark,
    logged_keys,
    select_affected,
)
from views.rebuild.one_view.refused import note_refused
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.plan.dialect import UnknownValueError
from views.rebuild.plan.plan import Plan, shown, warnings_of
from views.rebuild.plan.plannable import Plannable
from views.rebuild.result.report import Outcome, ViewResult
from views.rebuild.sending.sending import Sending
from views.rebuild.started import Serving, left_by, serving_of
from views.sinks.base import ForwardSink, rows_of
from views.sinks.values import NotRenderedError
from views.verify.compare.report import VerifyReport, verdict_of
from views.verify.kept.resident import ResidentStates
from views.verify.view import verify_view

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from views.rebuild.local.engine import RowsQuery
    from views.rebuild.local.whole import WholeView

log = logging.getLogger("changelog.views")

MOST_OFFSETS = 300_000
"""Most offsets between two frontiers that this process reads; Spark's tasks read more."""
MOST_ROWS = 300_000
"""Most rows of all tables from which a view's changed rows are computed here."""
_MANY_KEYS = 10_000
"""A round with more changed keys than this is proved with all cores, a smaller one with one."""
_AT_ONCE_S = 0.1
"""Changes that came during a round make the next one begin within this time."""
_MOST_DECODED_BYTES = 8 << 20
"""Of records whose fields are kept during a round; the fields take ten times as much."""
_WAITS_S = (0.0, 0.0, 15.0, 60.0, 300.0)
"""Pauses before the states are read again, longer while no round succeeds with them."""
RECORDED_EVERY = timedelta(seconds=60)
"""How often a generation's position goes into the history; its sinks know it exactly."""


_LARGE = "; docs/operating.md says what a larger follow_rows takes, and when to use a cluster"


class NotHereError(Exception):
    """A round has to be made by Spark; the text says why."""


@dataclass(slots=True, kw_only=True)
class _View:
    """A view that goes forward without Spark."""

    spec: ViewSpec  # its declaration
    generation: int  # the number that serves
    sinks: Mapping[str, ForwardSink]  # where
    schema: StructType  # of its rows
    columns: tuple[tuple[str, str], ...]  # their names and types
    schemas: Mapping[TableName, TopicSchemas]  # of its tables
    # how its keys follow from rows, or why that cannot be told: then all rows are compared
    lineage: KeyLineage | Untraceable
    query: RowsQuery  # computes rows
    # computes and renders what is not known to be the same here; None without a session
    spark: BySpark | None
    visible: VisibleChanges  # which changes of its tables it can see
    declared: Mapping[str, Any]  # what the history says of how it is made
    recorded_at: datetime  # when the history was last told of it
    whole: WholeView | None = field(default=None)  # its rows, where all are compared
    refused: Mapping[str, int] = field(default_factory=dict)  # how many rows each sink goes without
    is_told: bool = field(default=True)  # whether that is on record
    delta: Delta | None = field(default=None)
    reports: dict[str, VerifyReport] = field(default_factory=dict)
    rows: int | None = field(default=None)
    error: ChangelogError | None = field(default=None)

    @property
    def is_changed(self) -> bool:
        """Tell whether the round has rows of some keys."""
        return self.delta is not None and self.delta.table.num_rows > 0


def _nothing(view: _View) -> Delta:
    """Return an empty delta."""
    rows = arrow_schema(view.schema).empty_table()
    keys = rows.select(list(view.spec.key))
    return delta_from_arrow(
        Affected(rows=rows, keys=keys, gone=keys), view.schema, view.spec.key, view.sinks
    )


def _records(
    related: Related, tables: Mapping[TableName, LocalTable]
) -> Mapping[TableReference, pa.Table]:
    """Return the records of the rows that take part.

    Raises UnknownValueError: they are too many.
    """
    if sum(rows.num_rows for rows in related.rows.values()) > MOST_ROWS:
        raise UnknownValueError("too many rows take part")
    return {
        place: tables[place.table].records_of(rows[KEY].to_pylist())
        for place, rows in related.rows.items()
    }


class Resident:
    """The views of one follower, in this process; a context manager."""

    def __init__(
        self, settings: RebuildSettings, confirm: Callable[[], None] = lambda: None
    ) -> None:
        self._settings = settings
        self.kafka = KeptKafka.of(settings.project.kafka)  # the brokers, whose clients are kept
        # In a round the record of a changed row is read for each view, and for its place.
        self._decoded = DecodedBodies(_MOST_DECODED_BYTES)
        self._local = LocalTables(self._decoded)
        self._run = uuid.uuid4().hex
        self._entered = ExitStack()
        self._views: list[_View] = []
        self._held: HeldLogs | None = None
        self._proofs: ResidentStates | None = None
        self._sent = SentDigests()
        self._sending = Sending(confirm)
        self._whole: dict[str, str] = {}
        self._too_large: set[str] = set()
        self._has_foreseen = False
        self._renders = False
        # by view the round from which on some sink lacks rows, before the first one after a start
        self._lacks_from: dict[str, Position] = {}
        self._has_proofs_to_begin = False
        self._made = self._useless = 0
        self._not_before = 0.0
        self._ended_at = -math.inf
        self._is_pressed = False

    def __enter__(self) -> Self:
        """Start without states."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the states; what is kept of them stays."""
        self.forget()
        self._local.__exit__()
        self.kafka.close()

    @property
    def is_ready(self) -> bool:
        """Tell whether the next round can be made without Spark."""
        return self._held is not None

    @property
    def proves(self) -> bool:
        """Tell whether the next round can be made without Spark, and compare all served rows."""
        return self.is_ready and self._proofs is not None

    @property
    def needs_spark(self) -> bool:
        """Tell whether the next rounds need Spark's session; one that ends is used no more."""
        computed = [view for view in self._views if isinstance(view.query, BySpark)]
        return not self.is_ready or self._renders or bool(computed)

    @property
    def whole(self) -> Mapping[str, str]:
        """Return the views that need Spark, with the reason: then none goes forward without."""
        return self._whole

    @property
    def sending(self) -> Sending:
        """Return the workers of the sinks."""
        return self._sending

    def forget(self) -> None:
        """Leave the next round to Spark, from each sink's position at that time."""
        self._sending.end()
        self._held, self._proofs = None, None
        self._views = []
        self._lacks_from, self._has_proofs_to_begin = {}, False
        self._sent.forget()
        self._local.close()
        self._entered.close()

    def return_freed(self) -> None:
        """Return to the system what a large round has left; its rows are with the senders."""
        for view in self._views:
            view.delta = None
        if self._proofs is not None:
            self._proofs.return_freed()
        return_freed()

    def foresee(self, plan: Plan) -> None:
        """Say once, before Spark's first round, which tables may be too large to be held here."""
        if self._has_foreseen:
            return
        self._has_foreseen = True
        most = self._settings.rebuild.follow_rows
        for table, topic in plan.cut.topics.items():
            if (count := plan.cut.offset_count(topic)) > most:
                log.warning(
                    "%s has up to %s records: where more than %s of them live (follow_rows), "
                    "Spark makes each round%s",
                    table, f"{count:,}", f"{most:,}", _LARGE,
                )  # fmt: skip

    def begin(
        self,
        spark: SparkSession,
        builds: Sequence[ViewBuild],
        states: States,
        plan: Plan,
        stages: Stages,
    ) -> None:
        """Hold the states for the next rounds, if all views are at one frontier.

        `builds`: the views, as a round of Spark's has left them. `states`: those that it was made
        from.
        """
        self.forget()
        if self._settings.on_bad_record is OnBadRecord.QUARANTINE:
            why = "records that cannot be read are left out of it"
            self._whole |= dict.fromkeys((build.spec.name for build in builds), why)
        if self._whole or time.monotonic() < self._not_before:
            return
        # What is of no use again and again is not held again at once.
        self._useless = 0 if self._made else self._useless + 1
        wait_s = _WAITS_S[min(self._useless, len(_WAITS_S)) - 1] if self._useless else 0.0
        self._made, self._not_before = 0, time.monotonic() + wait_s
        try:
            with stages.stage("hold", "rows of the tables, for rounds without Spark"):
                with self._or_whole([build.spec.name for build in builds]):
                    project = self._settings.project
                    opened = opened_logs(self.kafka, project.registry, states, plan)
                if not self._whole:
                    self._begin(spark, builds, opened)
        except (VerdictError, UnavailableError) as error:
            log.info("the next round is made by Spark: %s", error)
            self.forget()
        if self._whole:
            for view, why in self._whole.items():
                log.log(
                    logging.WARNING if view in self._too_large else logging.INFO,
                    'view "%s" is brought up to date by Spark in each round: %s%s',
                    view, why, _LARGE if view in self._too_large else "",
                )  # fmt: skip
            self.forget()

    def _begin(self, spark: SparkSession, builds: Sequence[ViewBuild], opened: OpenedLogs) -> None:
        logs, states = opened.logs, opened.states.states
        columns: dict[TableName, list[str]] = {}
        served = []
        for build in builds:
            with self._or_whole([build.spec.name]):
                serving = serving_of(build)
                if isinstance(serving, str):
                    raise UnknownValueError(serving)
                served.append(serving)
                named = {table: states[table].frame.columns for table in build.spec.tables}
                keys = {table: states[table].key for table in build.spec.tables}
                self._take(spark, serving, named, keys, logs.schemas, columns)
        if self._whole:
            return
        place = self._make_place([serving.spec.name for serving in served])
        may_stay = self._local.begin(place)
        self._fill(opened, columns)
        if self._whole:
            self._local.discard()
            return
        for view in self._views:
            with self._or_whole([view.spec.name]):
                self._want(view)
        if self._whole:
            return
        opened.recheck()
        self._begin_proofs(opened.plan, opened.states.pins)
        if self._proofs is not None:
            newest = Newest.of_plan(opened.plan)
            self._proofs.begin(
                logs.record, list(columns), newest.captured, asked_ms=newest.asked_ms
            )
        for serving in served:
            self._begin_sending(serving, dict.fromkeys(serving.sinks, logs.position))
        # What other captures and programs have logged is read from its start.
        is_alone = len(logs.captured) == 1 and not logs.declared
        can_be_here = not any(isinstance(view.query, BySpark) for view in self._views)
        if may_stay and is_alone and can_be_here:
            kept = {serving.spec.name: serving.kept() for serving in served}
            self._local.keep(kept, logs.captured[0], logs.position)
        self._held = logs

    def _fill(self, opened: OpenedLogs, columns: Mapping[TableName, Sequence[str]]) -> None:
        """Fill the local tables, unless one of them is too large or cannot be read."""
        logs, most = opened.logs, {table: opened.count(table) for table in columns}
        readers = {
            table: [view.spec.name for view in self._views if table in view.spec.tables]
            for table in columns
        }
        for table in columns:
            with self._or_whole(readers[table]):
                require_few(table, most[table], self._settings.rebuild.follow_rows)
        for table, names in columns.items():
            if self._whole:
                return  # the transaction of a table that is not whole takes no other one
            with self._or_whole(readers[table]):
                self._local.fill(
                    table,
                    opened.records(table),
                    logs.schemas[table],
                    names,
                    logs.position,
                    most=most[table],
                    proves=self._settings.verify is not VerifyMode.NONE,
                )

    def _make_place(self, names: Sequence[str]) -> Path | None:
        """Return the file of these views, and remove the files of followers of some of them."""
        warehouse = uri_of(self._settings.warehouse)
        try:
            remove_of(warehouse, names)
        except OSError as error:
            log.warning("what an earlier follower has kept stays: %s", error)
        return place_of(warehouse, names)

    def _take(  # noqa: PLR0917 - what a view is made of
        self,
        spark: SparkSession | None,
        serving: Serving,
        named: Mapping[TableName, Sequence[str]],
        keys: Mapping[TableName, Sequence[str]],
        of_tables: Mapping[TableName, TopicSchemas],
        columns: dict[TableName, list[str]],
    ) -> _View:
        """Take a view; adds to `columns` the ones by which rows of its tables are found.

        `named`: the columns of its tables. `keys`: their keys.

        Raises UnknownValueError: it cannot go forward here.
        """
        schemas = {table: of_tables[table] for table in serving.spec.tables}
        view = self._viewed(spark, serving, named, keys, schemas)
        looked_up: Mapping[TableName, Sequence[str]] = dict.fromkeys(view.spec.tables, ())
        if isinstance(view.lineage, KeyLineage):
            check_classes(view.lineage, schemas)
            looked_up = columns_of(view.lineage)
        self._views.append(view)
        for table, names in looked_up.items():
            looked_up_by = columns.setdefault(table, [])
            looked_up_by += [name for name in names if name not in looked_up_by]
        return view

    def _begin_proofs(self, plan: Plan, pins: Mapping[str, SchemaPin]) -> None:
        if self._settings.verify is VerifyMode.NONE:
            return
        project = self._settings.project
        proofs = ResidentStates(project.kafka, project.registry, pins=pins, declared=plan.logs)
        self._proofs = self._entered.enter_context(proofs)

    def _begin_sending(self, serving: Serving, positions: Mapping[str, Position]) -> None:
        if not self._settings.together:
            self._sending.begin(serving.spec.name, serving.generation, serving.sinks, positions)

    def may_resume(self, specs: Sequence[ViewSpec]) -> bool:
        """Tell whether something is kept that a follower of these views may go on from."""
        return self._kept_path(specs) is not None

    def _kept_path(self, specs: Sequence[ViewSpec]) -> Path | None:
        if self._settings.verify not in {VerifyMode.CHANGED, VerifyMode.NONE}:
            return None  # a start proves more than what changes
        path = place_of(uri_of(self._settings.warehouse), [spec.name for spec in specs])
        return path if path is not None and path.exists() else None

    def resume(self, plan: Plannable, make_served: MakeServed, stages: Stages) -> bool:
        """Go on from what an earlier follower of the same views has kept; tell whether that is so.

        Where nothing is kept, or what is kept does not fit, the next round is Spark's, and keeps it
        anew. Why it does not fit is told.

        Raises ChangelogError: the log, the history or a sink does not answer.
        """
        path = self._kept_path(plan.specs)
        if path is None or plan.plan is None:
            return False
        self.forget()
        try:
            with stages.stage("hold", "rows of the tables, as an earlier follower has kept them"):
                self._resume(path, plan.plan, plan.specs, make_served)
        except (UnfitError, UnknownValueError, VerdictError) as error:
            log.warning("what an earlier follower has kept is not gone on from: %s", error)
            self.forget()
        except BaseException:
            self.forget()
            raise
        return self.is_ready

    def _resume(
        self, path: Path, plan: Plan, specs: Sequence[ViewSpec], make_served: MakeServed
    ) -> None:
        if self._settings.on_bad_record is OnBadRecord.QUARANTINE:
            raise UnfitError("only Spark puts bad records aside")
        if plan.stands:
            raise UnfitError(f"{', '.join(map(str, plan.stands))} is read from its start by Spark")
        kept = self._local.open(path)
        if set(kept) != {spec.name for spec in specs}:
            raise UnfitError("it is of other views")
        columns: dict[TableName, list[str]] = {}
        served = []
        logged = {table: one.logged(one.reader_id) for table, one in plan.schemas.items()}
        named = {table: [c.column for c in schema.columns] for table, schema in logged.items()}
        keys = {table: schema.key for table, schema in logged.items()}
        for spec in specs:
            serving = left_by(spec, kept[spec.name], plan.schemas, self._settings, make_served)
            served.append(serving)
            self._take(None, serving, named, keys, plan.schemas, columns)
        newest = self._local.adopt(plan.schemas, columns)
        of_sinks: dict[str, dict[str, Position | None]] = {
            serving.spec.name: {
                name: self._local.lacks_from(
                    serving.spec.tables, position, kept[serving.spec.name].sinks.get(name)
                )
                for name, position in serving.positions().items()
            }
            for serving in served
        }
        for view in self._views:
            self._want(view)
        lacking = {p for own in of_sinks.values() for p in own.values() if p is not None}
        for position in lacking:
            with self._local.as_before(position):
                for view in self._views:
                    if view.whole is not None and position in of_sinks[view.spec.name].values():
                        view.whole.also(self._local.held)
        for name, of_view in of_sinks.items():
            if lacked := [position for position in of_view.values() if position is not None]:
                self._lacks_from[name] = min(lacked)
        topics = {table: plan.cut.topics[table] for table in columns}
        schemas = {table: plan.schemas[table] for table in columns}
        stand = stand_of(newest.stand, topics, schemas, plan.cut.settings)
        pins = {topic: schemas[table].pin for table, topic in topics.items()}
        self._begin_proofs(plan, pins)
        self._has_proofs_to_begin = self._proofs is not None
        for serving in served:
            at = of_sinks[serving.spec.name]
            positions = {name: at[name] or newest.position for name in serving.sinks}
            self._begin_sending(serving, positions)
        self._held = HeldLogs(record=stand.record, captured=(stand,), declared={})

    def _want(self, view: _View) -> None:
        """Take note of the columns that a view may ask of whole tables, and of its rows."""
        # Of the extra [follow]: nothing but a follower imports it.
        from views.rebuild.local.engine import LocalQuery  # noqa: PLC0415
        from views.rebuild.local.whole import WholeView  # noqa: PLC0415

        if not isinstance(view.query, LocalQuery):
            for table in view.spec.tables:
                self._local.held[table].want([KEY])
        else:
            for place, names in view.query.used.items():
                self._local.held[place.table].want(names)
            if isinstance(view.lineage, Untraceable):
                view.whole = WholeView(view.query, view.spec.key, self._local.held)

    @contextmanager
    def _or_whole(self, views: Sequence[str]) -> Iterator[None]:
        """Mark views as in need of Spark where a value has no form in this process."""
        try:
            yield
        except UnknownValueError as error:
            self._whole |= dict.fromkeys(views, str(error))
            if isinstance(error, TooLargeError):
                self._too_large.update(views)

    def _viewed(
        self,
        spark: SparkSession | None,
        serving: Serving,
        named: Mapping[TableName, Sequence[str]],
        keys: Mapping[TableName, Sequence[str]],
        schemas: Mapping[TableName, TopicSchemas],
    ) -> _View:
        spec = serving.spec
        if not isinstance(spec.source, SqlSource) or spec.views:
            raise UnknownValueError("it is no single query")
        own = {table: named[table] for table in spec.tables}
        lineage = trace(spec.source, spec.key, own, {table: keys[table] for table in spec.tables})
        if chosen := [
            str(table) for table, table_schemas in schemas.items() if table_schemas.choices
        ]:
            raise UnknownValueError(f"values of {', '.join(chosen)} have another form in views")
        # Of the extra [follow]: nothing but a follower imports it.
        from views.rebuild.local.engine import LocalQuery  # noqa: PLC0415

        by_spark = None if spark is None else BySpark(spark, spec.source, schemas)
        query: RowsQuery
        try:
            query = LocalQuery(spec.source, schemas, serving.schema)
        except UnknownValueError as error:
            if isinstance(lineage, Untraceable):
                raise UnknownValueError(f"{lineage.why}, and not computed here: {error}") from error
            if by_spark is None:
                raise
            log.info('view "%s" is computed by Spark in each round: %s', spec.name, error)
            query = by_spark
        return _View(
            spec=spec,
            generation=serving.generation,
            sinks=serving.sinks,
            schema=serving.schema,
            columns=serving.columns,
            schemas=schemas,
            lineage=lineage,
            query=query,
            spark=by_spark,
            visible=VisibleChanges(query.used, schemas, self._decoded),
            declared=serving.declared,
            recorded_at=serving.recorded_at,
            refused=serving.refused,
            rows=serving.rows,
        )

    def round(self, newest: Newest, stages: Stages, *, looks: bool) -> Outcome:
        """Bring all views to a frontier.

        Raises NotHereError: Spark has to make the round; ChangelogError: the log or a server does
        not answer.
        """
        try:
            return self._round(newest, stages, looks=looks)
        except sqlite3.Error as error:
            self._local.discard()
            raise NotHereError(f"the rows of its tables cannot be kept here: {error}") from error

    def _round(self, newest: Newest, stages: Stages, *, looks: bool) -> Outcome:
        assert self._held is not None  # noqa: S101 - the caller asked
        started = time.monotonic()
        self._is_pressed = started - self._ended_at < _AT_ONCE_S
        self._decoded.clear()  # of rows that were held since, or of a round that failed
        self._require_here()
        if self._held.offsets_to(newest.record) > MOST_OFFSETS:
            raise NotHereError("much has changed since")
        try:
            with ThreadPoolExecutor(2, "proofs") as pool:
                proving = pool.submit(self._prove_to, newest)
                with stages.stage("scan", "what came since"):
                    step = self._held.step(self.kafka, newest, self._local.held)
                is_exact = pool.submit(step.check)
                try:
                    with stages.stage("merge", "what changed"):
                        self._compute(step)
                        self._decoded.clear()
                    with stages.stage("prove", "what came since, read once more"):
                        proving.result()
                        self._compare(step)
                finally:  # also after an error: the rows kept for the next start have this read
                    self._require_exact(is_exact)
            if self._proofs is not None:
                changed = sum(map(len, step.changed.values()))
                self._proofs.use_all_cores(is_much=changed > _MANY_KEYS)
            self._prove_and_send(newest.record.frontier, step.logs.position, stages)
        except (UnknownValueError, VerdictError) as error:
            raise NotHereError(str(error)) from error
        self._held = step.logs
        self._made += 1
        self._apply(stages)
        self._lacks_from = {}
        self._note_kept()
        if looks:
            self._look(newest.record.frontier, stages)
        results = [self._result(view, step, started, stages) for view in self._views]
        self._record(results, stages)
        self._ended_at = time.monotonic()
        return Outcome.of(results)

    def _prove_to(self, newest: Newest) -> None:
        if self._proofs is None:
            return
        if self._has_proofs_to_begin:
            tables = list(self._local.held)
            self._proofs.begin(newest.record, tables, newest.captured, asked_ms=newest.asked_ms)
        else:
            self._proofs.advance(newest.record, newest.captured, asked_ms=newest.asked_ms)

    def _require_exact(self, check: Future[None]) -> None:
        """Raise if the read was not exact; the next start then cannot go on from its rows.

        If the brokers did not answer the check, it still can, as long as it proves: a proof
        compares the rows with the log.
        """
        try:
            check.result()
        except ChangelogError as error:
            if self._proofs is None or not isinstance(error, UnavailableError):
                self._local.discard()
            raise

    def _compare(self, step: Step) -> None:
        """Compare the numbers of touched keys according to the two readers of the log.

        A record that the one of them skipped changes no key that is named here, so nothing that is
        sent would tell of it.
        """
        if self._proofs is None:
            return
        if self._has_proofs_to_begin:
            self._compare_places()
            self._has_proofs_to_begin = False
            return
        for table, changed in step.changed.items():
            if (keys := self._proofs.touched(table)) != len(changed):
                raise NotHereError(f"{table}: {len(changed)} keys were read, by the proof {keys}")

    def _compare_places(self) -> None:
        """Compare the record of each row with the one that the proof has read from the log.

        An earlier process has read most of them.
        """
        assert self._proofs is not None  # noqa: S101 - the caller looked
        for table, local in self._local.held.items():
            if differing := self._proofs.differing(table, local.places()):
                self._local.discard()
                raise NotHereError(f"{table}: {differing:,} rows that were kept are not the log's")

    def _compute(self, step: Step) -> None:
        """Compute the changed rows of each view."""
        stand = step.logs.captured[0] if self._local.is_kept else None
        touched = self._local.advance(step.changed, step.logs.position, stand)
        since = {p: self._local.since(p) for p in set(self._lacks_from.values())}
        of_step = touched
        for view in self._views:
            view.delta, view.reports, view.error = None, {}, None
            lacked = self._lacks_from.get(view.spec.name)
            touched = of_step if lacked is None else {**of_step, **since[lacked]}
            if any(touched[table].is_any for table in view.spec.tables):
                seen = view.visible.of({table: touched[table] for table in view.spec.tables})
                is_seen = any(changes.is_any for changes in seen.values())
                affected = self._affected(view, seen) if is_seen else None
                is_any = affected is not None and (affected.keys.num_rows or affected.rows.num_rows)
                # A delta of no key tells the sinks that they have all that was written.
                view.delta = self._delta(view, affected) if affected and is_any else _nothing(view)

    def _affected(self, view: _View, touched: Mapping[TableName, Touched]) -> Affected | None:
        """Return the rows of a view that may differ, and their keys, or None for no rows."""
        if view.whole is not None:
            rows, keys = view.whole.changed(self._local.held)
            return select_affected(rows, keys.column_names, logged_keys(keys))
        assert isinstance(view.lineage, KeyLineage)  # noqa: S101 - else it is compared as a whole
        origins = view.lineage.origins
        tables = self._local.held
        takes_records = isinstance(view.query, BySpark)
        used = dict.fromkeys(view.lineage.names, (KEY,)) if takes_records else view.query.used
        related = Walk(view.lineage, tables, touched, used, MOST_ROWS).related()
        keys = logged_keys(related.affected.select([origin.column.lower() for origin in origins]))
        if not keys:
            return None
        rows = view.query.rows(_records(related, tables) if takes_records else related.rows)
        return select_affected(rows, [origin.view_column for origin in origins], keys)

    def _delta(self, view: _View, affected: Affected) -> Delta:
        try:
            return delta_from_arrow(affected, view.schema, view.spec.key, view.sinks)
        except NotRenderedError as error:
            log.debug('view "%s" is rendered by Spark: %s', view.spec.name, error)
            self._renders = True  # from now on its session stays
            if view.spark is None or not view.spark.is_alive:
                raise NotHereError(f'view "{view.spec.name}" is rendered by Spark') from error
        change = view.spark.change(affected.rows, affected.keys, view.schema)
        return delta_from_spark(change, view.schema, view.spec.key, view.sinks)

    def _prove_and_send(self, frontier: Frontier, position: Position, stages: Stages) -> None:
        """Prove the rows of each view, and send them while the next view's are proved."""
        views = {view.spec.name: view for view in self._views}
        for name in self._sending.longest_first(views):
            self._verify(views[name], frontier, stages)
            self._leave_out_sent(views[name])
            if not self._settings.together:
                self._sending.send(name, views[name].delta, position)

    def _verify(self, view: _View, frontier: Frontier, stages: Stages) -> None:
        """Verify the rows that are about to be sent."""
        if self._proofs is None or view.delta is None or not view.is_changed:
            return
        text = f"{view.spec.name}: verify {view.delta.table.num_rows:,} keys"
        with stages.stage("verify", text, view.spec.name):
            request = request_of(
                self._settings, frontier, view.spec, view.columns, view.delta.proof_request(), {}
            )
            report = view.reports[CHANGES] = verify_view(request, self._proofs)
        if report.verified is not True:
            log.warning("%s", report.render())
            self._local.discard()
            self._whole[view.spec.name] = "rows that were computed here are refuted"
            raise NotHereError(f'rows of view "{view.spec.name}" are refuted')

    def _leave_out_sent(self, view: _View) -> None:
        """Leave out the proved rows that the sinks were sent before, and have."""
        if view.delta is None or not view.is_changed:
            return
        try:
            digests = view.delta.digests()
        except (ValueError, OverflowError):
            self._sent.forget(view.spec.name)
            return
        view.delta = view.delta.only(self._sent.unsent(view.spec.name, digests))

    def _require_here(self) -> None:
        """Raise where a sink has to be brought forward otherwise."""
        if (why := self._sending.calls_for_spark) is not None:
            raise NotHereError(why)

    def _apply(self, stages: Stages) -> None:
        """Have the proved rows written to the sinks; a refusal is a failure of its view."""
        assert self._held is not None  # noqa: S101 - it was just brought forward
        position = self._held.position
        with stages.stage("apply", "changed keys to every sink"):
            if self._settings.together:
                self._apply_together(position)
            else:
                self._sending.wait(is_pressed=self._is_pressed)
                self._require_here()
                for view in self._views:
                    self._note(view, self._sending.failed(view.spec.name))
                    self._note_reached(view)
        if any(view.error for view in self._views):
            self.forget_states()

    def _note_kept(self) -> None:
        """Leave out of the journal what all sinks have."""
        if self._held is None:
            return
        position = self._held.position
        reaches = [r for v in self._views for r in self._sending.reach(v.spec.name).values()]
        if any(reach.is_left for reach in reaches):
            self._local.discard()
        self._local.reached(min([position, *(reach.position for reach in reaches)]))

    def _apply_together(self, position: Position) -> None:
        moving = [(view, view.delta) for view in self._views if view.delta is not None]
        deltas = [(view.sinks, view.generation, delta) for view, delta in moving]
        for (view, _), error in zip(moving, apply(deltas, position), strict=True):
            self._note(view, error)
            if error is None:
                view.rows = rows_of(next(iter(view.sinks.values())), view.generation)
                self._note_refused(view)

    def _note(self, view: _View, error: Exception | None) -> None:
        if isinstance(error, ChangelogError):
            view.error = error
            log.warning("%s; the other views go on", error)
        elif error is not None:
            raise error

    def _note_reached(self, view: _View) -> None:
        """Record the rows that a generation has and goes without, once all its sinks have them."""
        rows = self._sending.rows(view.spec.name)
        view.rows = view.rows if rows is None else rows
        view.is_told = view.is_told and view.delta is None
        reach = self._sending.reach(view.spec.name)
        if not view.is_told and not any(of_sink.is_behind for of_sink in reach.values()):
            self._note_refused(view)
            view.is_told = True

    def _note_refused(self, view: _View) -> None:
        """Record the rows that a generation goes without in some sinks."""
        if not self._settings.rebuild.left_out_at_most:
            return
        before = view.refused
        view.refused = note_refused(
            self._settings.warehouse, view.spec.name, view.generation, view.sinks, self._run
        )
        if view.refused != before:
            counts = ", ".join(f"{name} {count}" for name, count in view.refused.items())
            log.warning('view "%s" goes without refused rows: %s', view.spec.name, counts or "none")

    def forget_states(self) -> None:
        """Leave the next round to Spark, from each sink's position; results are still reported."""
        self._held = None

    def _look(self, frontier: Frontier, stages: Stages) -> None:
        """Compare all that sinks serve: a proof of some keys does not say that no other changed."""
        if self._proofs is None:
            return
        self._proofs.use_all_cores(is_much=True)
        for view in self._views:
            if view.error is not None:
                continue
            reach = self._sending.reach(view.spec.name)
            for name, sink in view.sinks.items():
                if name in reach and reach[name].is_behind:
                    log.warning("%s: not compared: %s", view.spec.name, reach[name].shown(name))
                    continue
                text = f"{view.spec.name}: verify all of {name}"
                with stages.stage("verify", text, view.spec.name):
                    address = sink.address(view.generation)
                    request = request_of(
                        self._settings, frontier, view.spec, view.columns, address, {}
                    )
                    try:
                        report = view.reports[name] = verify_view(request, self._proofs)
                    except VerdictError as error:
                        log.warning("not compared: %s; the next round is made by Spark", error)
                        self.forget_states()
                        return
                try:
                    report.raise_on_mismatch(serving=name)
                except RefutedError as error:
                    view.error = view.error or error
        if any(view.error for view in self._views):
            self.forget_states()

    def _record(self, results: Sequence[ViewResult], stages: Stages) -> None:
        """Write the generations' positions to the history at times, and after whole proofs."""
        now = datetime.now(UTC)
        due = [
            (view, result)
            for view, result in zip(self._views, results, strict=True)
            if isinstance(view.error, RefutedError) or (result.published and (
                view.reports.keys() >= view.sinks.keys()
                or (view.is_changed and now - view.recorded_at >= RECORDED_EVERY)
            ))
        ]  # fmt: skip
        resting = [
            (view, result.frontier)
            for view, result in zip(self._views, results, strict=True)
            if result.published and not (view.is_changed or view.reports)
            and now - view.recorded_at >= UNCHANGED_EVERY
        ]  # fmt: skip
        if not (due or resting):
            return
        with stages.stage("record", "write the history"):
            try:
                history = GenerationHistory(self._settings.warehouse)
                rows = [
                    result.to_history(PUBLISHED if view.error is None else REFUTED, self._run)
                    for view, result in due
                ]
                for view, frontier in resting:
                    name, number = view.spec.name, view.generation
                    recorded = history.rows([name], generation=number)
                    row = frontier and unchanged_at(recorded, number, frontier, self._run)
                    rows += [row] if row else []
                history.append(rows)
                history.tidy()
            except ChangelogError as error:
                log.warning("the history is told later: %s", error)
                return
        leave_code()  # of deltalake: for a minute nothing runs it
        for view in [*(view for view, _ in due), *(view for view, _ in resting)]:
            view.recorded_at = now

    def _result(self, view: _View, step: Step, started: float, stages: Stages) -> ViewResult:
        changed, record = view.delta, step.logs.record
        reach = self._sending.reach(view.spec.name)
        total = round(time.monotonic() - started, 3)
        return ViewResult(
            view=view.spec.name,
            generation=view.generation,
            frontier=shown(record),
            schemas=view.schemas,
            columns=view.columns,
            verdict=step.verdict.kind.value,
            records_read=sum(len(step.changed[table]) for table in view.spec.tables),
            rows=view.rows,
            tombstones=sum(
                record[1] is None for table in view.spec.tables
                for record in step.changed[table]
            ),
            seconds={**stages.seconds(view.spec.name), "total": total},
            verified=verdict_of(view.reports.values()),
            mismatches=sum(report.mismatches for report in view.reports.values())
            if view.reports else None,
            published=view.error is None and not any(one.is_behind for one in reach.values()),
            reach=reach,
            sinks=view.spec.sinks,
            refused=view.refused,
            mode=self._settings.verify.value,
            reports=dict(view.reports),
            error=view.error,
            origin=UNCHANGED if changed is None or not view.is_changed
            else f"forward: {changed.table.num_rows:,} changed keys",
            warnings=warnings_of(view.spec, record),
            **view.declared,
        )  # fmt: skip
