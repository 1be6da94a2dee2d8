"""The serving generations of a run's views, for steps that go on from them."""

from __future__ import annotations

from collections.abc import Mapping

from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from views.generations.history import REFUTED
from views.project.lineage import KeyLineage
from views.project.spec import ViewSpec
from views.rebuild.one_view.forward import position_of
from views.rebuild.one_view.refresh import DELTA, Standing, Whole, is_by_key, lineage_of, prior_of
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.run.forward import Forward
from views.rebuild.run.run import Run


def standing(run: Run, forward: Forward, build: ViewBuild) -> Standing:
    """Return the generation that a view goes on from, and note when it was recorded.

    History and sinks are asked once: nobody else moves the view's readers meanwhile.
    """
    if build.standing is None:
        build.standing = _asked(run, forward, build)
    return build.standing


def _asked(run: Run, forward: Forward, build: ViewBuild) -> Standing:
    rows = run.history.rows([build.spec.name], generation=build.previous)
    build.recorded_at = rows[-1].at if rows else None
    if rows and rows[-1].state == REFUTED:
        why = f"generation {build.previous}, which serves, is refuted"
        return Standing(Whole(why), {})
    sinks = forward.sinks(build)
    if sinks and build.previous is not None:
        position = position_of(sinks, build.previous)
        prior = prior_of(rows, build.previous, None, goes_forward=True, position=position)
    else:
        prior = prior_of(rows, build.previous, _place(build))
    return Standing(prior, sinks)


def needs_rows(spec: ViewSpec, stand: Standing, schemas: Mapping[TableName, TopicSchemas]) -> bool:
    """Tell whether a view needs its tables' rows at its position in order to go on.

    Args:
        spec: the view.
        stand: the place that it goes on from.
        schemas: of the tables of the run.
    """
    if isinstance(stand.prior, Whole):
        return False
    logged = {table: schemas[table].logged(schemas[table].reader_id) for table in spec.tables}
    columns = {table: [c.column for c in schema.columns] for table, schema in logged.items()}
    lineage = lineage_of(spec, columns, {table: schema.key for table, schema in logged.items()})
    return isinstance(lineage, KeyLineage) and not is_by_key(lineage, spec, stand.prior)


def _place(build: ViewBuild) -> str | None:
    """Return the path of the Delta table with the serving rows, if there is one."""
    sink = build.served.sinks.get(DELTA)
    if sink is None or build.previous is None:
        return None
    return sink.address(build.previous).location["path"]
