"""`changelog teardown`: everything that a project has made outside is looked up, then removed.

Each kind of thing is looked for by itself and removed by itself, so that a server that is away
keeps nothing else. What is left is told, with a way out, and a second run finds only that. The slot
goes first, since PostgreSQL keeps WAL for it; what tells where the rest is goes last: the history
of the views behind the views, the frontier topic behind all other topics.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from changelog.capture.inspect.left_at_source import check_no_capture, left_at_source
from changelog.capture.inspect.left_on_log import left_on_log
from changelog.capture.inspect.parts import Found, MadePart, NotOurs
from changelog.config import Project
from changelog.contract.base.errors import ChangelogError, ConfigurationError, UnavailableError
from changelog.runtime.findings import Findings, Level
from changelog.runtime.progress.steps import UNSEEN, Steps
from changelog.runtime.terminal import console
from replay.base.sections import warehouse_of
from replay.spark.files import Files, uri_of
from replay.store.checkpoint import FOLDER as CHECKPOINTS
from views.base import iceberg
from views.base.config import RebuildSettings
from views.base.failure import explained
from views.base.progress import Stages
from views.generations.history import DROPPED, GenerationHistory
from views.generations.history import FOLDER as HISTORY
from views.generations.lock import locked
from views.generations.place import FOLDER as LOCKS
from views.generations.place import place_for
from views.generations.served import served_of
from views.rebuild.drop import ToDrop, drop, to_drop
from views.rebuild.one_view.certify import FOLDER as PROOFS_AT_WORK
from views.verify.kept.folder import FOLDER as PROVED

_KEPT = (CHECKPOINTS, PROVED, PROOFS_AT_WORK, "_quarantine", HISTORY)
"""Folders of a warehouse that are no views; the history last, which tells of the views."""


def _check_no_run(project: Project) -> None:
    """Check that no process builds or follows a view of the project.

    Raises LockedError: somebody does.
    """
    if (project.root / LOCKS).is_dir():
        with locked(place_for(RebuildSettings(project=project)), _names(project)):
            return


def _left_by_views(project: Project) -> list[MadePart]:
    """Find the views that were built and not dropped, each a part; removes nothing.

    Raises ChangelogError: the history cannot be read, or a view's file cannot.
    """
    names = _names(project)
    if not names:
        return []
    settings = RebuildSettings(project=project)
    return [_part(view, settings) for view in to_drop(names, settings)]


def _part(view: ToDrop, settings: RebuildSettings) -> MadePart:
    def remove() -> None:
        drop([view], settings, Stages(console))

    description = f"{view}{_generations(view, settings.project)}"
    return MadePart(kind="views", text=description, remove=remove, names=(view.view,))


def _generations(view: ToDrop, project: Project) -> str:
    """Return the number of generations as text, or a note that a sink does not answer."""
    try:
        holdings = served_of(view.spec, project, None).held()
    except ChangelogError:
        return ", a sink of which does not answer now"
    counts = (f"{len(holding.generations)} in {name}" for name, holding in holdings.items())
    return f", generations: {', '.join(counts)}"


def _kept_by_rebuilds(project: Project) -> list[MadePart]:
    """Return the files that a project's rebuilds keep, as a part to remove."""
    warehouse = uri_of(warehouse_of(project))
    files = Files()
    here = [name for name in _KEPT if name in files.names(warehouse)]
    own = project.root / LOCKS.parent
    if not here and not own.is_dir():
        return []
    listed = ", ".join([*here, *([LOCKS.parent.name] if own.is_dir() else [])])

    def remove() -> None:
        try:
            for name in here:
                files.remove(f"{warehouse}/{name}")
            if not set(files.sizes(f"{warehouse}/{iceberg.FOLDER}")) - {iceberg.FILE}:
                files.remove(f"{warehouse}/{iceberg.FOLDER}")  # no table is left in it
            if "://" not in warehouse and not files.names(warehouse):
                files.remove(warehouse)
            if own.is_dir():
                shutil.rmtree(own)
        except OSError as error:
            raise explained(error, f"removing what rebuilds keep in {warehouse}") from error

    return [
        MadePart(kind="state", text=f"{listed} in {warehouse}", remove=remove, names=tuple(here))
    ]


def _names(project: Project) -> list[str]:
    """Return the views that the history knows as built and not dropped, by name."""
    last = {row.view: row.state for row in GenerationHistory(warehouse_of(project)).rows()}
    return sorted(view for view, state in last.items() if state != DROPPED)


Show = Callable[[int], AbstractContextManager[Steps]]
"""Gives what counts so many steps for whoever watches."""

