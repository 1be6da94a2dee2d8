"""The views of a run that can be planned together, and the errors of the rest.

Views of one run share one frontier. A view that reads a table that is not captured, or one whose
topic cannot be read exactly any more, fails by itself; the others are planned without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlglot

from changelog.contract.base.errors import ChangelogError, NoFrontierError, UnavailableError
from changelog.contract.log.order import with_places
from changelog.contract.rows.choices import ChoicesError
from changelog.contract.rows.relation import TableName
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.decode.schemas import TopicSchemas
from views.base.config import RebuildSettings, VerifyMode
from views.base.failure import RebuildError, explained, of_view
from views.base.spark_sql import SparkSql
from views.generations.served import served_of
from views.meaning.view import as_meant, check_inheritance
from views.project.output import outputs, spelled
from views.project.spec import SqlSource, ViewSpec, check_declared
from views.rebuild.plan.analysis import Analysis, Engine, analyse
from views.rebuild.plan.histories import analyse_history, check_logs, check_options, viewed
from views.rebuild.plan.plan import Plan, planned, schemas_now, tables_of
from views.rebuild.result.report import ViewResult

SIDE_BY_SIDE = "it reads the log of another capture"
"""Why a refresh computes all rows of a view."""


@dataclass(frozen=True, slots=True)
class Plannable:
    """Views that can be built at one frontier."""

    plan: Plan | None  # of the views that can be built; None if none can
    specs: Sequence[ViewSpec]  # these views
    failed: list[ViewResult] = field(default_factory=list)  # the results of the other views
    # the analysis of each view of captured tables, by name
    analyses: Mapping[str, Analysis] = field(default_factory=dict)


def plannable(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    *,
    sample: bool = False,
    required: bool = True,
    steps: Steps = UNSEEN,
) -> Plannable:
    """Plan the views that can be planned at one frontier.

    `sample`: whether a few records are read, to estimate how many there are. `required`: whether a
    view also fails if the log cannot give its state. `steps`: counts the requests to brokers and
    registry, and the analysed views.

    Raises ChangelogError: no view can be planned, or one cannot and they are published together.
    """

    def plan_of(some: Sequence[ViewSpec], *, sample: bool = False) -> Plan:
        check_options(some, settings)
        plan = planned(some, settings, sample=sample, steps=steps)
        others = [*(log.table for log in plan.logs), *(log.table for log in plan.others)]
        check_logs(some, others, plan.cut.record.frontier)
        if required:
            plan.cut.verdict.require()
        # Reading the schemas now finds those that Spark cannot read before it starts.
        return replace(plan, schemas=schemas_now(plan, settings, steps))

    stand_together = settings.together or len(specs) == 1
    good, errors = list(specs), dict[str, ChangelogError]()
    try:
        plan = plan_of(specs, sample=sample)
    except ChangelogError as error:
        if stand_together or isinstance(error, UnavailableError | NoFrontierError | ChoicesError):
            raise
        good, errors = _parted(specs, plan_of)
        if not good:
            return Plannable(None, (), _failed(specs, errors))
        plan = plan_of(good, sample=sample)
    is_looked_at = not required or settings.verify is not VerifyMode.NONE
    meant, refused = _meant(good, plan.schemas, plan.record.frontier.children)
    analysed, more = analyses(meant, plan, settings, steps) if is_looked_at else ({}, {})
    refused |= more
    if refused:
        if stand_together:
            raise next(iter(refused.values()))
        errors |= refused
        good, before = [spec for spec in good if spec.name not in refused], good
        if not good:
            return Plannable(None, (), _failed(specs, errors))
        if {*tables_of(good)} != {*tables_of(before)}:
            plan = plan_of(good, sample=sample)  # without the tables of the refused views
    names = {spec.name for spec in good}
    spelled_out = [_with_key(spec, plan) for spec in meant if spec.name in names]
    return Plannable(plan, spelled_out, _failed(specs, errors), analyses=analysed)


def meaning(spec: ViewSpec, schemas: Mapping[TableName, TopicSchemas]) -> ViewSpec:
    """Return a view with the comparisons of PostgreSQL, as the engines have to compute it.

    Raises ViewError: it compares values whose form on the log compares otherwise.
    """
    logged = {
        table: viewed(spec, table_schemas.viewed)
        for table, table_schemas in schemas.items()
        if table in spec.tables
    }
    columns = {t: {c.column: c.type for c in schema.columns} for t, schema in logged.items()}
    return as_meant(spec, columns, {table: schema.key for table, schema in logged.items()})


def _meant(
    specs: Sequence[ViewSpec],
    schemas: Mapping[TableName, TopicSchemas],
    children: Mapping[TableName, tuple[TableName, ...]],
) -> tuple[list[ViewSpec], dict[str, ChangelogError]]:
    """Return views as the engines have to compute them, and the errors of refused views by name."""
    meant, errors = list[ViewSpec](), dict[str, ChangelogError]()
    for spec in specs:
        try:
            meant.append(meaning(spec, schemas))
            check_inheritance(spec, children)
        except ChangelogError as error:
            errors[spec.name] = error
    return meant, errors


def _parted(
    specs: Sequence[ViewSpec], plan_of: Callable[[Sequence[ViewSpec]], Plan]
) -> tuple[list[ViewSpec], dict[str, ChangelogError]]:
    """Find the views that cannot be planned, by halving the list: usually there are few.

    Raises UnavailableError: a server does not answer; ChoicesError: the settings are wrong for all
    of them.
    """
    middle = len(specs) // 2
    good, errors = list[ViewSpec](), dict[str, ChangelogError]()
    for some in (specs[:middle], specs[middle:]) if middle else (specs,):
        try:
            plan_of(some)
        except (UnavailableError, ChoicesError):
            raise
        except ChangelogError as error:
            if len(some) == 1:
                errors[some[0].name] = error
                continue
            more, reasons = _parted(some, plan_of)
            good += more
            errors |= reasons
        else:
            good += some
    return good, errors


def _failed(specs: Sequence[ViewSpec], errors: Mapping[str, ChangelogError]) -> list[ViewResult]:
    return [
        ViewResult(view=spec.name, sinks=spec.sinks, error=of_view(errors[spec.name], spec.name))
        for spec in specs
        if spec.name in errors
    ]


def _with_key(spec: ViewSpec, plan: Plan) -> ViewSpec:
    """Return a view whose key is spelled like its columns, expanded `*` included."""
    if not isinstance(spec.source, SqlSource) or {*spec.key} <= {*spec.source.columns}:
        return spec
    tables = {
        table: [column.column for column in viewed(spec, table_schemas.viewed).columns]
        for table, table_schemas in plan.schemas.items()
        if table in spec.tables
    }
    output_columns = outputs(sqlglot.parse_one(spec.source.sql, read=SparkSql), tables) or ()
    key = check_declared(
        "key", spelled(spec.key, [column.name for column in output_columns]), spec.path
    )
    return replace(spec, key=key)


def analyses(
    specs: Sequence[ViewSpec], plan: Plan, settings: RebuildSettings, steps: Steps = UNSEEN
) -> tuple[dict[str, Analysis], dict[str, ChangelogError]]:
    """Analyse views of captured tables before Spark starts; `steps` counts them.

    Returns:
        The analyses, and the errors of views that cannot be built, by name.
    """
    if plan.logs:
        return {}, {}
    tables = {
        table: with_places(table_schemas.viewed) for table, table_schemas in plan.schemas.items()
    }
    others = {log.table for log in plan.others}
    analysed, errors = dict[str, Analysis](), dict[str, ChangelogError]()
    steps.more(len(specs))
    with Engine() as engine:
        for spec in specs:
            steps.begin(f"view {spec.name}")
            try:
                analysis = (
                    analyse_history(spec, tables) if spec.history else analyse(spec, tables, engine)
                )
                _check_analysis(spec, analysis, settings)
            except Exception as error:  # noqa: BLE001 - one view's failure is its own
                errors[spec.name] = explained(error, f'plan of view "{spec.name}"')
            else:
                beside = others & {*spec.tables}
                analysed[spec.name] = replace(analysis, whole=SIDE_BY_SIDE) if beside else analysis
            steps.done()
    return analysed, errors


def _check_analysis(spec: ViewSpec, analysis: Analysis, settings: RebuildSettings) -> None:
    """Refuse a view that a sink would refuse, or that cannot be proved although it has to be.

    Raises SinkError: a sink cannot hold a column; RebuildError: the view is to be verified and
    cannot be.
    """
    if analysis.shape is not None:
        keyed = replace(spec, key=analysis.key)
        for sink in served_of(keyed, settings.project, None).sinks.values():
            sink.check(analysis.shape)
    if settings.verify is VerifyMode.NONE or spec.sql is None or analysis.unprovable is None:
        return
    raise RebuildError(
        f'view "{spec.name}" cannot be verified: {analysis.unprovable}',
        hint="docs/sql.md lists what can be; --verify none publishes it unproved",
    )
