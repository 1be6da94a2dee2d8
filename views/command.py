"""Runs `rebuild-view` once its options are read.

The work runs in a thread of its own: a signal then cancels Spark's jobs from the main thread, on
another connection to the JVM than the one that waits for an answer, and the work ends at a safe
place, removes what it built and says so. A second signal ends the process at once; what that
leaves, the next run removes.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import typer
from rich.console import Console
from rich.table import Table

from changelog.config import BROKERS, REGISTRY, load_project
from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    LogError,
    SinkError,
    UnavailableError,
    VerdictError,
)
from changelog.runtime.edge import (
    bar_console,
    one_line,
    print_json,
    say_error,
    stop_on_signals,
    tell,
)
from changelog.runtime.progress.bar import StepBar
from changelog.runtime.progress.steps import Steps
from changelog.runtime.setting import Given, variables_of
from changelog.runtime.terminal import console
from replay.base.sections import warehouse_of
from replay.broker.topics import NewestFrontier
from replay.spark.connect import release
from replay.spark.session import cancel_jobs, end
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.failure import of_view
from views.base.progress import Stages
from views.certificates.certify import signer_of
from views.explain.explain import explain, parse_key
from views.generations.history import (
    REFUTED,
    GenerationHistory,
    HistoryRow,
    as_served,
    last_states,
)
from views.generations.reached import captured_here
from views.generations.served import Unanswered, served_of, serving_now
from views.generations.staging import newest_staged
from views.lineage.runs import Action, told_to_lineage
from views.project.catalog import Catalog, catalog_of
from views.project.spec import ViewSpec, short_name
from views.rebuild.apart import FollowCommand
from views.rebuild.diff import diff
from views.rebuild.drop import drop, to_drop
from views.rebuild.follow import follow
from views.rebuild.plan.analysis import Analysis
from views.rebuild.plan.histories import check_options
from views.rebuild.plan.listing import catalog_table
from views.rebuild.plan.options import Request
from views.rebuild.plan.plan import Plan, groups_of, plan_view, verdict_of
from views.rebuild.plan.plannable import Plannable, plannable
from views.rebuild.rebuild import RebuildRun
from views.rebuild.result.report import (
    Outcome,
    ViewResult,
    cut_lines,
    fitted,
    history_table,
    results_table,
    staged_lines,
)
from views.rebuild.result.trends import trends
from views.rebuild.rollback import roll_back
from views.rebuild.staged import abort_staged, publish_staged
from views.runs.limit import TimeLimit
from views.runs.recent import is_recent
from views.runs.tell import told

_WIDE = 200


def run(request: Request, overrides: Given) -> None:
    """Run the requested action, with the settings of the command line.

    Raises ChangelogError: it cannot be done; Exit: with another code than 0.
    """
    request.check()
    names = request.names
    try:
        if request.list_views:
            _list(request, overrides)
        elif request.history:
            _history(request, overrides)
        elif request.builds_nothing:
            _later(request, overrides)
        else:
            settings = _settings(request, overrides)
            if request.certificate:
                signer_of(settings)  # a key that cannot be used is told before anything is built
            catalog = catalog_of(settings.project)
            one_by_one = not (request.following or request.together)
            specs, unusable = _declared(catalog, names or None, one_by_one=one_by_one)
            names = [spec.name for spec in specs] + [result.view for result in unusable]
            if request.following:
                _follow(request, overrides, _followed(request, specs, settings), settings)
            else:
                _run(request, specs, settings, unusable)
    except ChangelogError as error:
        if request.debug or not (request.as_json and names):
            raise
        say_error(error)
        _print_results([ViewResult(view=name, error=error) for name in names], as_json=True)
        raise typer.Exit(error.exit_code) from None
    finally:
        release()


def _settings(request: Request, overrides: Given) -> RebuildSettings:
    reads_log = not request.builds_nothing and request.made_of is not RowsSource.ARCHIVE
    needs = [BROKERS, REGISTRY] if reads_log else []
    project = load_project(request.project, overrides=overrides, needs=needs)
    if project.capture.source and needs:
        tell(f'reading the log of source "{project.capture.source}"')
    return RebuildSettings(
        project=project,
        verify=request.proved,
        as_of=request.moment,
        source=request.made_of,
        together=request.together,
        stage=request.stage,
        certificate=request.certificate,
    )


def _later(request: Request, overrides: Given) -> None:
    """Publish, compare or remove existing generations."""
    settings = _settings(request, overrides)
    if request.drop:
        _drop(request, settings)
        return
    specs = catalog_of(settings.project).load_all(request.names or None)
    if request.all_views:
        history = GenerationHistory(settings.warehouse)
        specs = [spec for spec in specs if newest_staged(spec.name, history) is not None] or specs
    stages = _stages(as_json=request.as_json)
    if request.diff:
        _diff(request, specs, settings, stages)
        return
    stop = stop_on_signals()  # a swap or a removal that has begun is ended, whatever asks us
    if request.publish:
        names = [spec.name for spec in specs]
        with told_to_lineage(names, specs, settings, Action.PUBLISH) as take, stages.shown():
            outcome = Outcome.of(
                publish_staged(specs, settings, stages, generation=request.generation, stop=stop)
            )
            take(outcome)
        _ended(outcome, as_json=request.as_json, debug=request.debug)
        return
    with stages.shown():
        gone = abort_staged(specs, settings, stages, stop=stop)
    for view, number in gone.items():
        if request.as_json:
            print_json({"view": view, "generation": number, "aborted": True})
        else:
            tell(f"{view}: generation {number} was staged and is removed")


def _stages(*, as_json: bool) -> Stages:
    """Return stages that move on a terminal, unless a program reads the output."""
    return Stages(bar_console(as_json=as_json))


def _diff(
    request: Request, specs: Sequence[ViewSpec], settings: RebuildSettings, stages: Stages
) -> None:
    for spec in specs:
        with stages.shown():
            compared = diff(spec, settings, stages, generation=request.generation)
        if request.as_json:
            print_json(compared.to_json())
        else:
            console.print(compared.render())


def _drop(request: Request, settings: RebuildSettings) -> None:
    doomed = to_drop(request.names, settings)
    named = "; ".join(map(str, doomed))
    if not request.yes:
        if not sys.stdin.isatty():
            raise ConfigurationError(
                f"not dropped, nobody is there to ask: {named}", hint="--yes does not ask"
            )
        if not typer.confirm(f"Remove all generations of {named}?", err=True):
            raise ConfigurationError("not dropped", hint="--yes does not ask")
    stages = _stages(as_json=request.as_json)
    stop = stop_on_signals()
    with stages.shown():
        drop(doomed, settings, stages, stop=stop)
    for dropped in doomed:
        if request.as_json:
            print_json({"view": dropped.view, "dropped": True, "sinks": list(dropped.sinks)})
        else:
            tell(f"{dropped.view} is dropped from {', '.join(dropped.sinks)}")
            if dropped.has_file:
                tell("  its file stays: the next rebuild makes it again")


def _run(
    request: Request,
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    unusable: Sequence[ViewResult],
) -> None:
    as_json, debug = request.as_json, request.debug
    if request.explain is not None:
        _explain(specs[0], request.explain, settings, as_json=as_json)
    elif request.plan:
        _plan(specs, settings, unusable, as_json=as_json, is_long=request.long)
    elif request.rollback:
        _roll_back(request, specs, settings)
    elif todo := _not_recent(request, specs, settings):
        _rebuild(todo, settings, unusable, as_json=as_json, debug=debug)
    else:
        _ended(Outcome.of(unusable), as_json=as_json, debug=debug)


def _not_recent(
    request: Request, specs: Sequence[ViewSpec], settings: RebuildSettings
) -> Sequence[ViewSpec]:
    """Return the views that a run shortly before has not built."""
    if request.max_age is None:
        return specs
    history, unanswered = GenerationHistory(settings.warehouse), Unanswered()
    since = datetime.now(UTC) - timedelta(seconds=request.max_age)
    project = settings.project
    frontiers = NewestFrontier(project.kafka, settings.frontier_topic, project.slot)
    todo = []
    for spec in specs:
        try:
            serving = serving_now(spec, project, unanswered)
            is_own = bool(captured_here(spec, settings))
            epoch = frontiers.read().frontier.epoch if is_own else None
        except (SinkError, LogError, UnavailableError):
            todo.append(spec)  # its build says more, and waits longer
            continue
        rows = history.rows([spec.name])
        if is_recent(spec, rows, serving, since, settings.verify, epoch=epoch):
            tell(f"{spec.name} is left out: it was built less than {request.max_age:,.0f} s ago")
        else:
            todo.append(spec)
    return todo


def _declared(
    catalog: Catalog, names: Sequence[str] | None, *, one_by_one: bool
) -> tuple[list[ViewSpec], list[ViewResult]]:
    """Read declarations; with `one_by_one`, a broken one does not keep back the rest."""
    if not one_by_one:
        return catalog.load_all(names), []
    specs, unusable = catalog.load_each(names)
    if not specs:
        raise next(iter(unusable.values()))
    return specs, [
        ViewResult(view=name, error=of_view(error, name)) for name, error in unusable.items()
    ]


def _rebuild(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    unusable: Sequence[ViewResult],
    *,
    as_json: bool,
    debug: bool,
) -> None:
    stages = _stages(as_json=as_json)
    limit = TimeLimit(settings.runs.timeout_seconds, stop_on_signals())

    def work() -> Outcome:
        return _rebuilt(groups_of(specs, settings), settings, stages, limit.asks_to_stop)

    places = {spec.name: place for place, spec in enumerate(specs)}
    names = [*places, *(result.view for result in unusable)]
    with (
        told(names, settings) as tell_of,
        told_to_lineage(names, specs, settings, Action.REBUILD) as take,
    ):
        with limit.enforced(), stages.shown():
            outcome = _in_thread(work, limit.asks_to_stop)
        results = sorted(limit.said(outcome.results), key=lambda result: places[result.view])
        outcome = Outcome.of([*results, *unusable])
        take(outcome)
        tell_of(outcome)
    _ended(outcome, as_json=as_json, debug=debug)


def _roll_back(request: Request, specs: Sequence[ViewSpec], settings: RebuildSettings) -> None:
    stages = _stages(as_json=request.as_json)
    stop = stop_on_signals()  # a swap that has begun is ended, whatever asks us to stop
    names = [spec.name for spec in specs]
    with told_to_lineage(names, specs, settings, Action.PUBLISH) as take, stages.shown():
        outcome = _in_thread(
            lambda: Outcome.of(
                roll_back(specs, settings, stages, generation=request.generation, stop=stop)
            ),
            stop,
        )
        take(outcome)
    _ended(outcome, as_json=request.as_json, debug=request.debug)


def _followed(
    request: Request, specs: Sequence[ViewSpec], settings: RebuildSettings
) -> Sequence[ViewSpec]:
    """Return the views to follow; with --all, histories are not among them."""
    followed = [spec for spec in specs if not spec.history]
    if request.all_views and followed and len(followed) < len(specs):
        names = ", ".join(spec.name for spec in specs if spec.history)
        tell(f"{names}: a history is not followed, rebuild it now and then")
        return followed
    check_options(specs, settings)
    return specs


def _follow(
    request: Request, overrides: Given, specs: Sequence[ViewSpec], settings: RebuildSettings
) -> None:
    stop = stop_on_signals()

    def work(take: Callable[[Outcome], None]) -> Outcome:
        def show(outcome: Outcome) -> None:
            take(outcome)
            _print_results(outcome.results, as_json=request.as_json)

        return follow(
            specs,
            settings,
            stages=lambda: _stages(as_json=request.as_json),
            stop=stop,
            show=show,
            make=RebuildRun,
            command=FollowCommand(request.to_follow, variables_of(overrides)),
            end_spark=end,
        )

    names = [spec.name for spec in specs]
    with told_to_lineage(names, specs, settings, Action.FOLLOW) as take:
        outcome = _in_thread(lambda: work(take), stop)
        take(outcome)
    if outcome.error is not None or outcome.results:
        _ended(outcome, as_json=request.as_json, debug=request.debug)


def _ended(outcome: Outcome, *, as_json: bool, debug: bool) -> None:
    errors = outcome.errors()
    if debug:
        for error in errors:
            traceback.print_exception(error)
    _print_results(outcome.results, as_json=as_json)
    for error in errors:
        say_error(error)
    if outcome.error is not None:
        raise typer.Exit(outcome.error.exit_code)


def _rebuilt(
    groups: Sequence[Sequence[ViewSpec]],
    settings: RebuildSettings,
    stages: Stages,
    stop: Callable[[], bool],
) -> Outcome:
    """Run each group of views that has one cut; with `--together` the first that fails ends it."""
    results: list[ViewResult] = []
    for group in groups:
        try:
            outcome = RebuildRun(settings, stages, stop=stop).run(group)
        except ChangelogError as error:
            if len(groups) == 1:
                raise
            outcome = Outcome.of(ViewResult(view=spec.name, error=error) for spec in group)
        results += outcome.results
        if stop() or (settings.together and outcome.error is not None):
            break
    return Outcome.of(results)


def _in_thread(work: Callable[[], Outcome], stop: Callable[[], bool]) -> Outcome:
    """Run the work in a thread, while the main thread waits for it and for signals."""
    ended: list[Outcome | BaseException] = []

    def run() -> None:
        try:
            ended.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            ended.append(error)

    thread = threading.Thread(target=run, name="rebuild")
    thread.start()
    cancelled = False
    while thread.is_alive():
        thread.join(0.2)
        if stop() and not cancelled:
            cancelled = True
            _cancel_jobs()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


def _cancel_jobs() -> None:
    tell("stopping: removing what was built")
    cancel_jobs()


def _plan(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    unusable: Sequence[ViewResult],
    *,
    as_json: bool,
    is_long: bool,
) -> None:
    failed = list(unusable)
    for group in groups_of(specs, settings):
        with StepBar(bar_console(as_json=as_json), "planning") as steps:
            planned = plannable(group, settings, sample=True, required=False, steps=steps)
            failed += planned.failed
            if planned.plan is None:
                continue
            _show_plan(planned, planned.plan, settings, steps, as_json=as_json, is_long=is_long)
        failed += _not_exact(planned.specs, planned.plan)
    _end_with(failed, as_json=as_json)


def _end_with(failed: Sequence[ViewResult], *, as_json: bool) -> None:
    """Report the failed views, and end with their exit code."""
    if as_json:
        for result in failed:
            print_json(result.to_json())
    outcome = Outcome.of(failed)
    for error in outcome.errors():
        say_error(error)
    if outcome.error is not None:
        raise typer.Exit(outcome.error.exit_code)


def _not_exact(specs: Sequence[ViewSpec], plan: Plan) -> list[ViewResult]:
    """Return the views whose topics cannot give an exact state; one error for each reason."""
    errors: dict[tuple[str, ...], VerdictError] = {}
    failed = []
    for spec in specs:
        verdict = verdict_of(spec, plan.cut)
        try:
            verdict.require()
        except VerdictError as error:
            shared = errors.setdefault(verdict.reasons, error)
            failed.append(ViewResult(view=spec.name, sinks=spec.sinks, error=shared))
    return failed


def _show_plan(
    planned: Plannable,
    plan: Plan,
    settings: RebuildSettings,
    steps: Steps,
    *,
    as_json: bool,
    is_long: bool,
) -> None:
    history = GenerationHistory(settings.warehouse)
    for spec in planned.specs:
        served = served_of(spec, settings.project, None)
        analysis = planned.analyses.get(spec.name)
        view_plan = plan_view(spec, plan, served, history, analysis=analysis, steps=steps)
        if as_json:
            print_json(view_plan.to_json())
        else:
            for line in view_plan.lines() if is_long else view_plan.short_lines():
                tell(line)
    if not as_json:
        if not plan.logs or plan.parts is not None:
            for line in cut_lines(plan.record.frontier, plan.cut.topics.values()):
                tell(f"to {line}")
        tell(f"verdict: {plan.cut.verdict}")


def _explain(spec: ViewSpec, key: str, settings: RebuildSettings, *, as_json: bool) -> None:
    explanation = explain(spec, parse_key(spec, key), settings)
    if as_json:
        print_json(explanation.to_json())
        return
    for line in explanation.lines():
        tell(line)


def _list(request: Request, overrides: Given) -> None:
    catalog, as_json = _catalog(request, overrides), request.as_json
    specs, unusable = _declared(catalog, request.names or None, one_by_one=True)
    serving = _serving(request, overrides)
    looked = _looked_at(request, overrides, specs)
    if not as_json:
        _show(catalog_table(specs, serving, looked))
    for spec in specs if as_json else ():
        print_json(
            {
                "view": spec.name,
                "kind": spec.kind,
                "key": list(spec.key),
                "sinks": list(spec.sinks),
                "tables": [short_name(table) for table in spec.tables],
                "views": list(spec.views),
                "description": spec.description,
                **_serves(spec.name, serving),
                **(looked[spec.name].to_json() if spec.name in looked else {}),
            }
        )
    if not request.names:
        _tell_without_file(catalog, serving or {})
    _end_with(unusable, as_json=as_json)


def _serves(name: str, serving: Mapping[str, HistoryRow] | None) -> dict[str, object]:
    """Return the generation that serves of a view, as JSON; nothing where that is not known."""
    if serving is None:
        return {}
    row = serving.get(name)
    return {
        "generation": None if row is None else row.generation,
        "refuted": row is not None and row.state == REFUTED,
    }


def _tell_without_file(catalog: Catalog, serving: Mapping[str, HistoryRow]) -> None:
    """Name the views that serve although their files are gone: a file may have another name now."""
    for name in sorted(serving.keys() - {*catalog.names}):
        row = serving[name]
        tell(
            f"{name} has no file any more, and generation {row.generation} still serves in "
            f"{', '.join(row.sinks)}: rebuild-view {name} --drop removes it"
        )


def _catalog(request: Request, overrides: Given) -> Catalog:
    """Return the views of a project, also where its settings cannot be used."""
    try:
        return catalog_of(load_project(request.project, overrides=overrides, needs=[]))
    except ConfigurationError:
        return Catalog.of(request.project.resolve())


def _looked_at(
    request: Request, overrides: Given, specs: Sequence[ViewSpec]
) -> dict[str, Analysis]:
    """Analyse the views as a plan does, if the log answers about its tables."""
    try:
        settings = RebuildSettings(
            project=load_project(request.project, overrides=overrides, needs=[BROKERS, REGISTRY]),
            verify=VerifyMode.NONE,
        )
        analyses: dict[str, Analysis] = {}
        for group in groups_of(specs, settings):
            analyses |= plannable(group, settings, required=False).analyses
    except ChangelogError as error:
        tell(f"proof and refresh are not shown: {one_line(error)}")
        return {}
    return analyses


def _serving(request: Request, overrides: Given) -> dict[str, HistoryRow] | None:
    """Return the row of what serves of each view, or None where the settings cannot be used."""
    try:
        project = load_project(request.project, overrides=overrides, needs=[])
        rows = GenerationHistory(warehouse_of(project)).rows()
    except ConfigurationError as error:
        tell(f"what is published is not shown: {one_line(error)}")
        return None
    own: dict[str, list[HistoryRow]] = {}
    for row in rows:
        own.setdefault(row.view, []).append(row)
    served = {view: as_served(steps) for view, steps in own.items()}
    return {view: row for view, row in served.items() if row is not None}


def _history(request: Request, overrides: Given) -> None:
    project = load_project(request.project, overrides=overrides, needs=[])
    rows = GenerationHistory(warehouse_of(project)).rows(request.names or None)
    unknown = set(request.names) - {row.view for row in rows}
    if unknown:  # of a view that is gone the history may still tell
        _catalog(request, overrides).load_all(sorted(unknown))
    newest = last_states(rows)
    if request.as_json:
        for row in newest.values():
            print_json(row.to_json())
    else:
        _show(history_table(rows))
        for trend in trends(rows):
            tell(trend.line())


def _print_results(results: Sequence[ViewResult], *, as_json: bool) -> None:
    if as_json:
        for result in results:
            print_json(result.to_json())
        return
    for report in (report for result in results for report in result.reports.values()):
        if report.verified is not True:
            console.print(report.render())
    _show(results_table(results))
    for line in (line for result in results if result.staged for line in staged_lines(result)):
        tell(line)
    for result in results:
        if result.certificate_file:
            tell(f"{result.view}: its certificate is {result.certificate_file}")


def _show(table: Table) -> None:
    """Write a table; where there is no terminal, nothing says how wide it may be."""
    wide = console if console.is_terminal else Console(stderr=True, width=_WIDE)
    wide.print(fitted(table, wide))
