"""Remains of rebuilds: views in every sink with all their generations, and kept states."""

from __future__ import annotations

import shutil

from changelog.capture.inspect.parts import Part
from changelog.config import Project
from changelog.contract.base.errors import ChangelogError
from changelog.runtime.terminal import console
from replay.base.sections import warehouse_of
from replay.spark.files import Files, uri_of
from replay.store.checkpoint import FOLDER as CHECKPOINTS
from views.base.config import RebuildSettings
from views.base.failure import explained
from views.base.progress import Stages
from views.generations.history import DROPPED, History
from views.generations.history import FOLDER as HISTORY
from views.generations.lock import locked
from views.generations.place import FOLDER as LOCKS
from views.generations.place import place_for
from views.generations.served import served_of
from views.rebuild.drop import ToDrop, drop, to_drop
from views.rebuild.one_view.certify import FOLDER as PROOFS_AT_WORK
from views.verify.kept.folder import FOLDER as PROVED

KEPT = (CHECKPOINTS, PROVED, PROOFS_AT_WORK, "_quarantine", HISTORY)
"""Folders of a warehouse that are no views; the history last, which tells of the views."""


def check_no_run(project: Project) -> None:
    """Check that no process builds or follows a view of the project.

    Raises:
        LockedError: somebody does.
    """
    if (project.root / LOCKS).is_dir():
        with locked(place_for(RebuildSettings(project=project)), _names(project)):
            return


def left_by_views(project: Project) -> list[Part]:
    """Find the views that were built and not dropped, each a part; removes nothing.

    Raises:
        ChangelogError: the history cannot be read, or a view's file cannot.
    """
    names = _names(project)
    if not names:
        return []
    settings = RebuildSettings(project=project)
    return [_part(view, settings) for view in to_drop(names, settings)]


def _part(view: ToDrop, settings: RebuildSettings) -> Part:
    def remove() -> None:
        drop([view], settings, Stages(console))

    description = f"{view}{_generations(view, settings.project)}"
    return Part(kind="views", text=description, remove=remove, names=(view.view,))


def _generations(view: ToDrop, project: Project) -> str:
    """Return the number of generations as text, or a note that a sink does not answer."""
    try:
        holdings = served_of(view.spec, project, None).held()
    except ChangelogError:
        return ", a sink of which does not answer now"
    counts = (f"{len(holding.generations)} in {name}" for name, holding in holdings.items())
    return f", generations: {', '.join(counts)}"


def kept_by_rebuilds(project: Project) -> list[Part]:
    """Return the files that a project's rebuilds keep, as a part to remove."""
    warehouse = uri_of(warehouse_of(project))
    files = Files()
    here = [name for name in KEPT if name in files.names(warehouse)]
    own = project.root / LOCKS.parent
    if not here and not own.is_dir():
        return []
    listed = ", ".join([*here, *([LOCKS.parent.name] if own.is_dir() else [])])

    def remove() -> None:
        try:
            for name in here:
                files.remove(f"{warehouse}/{name}")
            if "://" not in warehouse and not files.names(warehouse):
                files.remove(warehouse)
            if own.is_dir():
                shutil.rmtree(own)
        except OSError as error:
            raise explained(error, f"removing what rebuilds keep in {warehouse}") from error

    return [Part(kind="state", text=f"{listed} in {warehouse}", remove=remove, names=tuple(here))]


def _names(project: Project) -> list[str]:
    """Return the views that the history knows as built and not dropped, by name."""
    last = {row.view: row.state for row in History(warehouse_of(project)).rows()}
    return sorted(view for view, state in last.items() if state != DROPPED)
