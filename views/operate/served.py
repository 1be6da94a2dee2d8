"""The views of a project: whether each can be built, and whether its sinks answer and agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from changelog.config import Project
from changelog.contract.base.errors import ChangelogError, NoFrontierError, UnavailableError
from changelog.runtime.findings import Findings, Level
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.sections import warehouse_of
from views.base.config import RebuildSettings, VerifyMode
from views.generations.history import (
    DROPPED,
    FAILED,
    REFUTED,
    GenerationHistory,
    HistoryRow,
    all_proved_at,
    as_served,
    is_of_older_epoch,
    states_of,
)
from views.generations.reached import captured_here
from views.generations.served import MakeServed, Unanswered, served_soon, serving_now
from views.generations.succession import staged
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.rebuild.drop import to_drop
from views.rebuild.plan.plan import groups_of
from views.rebuild.plan.plannable import plannable

Planning = Callable[[Sequence[ViewSpec], Project], Mapping[str, ChangelogError]]


def look_at_views(
    findings: Findings,
    project: Project,
    *,
    plan: Planning | None = None,
    make_served: MakeServed = served_soon,
    epoch: int | None = None,
    steps: Steps = UNSEEN,
) -> None:
    """Add the state of each view to the findings.

    `findings`: gets a line for each view. `plan`: tells which views cannot be built; None where no
    brokers can be asked. `make_served`: gives the sinks of a view. `epoch`: of the newest frontier.
    """
    rows = findings.ask("history", GenerationHistory(warehouse_of(project)).rows) or []
    names = findings.ask("views", lambda: catalog_of(project).names)
    if names is None:
        return
    last = {row.view: row.state for row in rows}
    gone = sorted(view for view in {*last} - {*names} if last[view] != DROPPED)
    steps.more(len(gone))
    for name in gone:
        steps.begin(f"view {name}")
        without_file = partial(_look_without_file, findings, name, project, make_served)
        findings.ask(f"view {name}", without_file)
        steps.done()
    catalog = catalog_of(project)
    specs = [
        spec
        for name in names
        if (spec := findings.ask(f"view {name}", partial(catalog.load, name))) is not None
    ]
    refused = plan(specs, project) if plan is not None else {}
    look = _ViewsLook(findings, project, make_served, refused, epoch)
    steps.done(len(names) - len(specs))
    for spec in specs:
        steps.begin(f"view {spec.name}")
        own = [row for row in rows if row.view == spec.name]
        findings.ask(f"view {spec.name}", partial(look.at, spec, own))
        steps.done()


def refused_by_plan(specs: Sequence[ViewSpec], project: Project) -> dict[str, ChangelogError]:
    """Plan views; return the errors of views that cannot be built as tables are now, by name."""
    settings = RebuildSettings(project=project, verify=VerifyMode.NONE)
    errors: dict[str, ChangelogError] = {}
    for group in groups_of(specs, settings):
        try:
            failed = plannable(group, settings, required=False).failed
        except (UnavailableError, NoFrontierError):
            continue  # which the looks at capture and topics tell
        except ChangelogError as error:
            errors |= {spec.name: error for spec in group}
        else:
            errors |= {result.view: result.error for result in failed if result.error}
    return errors


@dataclass(frozen=True, slots=True)
class _ViewsLook:
    """A look at views."""

    findings: Findings  # gets a line for each view
    project: Project  # whose views
    make_served: MakeServed  # gives the sinks of a view
    refused: Mapping[str, ChangelogError]  # why views cannot be built, by name
    epoch: int | None  # of the newest frontier
    unanswered: Unanswered = field(default_factory=Unanswered)  # the sinks that do not answer

    def at(self, spec: ViewSpec, own: Sequence[HistoryRow]) -> None:
        """Look at a view with its rows of the history.

        Raises ChangelogError: it needs somebody's attention.
        """
        serving = serving_now(spec, self.project, self.unanswered, self.make_served)
        is_own = bool(captured_here(spec, RebuildSettings(project=self.project)))
        epoch = self.epoch if is_own else None
        _look(self.findings, spec, own, serving, self.refused.get(spec.name), epoch=epoch)


def _look(
    findings: Findings,
    spec: ViewSpec,
    own: Sequence[HistoryRow],
    serving: Mapping[str, int | None],
    refused: ChangelogError | None,
    *,
    epoch: int | None,
) -> None:
    last = own[-1] if own else None
    if len(set(serving.values())) > 1:
        numbers = ", ".join(f"{name} {number or 'none'}" for name, number in serving.items())
        raise ChangelogError(
            f"its sinks serve different generations: {numbers}",
            hint=f"rebuild-view {spec.name} ends what was cut off; so does the same --publish or "
            "--rollback again",
        )
    served = as_served(own)
    if served is not None and served.state == REFUTED:
        error = ChangelogError(
            f"generation {served.generation}, which serves, was refuted: "
            f"{served.note or served.mismatches}",
            hint=f"rebuild-view {spec.name} writes and proves it anew",
        )
        error.exit_code = 3
        raise error
    if last is not None and last.state in {REFUTED, FAILED}:
        error = ChangelogError(
            f"generation {last.generation} {'was refuted' if last.state == REFUTED else 'failed'}: "
            f"{last.note or last.mismatches}",
            hint=f"rebuild-view {spec.name} --history; {_serving(serving)}",
        )
        error.exit_code = 3 if last.state == REFUTED else 1
        raise error
    number = next(iter(serving.values()), None)
    if number is None and served is not None:
        raise ChangelogError(
            f"nothing serves in {', '.join(serving)}, and the history says generation "
            f"{served.generation}: it was removed there",
            hint=f"rebuild-view {spec.name} writes it again",
        )
    if number is not None and (served is None or served.generation != number):
        recorded = "none" if served is None else f"generation {served.generation}"
        raise ChangelogError(
            f"generation {number} serves, and the history says {recorded}: "
            "a run is moving readers, or was cut off while it did",
            hint=f"where no run is left, rebuild-view {spec.name} ends what was cut off",
        )
    if number is not None and is_of_older_epoch(own, number, epoch):
        raise ChangelogError(
            f"generation {number}, which serves, is of an older epoch than the log's, {epoch}: the "
            "source was put back, or is another one, since",
            hint=f"rebuild-view {spec.name} builds it from the log as it is",
        )
    if refused is not None:
        error = ChangelogError(
            f"cannot be built as the tables are now: {refused.args[0]}",
            hint="; ".join(filter(None, [refused.hint, _serving(serving)])),
        )
        error.exit_code = refused.exit_code
        raise error
    subject = f"view {spec.name}"
    if waiting := staged(states_of((row.generation, row.state) for row in own)):
        ready = f"generation {waiting[-1]} is staged: rebuild-view {spec.name} --publish"
        findings.add(subject, Level.NOTE, ready)
    if served is None:
        if not waiting:
            findings.add(subject, Level.NOTE, f"was never built: rebuild-view {spec.name}")
        return
    age = datetime.now(UTC) - served.at
    findings.add(
        subject,
        Level.OK if served.verified else Level.NOTE,
        f"generation {served.generation}, {_proved(served, own)}, "
        f"published {_ago(age.total_seconds())} ago, in {', '.join(serving)}",
    )


def _serving(serving: Mapping[str, int | None]) -> str:
    """Return the generation that serves, as text; the sinks agree about it."""
    number = next(iter(serving.values()), None)
    return "nothing serves yet" if number is None else f"generation {number} serves"


def _look_without_file(
    findings: Findings, name: str, project: Project, make_served: MakeServed
) -> None:
    """Add a view that serves although its file is gone to the findings."""
    (view,) = to_drop([name], RebuildSettings(project=project))
    holdings = make_served(view.spec, project, None).held_without_listing()
    serving = [
        f"generation {holding.published} in {sink}"
        for sink, holding in holdings.items()
        if holding.published is not None
    ]
    if serving:
        findings.add(
            f"view {name}",
            Level.NOTE,
            f"its file is gone, and it still serves: {', '.join(serving)}; rebuild-view {name} "
            "--drop removes it",
        )


def _proved(served: HistoryRow, own: Sequence[HistoryRow]) -> str:
    if not (served.verified and served.is_of_changes):
        return {True: "proved", False: "refuted", None: "not proved"}[served.verified]
    whole = all_proved_at(own, served.generation)
    last = f", all rows at {whole:%Y-%m-%d %H:%M:%S} UTC" if whole is not None else ""
    return f"changed rows proved{last}"


def _ago(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
