"""Which views of a run can be planned together, and why the others cannot.

Views of one run share one frontier. A view that reads a table that is not captured, or one whose
topic cannot be read exactly any more, fails by itself; the others are planned without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from changelog.contract.errors import ChangelogError, NoFrontierError, UnavailableError
from views.config import RebuildSettings
from views.failure import of_view
from views.plan import Plan, pins_now, planned
from views.report import ViewResult
from views.spec import ViewSpec


@dataclass(frozen=True, slots=True)
class Plannable:
    """What can be built at one frontier.

    Attributes:
        plan: of the views that can be built; None when none can.
        specs: these views.
        failed: the results of the others.
    """

    plan: Plan | None
    specs: Sequence[ViewSpec]
    failed: list[ViewResult] = field(default_factory=list)


def plannable(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    *,
    sample: bool = False,
    required: bool = True,
) -> Plannable:
    """Plan the views that can be planned at one frontier.

    Args:
        specs: the views.
        settings: of the run.
        sample: whether a few records are read, to count the rest.
        required: whether the log has to be able to give them, too.

    Raises:
        ChangelogError: no view can be planned, or one cannot and all stand together.
    """

    def plan_of(some: Sequence[ViewSpec], *, sample: bool = False) -> Plan:
        plan = planned(some, settings, sample=sample)
        if required:
            plan.cut.verdict.require()
            pins_now(plan, settings)  # what Spark cannot read is said before it starts
        return plan

    try:
        return Plannable(plan_of(specs, sample=sample), specs)
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
    return Plannable(plan_of(good, sample=sample) if good else None, good, failed)
