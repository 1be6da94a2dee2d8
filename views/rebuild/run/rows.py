"""The rows of views in a run: whole, or the differences from the serving generation."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.rows.relation import TableName
from replay.base.config import OnBadRecord
from replay.base.failures import translate
from replay.base.task_faults import FormlessValueError
from replay.pipeline.versions import open_versions
from replay.result.state import ReplayedState, States
from replay.store.stored import StoredStates
from views.base.config import RowsSource
from views.generations.history import UNCHANGED
from views.project.definition import declaration_of, definition_of
from views.project.spec import SqlSource
from views.rebuild.one_view.build import frame_of, kept, write
from views.rebuild.one_view.certify import Certifier
from views.rebuild.one_view.delta import Delta
from views.rebuild.one_view.refresh import (
    Merged,
    Prior,
    Refresher,
    UnchangedView,
    WholeRefresh,
)
from views.rebuild.one_view.refused import write_quarantined
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.run.forward import Forward, needs_rows, standing
from views.rebuild.run.run import RunContext
from views.sinks.base import Change, ChangeableSink, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("changelog.views")


class Rows:
    """Computes the rows of views and writes them to their new generations.

    `run`: the run that it is a step of. `forward`: computes what goes forward in place of a new
    generation.
    """

    def __init__(self, run: RunContext, forward: Forward) -> None:
        self._run, self._forward = run, forward

    def build(
        self,
        spark: SparkSession,
        certifier: Certifier,
        replay: States,
        builds: Sequence[ViewBuild],
    ) -> None:
        """Write the rows of views to new generations, where they do not go forward."""
        with ExitStack() as stack:
            states = _shared_states(replay, builds, stack)
            refresher = None
            if isinstance(replay, StoredStates):
                refresher = Refresher(spark, replay, states, stack)
            for build in builds:
                self._run.check_stop()
                counting_keys = _counted(replay, build.spec.tables)
                with self._run.answerable(build), replay.counting(), counting_keys:
                    read = states
                    if build.spec.history:
                        read = self._versions(spark, replay, build, stack)
                    rows, schema = self._rows(
                        spark, certifier, replay, refresher, build, states=read
                    )
                    if build.unchanged:
                        self._run.note_refused(build, build.number)
                    if build.unchanged or build.delta is not None:
                        continue
                    if not isinstance(rows, Change) and len(build.spec.sinks) > 1:
                        rows = stack.enter_context(kept(rows))
                    number = build.generation.number
                    build.addresses = write(build.served, number, rows, schema, self._run.stages)
                    build.rows = rows_of(next(iter(build.served.sinks.values())), number)
                    self._run.note_refused(build, number)
                    build.generation = build.generation.seal()
                    certifier.keep_inputs(build.spec, states)
            quarantines = self._run.settings.on_bad_record is OnBadRecord.QUARANTINE
            if quarantines and replay.reads_log:
                with self._run.stage("quarantine", "records that cannot be read"):
                    self._run.quarantined = write_quarantined(
                        spark, self._run.settings, replay, self._run.id
                    )

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
        """Return the rows of a view, or only the changed rows, and their schema."""
        frame = frame_of(spark, build.spec, states)
        for sink in build.served.sinks.values():
            sink.check(frame.schema)
        build.columns, build.schema = tuple(frame.dtypes), frame.schema
        build.declaration = declaration_of(build.spec, build.columns)
        build.definition = definition_of(
            build.spec, frame.dtypes, replay.states, self._run.settings.spark.settings
        )
        if refresher is None:
            return frame, frame.schema
        return self._refreshed(certifier, replay, refresher, build, frame), frame.schema

    def _versions(
        self, spark: SparkSession, replay: States, build: ViewBuild, stack: ExitStack
    ) -> dict[TableName, DataFrame]:
        """Return the table of a history, with a row for each version of its rows."""
        (table,) = build.spec.tables
        kafka, schemas = self._run.settings.project.kafka, self._run.schemas[table]
        with self._run.stage("versions", f"{build.spec.name}: all records", build.spec.name):
            versions = stack.enter_context(open_versions(spark, kafka, replay.cut, schemas))
        build.origin = f"start: every version from LSN {versions.complete_from} on"
        return {table: versions.frame}

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
        if self._run.settings.source is not RowsSource.REFRESH:
            return whole
        stand = standing(self._run, self._forward, build)
        prior, forward = stand.prior, stand.forward
        with self._run.stage("merge", f"{build.spec.name}: what changed", build.spec.name):
            merged = refresher.rows(build.spec, prior, whole, build.definition)
            refreshed: UnchangedView | Merged | Delta | WholeRefresh = merged
            if isinstance(merged, Merged) and forward:
                build.forward = forward
                refreshed = self._forward.delta(certifier, replay, build, merged, whole.schema)
        match refreshed:
            case UnchangedView():
                build.unchanged, build.origin = True, UNCHANGED
                build.rows = prior.rows if isinstance(prior, Prior) else None
                return whole
            case Delta():
                build.delta = refreshed
                build.origin = f"forward: {refreshed.table.num_rows:,} changed keys"
                return whole
            case Merged(change, touched):
                build.origin = f"refresh: {touched:,} changed rows merged"
                if not self._is_marked(build, change):
                    return refreshed.frame()
                build.origin += " by deletion vectors"
                return change
            case WholeRefresh(why):
                log.warning('view "%s" is computed whole: %s', build.spec.name, why)
                build.origin = f"{build.origin}; computed whole: {why}"
                return whole

    def _is_marked(self, build: ViewBuild, change: Change) -> bool:
        """Tell whether a view is written as a change of the serving table, by deletion vectors."""
        if not self._run.settings.rebuild.deletion_vectors:
            return False
        sink, *others = build.served.sinks.values()
        if others or not isinstance(sink, ChangeableSink):
            why: str | None = "it has a sink that takes only all of its rows"
        else:
            why = sink.obstacle(change)
        if why is not None:
            log.info('view "%s" is written whole: %s', build.spec.name, why)
        return why is None


def _shared_states(
    replay: States, builds: Sequence[ViewBuild], stack: ExitStack
) -> dict[TableName, DataFrame]:
    """Return each table's state, kept where it is read more than once."""
    uses: Counter[TableName] = Counter()
    for build in builds:
        if build.spec.history:
            continue
        source = build.spec.source
        if isinstance(source, SqlSource):
            uses.update(list(source.tables()) * (2 if _is_read_twice(replay, build) else 1))
        else:
            uses.update(dict.fromkeys(build.spec.tables, 2))
    return {
        table: state.rows.read(stack.enter_context(kept(state.rows.logged)))
        if uses[table] > 1
        else state.frame
        for table, state in replay.states.items()
    }


