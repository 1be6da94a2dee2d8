"""Actions of the page: roll back, and publish a staged generation.

Each is planned first, so that whoever confirms it knows which generation readers will see; it is
done only while that is still so, by `rebuild-view` as a process of its own.
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
"""What a switch may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPlan:
    """Plan of an action."""

    serving: int | None  # the generation that readers see
    to: int | None  # the one that they would see; None where it is not possible
    sinks: tuple[str, ...]  # whose readers
    note: str = ""  # on that generation
    words: tuple[str, ...] = ()  # of `rebuild-view`
    why: str = ""  # it is not possible

    @property
    def command(self) -> str:
        """Return the command line that does the same."""
        return shlex.join(("rebuild-view", *self.words))


@dataclass(frozen=True, slots=True)
class Done:
    """Result of an action."""

    is_done: bool  # whether readers see what was asked for
    text: str  # in a line


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done with a view."""

    name: str  # in addresses
    title: str  # for people
    # returns the generation that readers would see, and the words of `rebuild-view`
    target: Callable[
        [str, Mapping[str, SinkGenerations], GenerationHistory], tuple[int | None, tuple[str, ...]]
    ]

    def plan(self, project: Project, view: str) -> ActionPlan:
        """Return the plan of the action, from what serves now.

        Raises ChangelogError: a sink or the history does not tell.
        """
        spec = catalog_of(project).load(view)
        holdings = served_of(spec, project, None).held()
        history = GenerationHistory(warehouse_of(project))
        to, words = self.target(view, holdings, history)
        last = last_states(history.rows([view])).get((view, to or 0))
        true_at = "" if last is None or last.lsn is None else f"true at {last.lsn}"
        why = f"no other generation of view {view} is there to {self.title.lower()}"
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


def act(folder: Path, action: Action, project: Project, view: str, confirmed: ActionPlan) -> Done:
    """Run the action that somebody confirmed, unless its plan has changed.

    `confirmed`: the plan that somebody saw: `serving` and `to`.
    """
    try:
        plan = action.plan(project, view)
        if (plan.serving, plan.to) != (confirmed.serving, confirmed.to):
            raise ViewError(
                f"nothing was done: readers of {view} see generation {plan.serving} meanwhile, "
                f"and would see {plan.to}",
                hint="look again, and confirm that",
            )
    except ChangelogError as error:
        return Done(False, str(error))
    return _run(folder, view, plan)


def _run(folder: Path, view: str, plan: ActionPlan) -> Done:
    command = [sys.executable, "-m", "views", "--project", str(folder), *plan.words, "--json"]
    try:
        ran = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=ACTION_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Done(False, f"{plan.command} did not end in {ACTION_S:.0f} s")
    if ran.returncode == 0:
        return Done(True, f"readers of {view} see generation {plan.to}")
    if ran.returncode == LockedError.exit_code:
        return Done(False, f"nothing was done: {_why(ran.stdout, ran.stderr)}")
    return Done(False, _why(ran.stdout, ran.stderr))


def _why(out: str, err: str) -> str:
    for line in reversed(out.splitlines()):
        try:
            result = json.loads(line)
        except ValueError:
            continue
        if isinstance(result, dict) and result.get("error"):
            return str(result["error"])
    return (err.strip().splitlines() or ["it failed without a word"])[-1].removeprefix("error: ")
