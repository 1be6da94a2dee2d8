"""Actions of the page: roll back, and publish a staged generation.

An action is planned first, so the visitor who confirms it knows which generation readers will see.
It is carried out only if the plan has not changed by then, by `rebuild-view` in a process of its
own.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from changelog.config import Project
from changelog.contract.base.errors import ChangelogError, LockedError, ViewError
from replay.base.sections import warehouse_of
from views.generations.history import GenerationHistory, last_states, states_of
from views.generations.served import served_of
from views.generations.staging import newest_staged
from views.generations.succession import SinkGenerations, line_of, rollback_target, serving
from views.project.catalog import catalog_of

ACTION_S = 300.0
"""The longest time that an action may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPlan:
    """The plan of an action on a view."""

    serving: int | None  # the generation that readers see now
    to: int | None  # the generation that they would see; None if the action is not possible
    sinks: tuple[str, ...]
    note: str = ""  # a remark about that generation
    words: tuple[str, ...] = ()  # the arguments of `rebuild-view`
    why: str = ""  # the reason why the action is not possible

    @property
    def command(self) -> str:
        """Return the command line of the action."""
        return shlex.join(("rebuild-view", *self.words))


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action."""

    is_done: bool  # whether readers see the planned generation
    text: str  # the result in a line


@dataclass(frozen=True, slots=True)
class Action:
    """An action on a view."""

    name: str  # in URLs
    title: str  # for people
    # returns the generation that readers would see, and the arguments of `rebuild-view`
    target: Callable[
        [str, Mapping[str, SinkGenerations], GenerationHistory], tuple[int | None, tuple[str, ...]]
    ]

    def plan(self, project: Project, view: str) -> ActionPlan:
        """Return the plan of the action for the state of the view now.

        Raises ChangelogError: a sink or the history cannot be read.
        """
        spec = catalog_of(project).load(view)
        holdings = served_of(spec, project, None).held()
        history = GenerationHistory(warehouse_of(project))
        to, words = self.target(view, holdings, history)
        last = last_states(history.rows([view])).get((view, to or 0))
        true_at = "" if last is None or last.lsn is None else f"true at {last.lsn}"
        why = f"view {view} has no generation to {self.title.lower()}"
        return ActionPlan(
            serving=serving(list(holdings.values())),
            to=to,
            sinks=spec.sinks,
            note=true_at,
            words=words,
            why="" if to is not None else why,
        )


def _back(
    view: str, holdings: Mapping[str, SinkGenerations], history: GenerationHistory
) -> tuple[int | None, tuple[str, ...]]:
    steps = history.steps(view)
    to = rollback_target(list(holdings.values()), states_of(steps), line_of(steps))
    return to, (view, str(to), "--rollback")


def _publish(
    view: str, _: Mapping[str, SinkGenerations], history: GenerationHistory
) -> tuple[int | None, tuple[str, ...]]:
    number = newest_staged(view, history)
    return number, (view, str(number), "--publish")


ACTIONS = {
    action.name: action
    for action in (Action("rollback", "Roll back", _back), Action("publish", "Publish", _publish))
}


def act(
    folder: Path, action: Action, project: Project, view: str, confirmed: ActionPlan
) -> ActionResult:
    """Carry out an action that a visitor confirmed, unless its plan has changed.

    Of `confirmed` only `serving` and `to` count, which the visitor saw.
    """
    try:
        plan = action.plan(project, view)
        if (plan.serving, plan.to) != (confirmed.serving, confirmed.to):
            raise ViewError(
                f"nothing was done: readers of {view} now see generation {plan.serving}, and would "
                f"see {plan.to}",
                hint="load the page again, and confirm the new plan",
            )
    except ChangelogError as error:
        return ActionResult(False, str(error))
    return _run(folder, view, plan)


def _run(folder: Path, view: str, plan: ActionPlan) -> ActionResult:
    command = [sys.executable, "-m", "views", "--project", str(folder), *plan.words, "--json"]
    try:
        ran = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=ACTION_S, check=False
        )
    except subprocess.TimeoutExpired:
        return ActionResult(False, f"{plan.command} did not end in {ACTION_S:.0f} s")
    if ran.returncode == 0:
        return ActionResult(True, f"readers of {view} see generation {plan.to}")
    if ran.returncode == LockedError.exit_code:
        return ActionResult(False, f"nothing was done: {_why(ran.stdout, ran.stderr)}")
    return ActionResult(False, _why(ran.stdout, ran.stderr))


def _why(out: str, err: str) -> str:
    for line in reversed(out.splitlines()):
        try:
            result = json.loads(line)
        except ValueError:
            continue
        if isinstance(result, dict) and result.get("error"):
            return str(result["error"])
    return (err.strip().splitlines() or ["it failed without a message"])[-1].removeprefix("error: ")