def _is_read_twice(replay: States, build: ViewBuild) -> bool:
    """Tell whether a refresh reads the view's tables for the keys that differ and for their rows.

    Where a view names one table once, the touched rows alone tell the keys.
    """
    if build.standing is None or not isinstance(replay, StoredStates):
        return False
    schemas = {table: replay.records(table).schemas for table in build.spec.tables}
    is_joined = isinstance(build.spec.source, SqlSource) and len(build.spec.source.references) > 1
    return is_joined and needs_rows(build.spec, build.standing, schemas)


_SHOWN = 5


@contextmanager
def _counted(states: States, tables: Collection[TableName]) -> Iterator[None]:
    """Add the keys of the rows to the error about a value that no type holds.

    The table is read once more for it, of which only their keys are kept.
    """
    try:
        yield
    except Exception as error:
        formless = translate(error)
        if not isinstance(formless, FormlessValueError):
            raise
        own = (states.states[table] for table in tables if table in states.states)
        try:
            sentence = next(
                (
                    sentence
                    for state in own
                    if (sentence := _formless_rows(state, str(formless.args[0])))
                ),
                "",
            )
        except Exception as other:  # the first error is the one to tell
            log.debug("rows are not counted", exc_info=other)
            sentence = ""
        raise FormlessValueError(f"{formless.args[0]}{sentence}", hint=formless.hint) from error


def _formless_rows(state: ReplayedState, message: str) -> str:
    """Return the number and some keys of the rows without a form in an error's column, as text."""
    heads = {name: f'table "{state.table}", column "{name}" (' for name in state.frame.columns}
    column = next((name for name, head in heads.items() if message.startswith(head)), None)
    if column is None or state.rows.formless is None:
        return ""
    bad_rows = state.rows.formless(state.rows.logged).where(F.col("column") == F.lit(column))
    bad_rows.persist()
    try:
        count = bad_rows.count()
        keys = [row["key"] for row in bad_rows.sort("key").limit(_SHOWN).collect()]
    finally:
        bad_rows.unpersist()
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    shown = ", ".join(f"({key})" for key in keys) + (", …" if count > _SHOWN else "")
    return f"; {rows} such a value there: {shown}"