KINDS = (
    "slot",
    "publication",
    "heartbeat",
    "signals",
    "triggers",
    "views",
    "state",
    "topics",
    "subjects",
    "frontiers",
)
"""What can be kept, in the order in which it is removed."""

_NEEDS: Mapping[str, Collection[str]] = {
    "state": ("views",),
    "subjects": ("topics",),
    "frontiers": ("topics", "subjects"),
}
"""What a kind stays with: each is what the rest is read, or found, by."""

_PLACES: Mapping[str, Callable[[Project], Sequence[Found]]] = {
    "source": left_at_source,
    "views": _left_by_views,
    "state": _kept_by_rebuilds,
    "log": left_on_log,
}


@dataclass(slots=True)
class Teardown:
    """The parts that a project has made outside, and their removal."""

    parts: list[MadePart] = field(default_factory=list)  # that can be removed, in order
    strange: list[NotOurs] = field(default_factory=list)  # what bears a name of ours and stays
    staying: set[str] = field(default_factory=set)  # kinds of which something stays
    findings: Findings = field(default_factory=Findings)  # what was seen and done

    def plan(self, keep: Collection[str]) -> None:
        """List the parts that would be removed; removes nothing."""
        for part in self._agreed(lambda part: part.kind not in keep):
            self.findings.add(part.kind, Level.MAKES, f"remove {part.text}")
        self._note_strange()

    def carry_out(
        self, agreed: Callable[[MadePart], bool], show: Show = lambda _: nullcontext(UNSEEN)
    ) -> None:
        """Remove the agreed parts; one that fails does not stop the rest, except the slot.

        But the slot: a capture that began meanwhile reads it, and would make the rest again.

        `agreed`: tells whether a part goes; all are asked for before the first one goes. `show`:
        gives what shows how many of so many are gone.
        """
        is_busy = False
        going = self._agreed(agreed)
        with show(len(going)) as steps:
            for part in going:
                steps.begin(part.text)
                if is_busy or self._stays_with_others(part):
                    self._note_kept(part)
                elif not self.findings.passes(part.kind, part.remove, f"removed {part.text}"):
                    self.staying.add(part.kind)
                    is_busy = part.kind == "slot"
                steps.done()
        self._note_strange()

    def _agreed(self, agreed: Callable[[MadePart], bool]) -> list[MadePart]:
        going = []
        for part in self.parts:
            if not self._stays_with_others(part) and agreed(part):
                going.append(part)
            else:
                self._note_kept(part)
        return [part for part in going if not self._stays_with_others(part)]

    def _stays_with_others(self, part: MadePart) -> bool:
        return not self.staying.isdisjoint(_NEEDS.get(part.kind, ()))

    def _note_kept(self, part: MadePart) -> None:
        self.staying.add(part.kind)
        self.findings.add(part.kind, Level.NOTE, f"kept: {part.text}")

    def _note_strange(self) -> None:
        for foreign in self.strange:
            self.findings.add(foreign.kind, Level.NOTE, f"left alone: {foreign.text}")
        if not self.findings.all:
            self.findings.add("everything", Level.OK, "nothing of this project is left")


def look(project: Project, steps: Steps = UNSEEN) -> Teardown:
    """List everything that a project has made outside; removes nothing.

    Raises SlotBusyError: a capture runs; LockedError: a rebuild or a follower works on a view.
    """
    steps.more(1 + len(_PLACES))
    steps.begin("what still runs")
    _check_at_rest(project)
    steps.done()
    teardown = Teardown()
    for place, finder in _PLACES.items():
        steps.begin(f"what is left of {place}")
        there = teardown.findings.ask(place, lambda find=finder: find(project))  # type: ignore[misc]
        if there is None:
            teardown.staying.add(place)
        teardown.parts += [remnant for remnant in there or () if isinstance(remnant, MadePart)]
        teardown.strange += [remnant for remnant in there or () if isinstance(remnant, NotOurs)]
        steps.done()
    teardown.parts.sort(key=lambda part: KINDS.index(part.kind))
    return teardown


def check_kinds(kinds: Collection[str]) -> None:
    """Check that all kinds exist."""
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise ConfigurationError(
            f"there is no {', '.join(unknown)} to keep", hint=f"one of {', '.join(KINDS)}"
        )


def _check_at_rest(project: Project) -> None:
    """Check that no capture or rebuild is running, which would make again what is removed.

    Raises ChangelogError: something does.
    """
    _check_no_run(project)
    try:
        check_no_capture(project)
    except UnavailableError:
        return  # nobody reads the slot of a server that is away; it is told as a part of its own


def refused(part: MadePart) -> ChangelogError:
    """Return the error for a question that nobody is there to answer."""
    return ConfigurationError(
        f"not removed, nobody is there to ask: {part}", hint="--yes does not ask, --plan only looks"
    )
