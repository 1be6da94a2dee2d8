"""Remove a view from every sink, and close its history.

What is known of a view is its file, as long as it is there, and its history: a view whose file is
gone is dropped by what the history says of its sinks. Each sink is emptied by itself, and the row
`dropped` is written last: a drop that was killed is found by the next, which does what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from changelog.contract.base.errors import ChangelogError, ViewError
from replay.spark.files import uri_of
from views.base.config import RebuildSettings
from views.base.failure import explained
from views.base.progress import Stages
from views.generations.history import DROPPED, GenerationHistory, HistoryRow
from views.generations.lock import LockPatience, locked
from views.generations.place import place_for
from views.generations.served import MakeServed, served_of
from views.project.catalog import FOLDER, Catalog, catalog_of
from views.project.spec import SqlSource, ViewSpec, check_view_name
from views.rebuild.local.kept import remove_of
from views.verify.kept.folder import remove_kept

log = logging.getLogger("changelog.views")


@dataclass(frozen=True, slots=True)
class ToDrop:
    """A view that is to be removed."""

    # its declaration with all sinks where it is or was served, by its file and its history; without
    # a file as much of it as its sinks have to know
    spec: ViewSpec
    has_file: bool  # whether the project still declares it
    last: int  # its newest generation, 0 when none was ever recorded
    topics: tuple[str, ...]  # those of its certificates that no other view was proved by

    @property
    def view(self) -> str:
        """Return the view's name."""
        return self.spec.name

    @property
    def sinks(self) -> tuple[str, ...]:
        """Return the sinks in which it is or was served."""
        return self.spec.sinks

    def __str__(self) -> str:
        """Return the view and its sinks as text, to ask for confirmation."""
        file = "" if self.has_file else "; its file is gone already"
        return f"{self.view} ({', '.join(self.sinks)}{file})"


def to_drop(names: Sequence[str], settings: RebuildSettings) -> list[ToDrop]:
    """Look up views to drop in the project and its history; removes nothing.

    Raises ViewError: neither the project nor the history knows one of them.
    """
    catalog = catalog_of(settings.project)
    rows = GenerationHistory(settings.warehouse).rows()
    return [_view_to_drop(name, catalog, rows) for name in names]


def drop(
    views: Sequence[ToDrop],
    settings: RebuildSettings,
    stages: Stages,
    *,
    make_served: MakeServed = served_of,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Remove views from their sinks; the history keeps a row `dropped` of each.

    Raises:
        LockedError: a run works on one of them.
        ConfigurationError: the project does not say where one of its sinks is.
        SinkError: a sink does not answer, or a view's name there belongs to somebody else.
    """
    project, history = settings.project, GenerationHistory(settings.warehouse)
    place = place_for(settings)
    with locked(
        place,
        [dropped.view for dropped in views],
        LockPatience.of(settings.runs.wait_seconds, stop),
    ):
        served = [make_served(dropped.spec, project, None) for dropped in views]
        number, of = 0, sum(len(view_served.sinks) for view_served in served)
        for dropped, view_served in zip(views, served, strict=True):
            for name, sink in view_served.sinks.items():
                number += 1
                step = f"{dropped.view}: remove it from {name}, {number} of {of}"
                with stages.stage("drop", step, dropped.view):
                    place.confirm()
                    sink.drop()
            history.append(
                [
                    HistoryRow(
                        view=dropped.view,
                        generation=dropped.last,
                        state=DROPPED,
                        sinks=dropped.sinks,
                    )
                ]
            )
            _remove_proofs(dropped, settings)


def _view_to_drop(name: str, catalog: Catalog, rows: Sequence[HistoryRow]) -> ToDrop:
    own = _since_dropped(row for row in rows if row.view == name)
    try:
        spec = catalog.load(name)
    except ViewError:
        if not own:
            raise  # nobody knows it, or its file cannot be read and nothing was ever built
        spec = _bare(name, catalog.root)
    sinks = dict.fromkeys([*spec.sinks, *(sink for row in own for sink in row.sinks)])
    declared = next((row.declaration for row in reversed(own) if row.declaration), {})
    # A sink that the file no longer names is where it was put by the options of then.
    options = {**declared.get("options", {}), **spec.options}
    numbers = [row.generation for row in rows if row.view == name]
    return ToDrop(
        spec=replace(spec, sinks=tuple(sinks), options=options),
        has_file=name in catalog.paths,
        last=max(numbers, default=0),
        topics=_own_topics(name, rows),
    )


def _since_dropped(rows: Iterable[HistoryRow]) -> list[HistoryRow]:
    kept: list[HistoryRow] = []
    for row in rows:
        kept = [] if row.state == DROPPED else [*kept, row]
    return kept


def _own_topics(name: str, rows: Sequence[HistoryRow]) -> tuple[str, ...]:
    """Return the topics that this view alone was proved by, of all views that are not dropped."""
    by_view: dict[str, set[str]] = {}
    for row in rows:
        topics = by_view.setdefault(row.view, set())
        if row.state == DROPPED:
            topics.clear()
        for report in row.certificate.values():
            topics.update(report.get("certificate", {}).get("ends", {}))
    own = by_view.pop(name, set())
    return tuple(sorted(own.difference(*by_view.values())))


def _bare(name: str, root: Path) -> ViewSpec:
    """Return a minimal spec of a view without a file, with which its sinks can be emptied."""
    return ViewSpec(
        name=check_view_name(name),
        path=root / FOLDER / f"{name}.sql",
        tables=(),
        key=("",),
        sinks=(),
        source=SqlSource("", ()),
    )


def _remove_proofs(dropped: ToDrop, settings: RebuildSettings) -> None:
    try:
        remove_kept(uri_of(settings.warehouse), dropped.topics)
        remove_of(uri_of(settings.warehouse), [dropped.view])
    except (OSError, ChangelogError) as error:
        reason = explained(error, f'removing what was proved for view "{dropped.view}"')
        log.warning("%s", reason)
