"""Which views of a run can be planned together, and why the others cannot.

Views of one run share one frontier. A view that reads a table that is not captured, or one whose
topic cannot be read exactly any more, fails by itself; the others are planned without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from changelog.contract.base.errors import ChangelogError, NoFrontierError, UnavailableError
from changelog.contract.log.order import with_places
from changelog.contract.rows.relation import TableName
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.decode.schemas import TopicSchemas
from views.base.config import RebuildSettings, VerifyMode
from views.base.failure import RebuildError, of_view
from views.project.spec import ViewSpec
from views.rebuild.plan.analysis import Analysis, analyse
from views.rebuild.plan.plan import Plan, planned, schemas_now
from views.rebuild.result.report import ViewResult

SIDE_BY_SIDE = "it reads the log of another capture"
"""Why a refresh computes all rows of a view."""


@dataclass(frozen=True, slots=True)
class Plannable:
    """What can be built at one frontier.

    Attributes:
        plan: of the views that can be built; None when none can.
        specs: these views.
        failed: the results of the others.
        analyses: what is known of each view of captured tables before it is built, by name.
    """

    plan: Plan | None
    specs: Sequence[ViewSpec]
    failed: list[ViewResult] = field(default_factory=list)
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

    Args:
        specs: the views.
        settings: of the run.
        sample: whether a few records are read, to count the rest.
        required: whether the log has to be able to give them, too.
        steps: counts what is asked for, of brokers and registry, and the views that are looked at.

    Raises:
        ChangelogError: no view can be planned, or one cannot and all stand together.
    """

    def plan_of(some: Sequence[ViewSpec], *, sample: bool = False) -> Plannable:
        plan = planned(some, settings, sample=sample, steps=steps)
        if required:
            plan.cut.verdict.require()
        # What Spark cannot read is said before it starts.
        plan = replace(plan, schemas=schemas_now(plan, settings, steps))
        is_looked_at = not required or settings.verify is not VerifyMode.NONE
        is_looked_at = is_looked_at and not plan.logs
        found = analyses(some, plan.schemas, settings, steps) if is_looked_at else {}
        others = {log.table for log in plan.others}
        for name in (spec.name for spec in some if others & {*spec.tables} and spec.name in found):
            found[name] = replace(found[name], whole=SIDE_BY_SIDE)
        return Plannable(plan, some, analyses=found)

    try:
        return plan_of(specs, sample=sample)
    except ChangelogError as error:
        alone = settings.together or len(specs) == 1
        if alone or isinstance(error, UnavailableError | NoFrontierError):
            raise
    good, failed = [], []
    for spec in specs:
        try:
            plan_of([spec])
        except UnavailableError:
            raise
        except ChangelogError as error:
            reason = of_view(error, spec.name)
            failed.append(ViewResult(view=spec.name, sinks=spec.sinks, error=reason))
        else:
            good.append(spec)
    found = plan_of(good, sample=sample) if good else Plannable(None, ())
    return replace(found, failed=failed)


def analyses(
    specs: Sequence[ViewSpec],
    schemas: Mapping[TableName, TopicSchemas],
    settings: RebuildSettings,
    steps: Steps = UNSEEN,
) -> dict[str, Analysis]:
    """Look at views of captured tables before Spark starts; `steps` counts them.

    Raises:
        ViewError: a view reads a column, or has a key, that is not there.
        RebuildError: a view is to be verified and cannot be.
    """
    tables = {table: with_places(each.logged(each.reader_id)) for table, each in schemas.items()}
    found = {}
    steps.more(len(specs))
    for spec in specs:
        steps.begin(f"view {spec.name}")
        found[spec.name] = analyse(spec, tables)
        steps.done()
    if settings.verify is not VerifyMode.NONE:
        for spec in specs:
            why = found[spec.name].unprovable
            if why is not None and spec.sql is not None:
                raise RebuildError(
                    f'view "{spec.name}" cannot be verified: {why}',
                    hint="docs/sql.md lists what can be; --verify none publishes it unproved",
                )
    return found
