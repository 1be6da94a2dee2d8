"""A view together with the sinks that serve it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from changelog.config import Project
from changelog.contract.base.errors import ViewError
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.sections import warehouse_of
from views.base.sections import Rebuild, Sinks
from views.generations.succession import SinkGenerations
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.sinks.base import Sink, SinkSettings, UnavailableSinkError
from views.sinks.make import make_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Served:
    """A view and the sinks that serve it."""

    view: str
    sinks: Mapping[str, Sink]

    def held(self, steps: Steps = UNSEEN) -> dict[str, SinkGenerations]:
        """Return the generations that each sink holds and serves; counts a step for each.

        Raises:
            SinkError: a sink cannot tell.
            UnavailableSinkError: one does not answer; the error names it.
        """
        return self._asked(
            lambda sink: SinkGenerations(sink.published(), frozenset(sink.generations())), steps
        )

    def held_without_listing(self, steps: Steps = UNSEEN) -> dict[str, SinkGenerations]:
        """Return the generation that each sink serves, without Spark; else as `held`."""
        return self._asked(lambda sink: SinkGenerations(sink.published(), frozenset()), steps)

    def _asked(
        self, ask: Callable[[Sink], SinkGenerations], steps: Steps
    ) -> dict[str, SinkGenerations]:
        answers = {}
        for name, sink in self.sinks.items():
            steps.begin(f"{self.view} in {name}")
            try:
                answers[name] = ask(sink)
            except UnavailableSinkError as error:
                error.sink = name
                raise
            steps.done()
        return answers


class Unanswered:
    """The sinks that do not answer: of all views of a run, only the first waits for each."""

    def __init__(self) -> None:
        self._errors: dict[str, UnavailableSinkError] = {}

    @contextmanager
    def waiting_once(self, sinks: Iterable[str]) -> Iterator[None]:
        """Ask the named sinks of a view in a block.

        Raises UnavailableSinkError: one does not answer, or did not answer before.
        """
        for name in sinks:
            if name in self._errors:
                raise self._errors[name]
        try:
            yield
        except UnavailableSinkError as error:
            if error.sink:
                self._errors[error.sink] = error
            raise


def nothing_serves(view: str, sink: str) -> ViewError:
    """Return the error for a view that has no generation in a sink yet."""
    return ViewError(f'of view "{view}" nothing serves yet in {sink}', hint=f"rebuild-view {view}")


Peers = Callable[[str], Served | None]
"""Returns the sinks of a view by its name, or None where the project has no such view."""

MakeServed = Callable[[ViewSpec, Project, "SparkSession | None"], Served]
"""Returns the sinks of a view; without a session they can only tell what they serve."""


def sink_settings(
    project: Project, *, retry_seconds: float = 60.0, answer_seconds: float = 60.0
) -> SinkSettings:
    """Return the addresses of a project's sinks."""
    sinks = project.section(Sinks)
    return SinkSettings(
        warehouse=warehouse_of(project),
        search_url=sinks.search.url or project.embedded("search"),
        cache_url=sinks.cache.url or project.embedded("cache"),
        # Never the embedded one by itself: that is the source, and capture may take all of it.
        postgres_url=sinks.postgres.url or None,
        kafka=project.kafka,
        registry=project.registry if project.registry.url else None,
        left_out_at_most=project.section(Rebuild).left_out_at_most,
        iceberg_catalogue=sinks.iceberg.catalogue,
        iceberg_namespace=sinks.iceberg.namespace,
        topic_prefix=topic_prefix_of(project),
        retry_seconds=retry_seconds,
        answer_seconds=answer_seconds,
    )


def served_of(
    spec: ViewSpec,
    project: Project,
    spark: SparkSession | None,
    *,
    retry_seconds: float = 60.0,
    answer_seconds: float = 60.0,
) -> Served:
    """Return the sinks of a view as the project has them.

    `spark`: what sinks write by; None where they only tell what they serve. `retry_seconds`: how
    long a server that is busy or away is asked again. `answer_seconds`: how long one that took a
    request may be silent.

    Raises ConfigurationError: there is no such sink, or the project does not say where it is.
    """
    settings = sink_settings(project, retry_seconds=retry_seconds, answer_seconds=answer_seconds)
    return Served(
        spec.name,
        {
            kind: make_sink(
                kind,
                view=spec.name,
                key=spec.key,
                settings=settings,
                spark=cast("SparkSession", spark),
                options=spec.options.get(kind, {}),
            )
            for kind in spec.sinks
        },
    )


served_soon = partial(served_of, retry_seconds=3.0, answer_seconds=5.0)
"""Makes sinks that wait seconds for a server that is away, where a rebuild waits a minute."""


def serving_now(
    spec: ViewSpec,
    project: Project,
    unanswered: Unanswered,
    make_served: MakeServed = served_soon,
) -> dict[str, int | None]:
    """Return the generation that each sink of a view serves, or None.

    `unanswered`: of all views that are asked about. `make_served`: gives the sinks of a view.

    Raises SinkError: a sink cannot tell.
    """
    with unanswered.waiting_once(spec.sinks):
        holdings = make_served(spec, project, None).held_without_listing()
    return {name: holding.published for name, holding in holdings.items()}


def peers_of(project: Project, make_served: MakeServed) -> Peers:
    """Return a function that gives the sinks of any view of a project by its name."""

    def peer(view: str) -> Served | None:
        catalog = catalog_of(project)
        return make_served(catalog.load(view), project, None) if view in catalog.names else None

    return peer


def topic_prefix_of(project: Project) -> str:
    """Return the prefix of the names of views' topics, without its point."""
    prefix = project.section(Sinks).topic.prefix
    return prefix or ".".join(filter(None, [project.topic_prefix, "views"]))
