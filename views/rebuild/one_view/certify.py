"""Have each generation verified by the independent code path, before it is published.

A SQL view is computed anew by DuckDB from the same frontier. A Python view cannot be: what is
verified there are its inputs, so the states that replay gave it are written aside for the
verifier and removed at the end of the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import pyarrow as pa
from pyspark import cloudpickle

from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from replay.base.config import OnBadRecord
from replay.base.failures import translated
from replay.broker.client_options import travelling
from replay.result.state import States
from replay.scan.scan import cores_of
from replay.spark.files import Files, uri_of
from replay.spark.session import is_local
from replay.store.committed import write
from views.base.address import Address
from views.base.config import RebuildSettings, VerifyMode
from views.base.pace import Tell, quiet
from views.base.sections import VerifyOn
from views.project.spec import ViewSpec
from views.rebuild.one_view.build import read_of
from views.verify.compare.evidence import Evidence
from views.verify.compare.report import VerifyReport
from views.verify.kept.keeper import NOWHERE, Keeping
from views.verify.log.spread import Spread
from views.verify.records.archived import LogArchive
from views.verify.view import Mode, SentRows, VerifyRequest, verify_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "_verify"
LEAST_SPARE_CORES = 2
"""So many cores that Spark does not use let the log be read for the proof meanwhile."""
PARTS = "log"
"""Below it: what tasks have read of the log for a proof."""
_MODES: Mapping[VerifyMode, Mode] = {
    VerifyMode.SAMPLE: "sample",
    VerifyMode.CHANGED: "changed",
    VerifyMode.FULL: "full",
}


class Certifier:
    """Verifies the generations of one run; a context manager that removes what it wrote."""

    def __init__(
        self,
        spark: SparkSession,
        settings: RebuildSettings,
        replay: States,
        run: str,
        *,
        declared: Sequence[DeclaredLog] = (),
        keeps: bool = True,
        tell: Tell = quiet,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._frontier = replay.frontier
        self._keys = {table: state.key for table, state in replay.states.items()}
        self._place = f"{uri_of(settings.warehouse)}/{FOLDER}/{run}"
        self._written: dict[tuple[str, TableName], Address] = {}
        project, spread = settings.project, self._spread()
        self._has_spread = spread is not None
        self._open_histories = partial(
            Evidence,
            project.kafka,
            project.registry,
            replay.frontier,
            pins=replay.pins,
            tell=tell,
            histories=True,
        )
        self._histories: Evidence | None = None
        self._held = ExitStack()
        self._evidence = Evidence(
            project.kafka,
            project.registry,
            replay.frontier,
            pins=replay.pins,
            quarantines=settings.on_bad_record is OnBadRecord.QUARANTINE,
            declared=declared,
            keeping=_keeping(settings, replay) if keeps else NOWHERE,
            spread=spread,
            archive=None if settings.archive is None else LogArchive(uri_of(settings.archive)),
            tell=tell,
        )

    def _spread(self) -> Spread | None:
        """Return the place where large topics are read for their proof; None to read them here."""
        rebuild, project = self._settings.rebuild, self._settings.project
        everywhere = rebuild.verify_on is VerifyOn.CLUSTER
        is_for_tasks = everywhere or (
            rebuild.verify_on is VerifyOn.AUTO and _is_cluster(self._spark)
        )
        reads_log = self._settings.archive is None and self._settings.verify is not VerifyMode.NONE
        if not (is_for_tasks and reads_log):
            return None
        kafka, registry = project.kafka, project.registry
        return Spread(
            launcher=_SparkLauncher(self._spark),
            width=cores_of(self._spark),
            place=f"{self._place}/{PARTS}",
            kafka=replace(kafka, options=travelling(kafka.options)),
            registry=replace(registry, options=travelling(registry.options)),
            least_offsets=0 if everywhere else rebuild.verify_cluster_offsets,
        )

    def read_ahead(self, specs: Sequence[ViewSpec]) -> None:
        """Begin to read the log for the proofs of views while they are built, if that is quicker.

        What came since the last proof is little, and mostly waited for. Else all of the log is
        read, which is quicker where Spark leaves cores of this machine alone.
        """
        match self._settings.verify:
            case VerifyMode.NONE:
                return
            case VerifyMode.CHANGED:
                pass
            case _ if _spare_cores(self._spark) < LEAST_SPARE_CORES:
                return
        tables = (table for spec in specs if not spec.history for table in spec.tables)
        self._evidence.read_ahead(dict.fromkeys(tables))

    def report(
        self,
        spec: ViewSpec,
        columns: tuple[tuple[str, str], ...],
        subject: Address | SentRows,
    ) -> VerifyReport:
        """Verify the rows of one view in one sink, or the rows about to be sent to its sinks."""
        inputs = spec.tables if spec.sql is None else ()
        states = {table: self._written[spec.name, table] for table in inputs}
        request = request_of(self._settings, self._frontier, spec, columns, subject, states)
        if spec.history:
            return verify_view(request, self._of_histories())
        report = verify_view(request, self._evidence)
        if report.verified is False:
            self._evidence.forget(spec.tables)
        return report

    def _of_histories(self) -> Evidence:
        """Return the versions of tables according to the log.

        They are read after those of the views, never ahead of them: compaction removes the oldest
        record of a key first, so that what it removes meanwhile makes the two differ.
        """
        if self._histories is None:
            self._histories = self._held.enter_context(self._open_histories())
        return self._histories

    def keep(self) -> None:
        """Keep the proved states for the next proof, except the tables of refuted views."""
        self._evidence.keep()

    def keep_inputs(self, spec: ViewSpec, states: Mapping[TableName, DataFrame]) -> None:
        """Write the states that a Python view reads to where the verifier can read them."""
        if spec.sql is not None or self._settings.verify is VerifyMode.NONE:
            return
        for table in spec.tables:
            # Two views that are given the whole of a table share what is written of it.
            place = spec.name if table in spec.columns else "", table
            if place not in self._written:
                path = f"{self._place}/{len(self._written)}"
                with translated():
                    write(read_of(spec, table, states[table], self._keys[table]), path)
                self._written[place] = Address("delta", {"path": path})
            self._written[spec.name, table] = self._written[place]

    def __enter__(self) -> Self:
        self._evidence.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()
        self._evidence.__exit__(kind, error, trace)
        if self._written or self._has_spread:
            Files().remove(self._place)


def request_of(  # noqa: PLR0917 - what a proof is of
    settings: RebuildSettings,
    frontier: Frontier,
    spec: ViewSpec,
    columns: tuple[tuple[str, str], ...],
    subject: Address | SentRows,
    states: Mapping[TableName, Address],
) -> VerifyRequest:
    """Return the request to the verifier.

    `columns`: names and types of its columns. `subject`: the place where a sink holds it, or the
    rows that are about to be sent. `states`: of a view in Python, where the states that it was
    given can be read.
    """
    return VerifyRequest(
        kafka=settings.project.kafka,
        registry=settings.project.registry,
        frontier=frontier,
        view=spec.name,
        tables=spec.tables,
        sql=spec.sql,
        key=spec.key,
        schema=columns,
        address=subject if isinstance(subject, Address) else None,
        sent=subject if isinstance(subject, SentRows) else None,
        mode=_MODES[settings.verify],
        states=states,
        columns=spec.columns,
        left_out_at_most=settings.rebuild.left_out_at_most,
        history=spec.history,
    )


def _keeping(settings: RebuildSettings, replay: States) -> Keeping:
    """Return the way in which the verifier keeps proofs.

    A sample proves too little to go on from. What is proved from the start of the log is kept by
    runs that refresh, and where something is kept already: who never refreshes pays nothing.
    """
    if settings.verify not in {VerifyMode.CHANGED, VerifyMode.FULL}:
        return NOWHERE
    return Keeping(
        warehouse=uri_of(settings.warehouse),
        frontier_topic=settings.frontier_topic,
        offset=replay.cut.record.offset,
        goes_on=settings.verify is VerifyMode.CHANGED,
        begins=settings.reads_checkpoints or settings.verify is VerifyMode.CHANGED,
    )


# What Spark moves are the descriptions of the tasks, as replay's are moved, with the closure of
# a job: in no setting, no plan and no event; and the receipts, one short text a task.
Given = TypeVar("Given")
_SCHEMA = "said string"


class _SparkLauncher:
    """Runs each piece of work as a task of a Spark job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, work: Callable[[Given], str], items: Sequence[Given], /) -> Iterator[str]:
        """Yield the result of each item, in any order; see `Launcher`.

        Raises UnavailableError: a server that runs Spark went away; PySparkException: a task fails
        again and again, or Spark does.
        """
        packed = cloudpickle.dumps((work, list(items)))  # type: ignore[no-untyped-call]

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from changelog.runtime.imports import find_ours_first  # noqa: PLC0415 - there

            find_ours_first()  # before the first module of ours is looked for by its name
            do, all_given = cloudpickle.loads(packed)
            for batch in numbers:
                results = [do(all_given[number]) for number in batch.column(0).to_pylist()]
                yield pa.RecordBatch.from_arrays([pa.array(results, pa.string())], ["said"])

        count = len(items)
        frame = self._spark.range(0, count, 1, max(1, count)).mapInArrow(task, _SCHEMA)
        with translated():
            yield from (row.said for row in frame.collect())


def _spare_cores(spark: SparkSession) -> int:
    """Return the number of cores of this machine that the tasks of a session do not use."""
    used = 0 if _is_cluster(spark) else cores_of(spark)
    return (os.cpu_count() or 1) - used


def _is_cluster(spark: SparkSession) -> bool:
    """Tell whether a session has executors other than its driver."""
    return not is_local(spark.conf.get("spark.master", "local") or "local")
