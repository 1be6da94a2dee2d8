"""Rebuild every view of a project in this process, verified in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from changelog.config import Project
from changelog.runtime.terminal import console
from views.base.config import RebuildSettings
from views.base.progress import Stages
from views.project.catalog import catalog_of
from views.rebuild.rebuild import RebuildRun


def rebuild_views(project: Project) -> Sequence[dict[str, Any]]:
    """Rebuild and publish all views; returns their reports as `rebuild-view --json` does.

    Raises ChangelogError: the rebuild failed or a view was refuted; the old generations serve.
    """
    specs = catalog_of(project).load_all()
    outcome = RebuildRun(RebuildSettings(project=project), Stages(console)).run(specs)
    if outcome.error is not None:
        raise outcome.error
    return [result.to_json() for result in outcome.results]
