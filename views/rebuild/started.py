"""The views of a follower that starts, as an earlier one has left them in their sinks.

It goes on from there without Spark where the generation that every sink serves is the one whose
tables are kept (`views.rebuild.local.kept`), was made by the same definition, and is not refuted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from views.base.config import RebuildSettings
from views.generations.history import REFUTED, GenerationHistory
from views.generations.served import MakeServed
from views.generations.succession import serving
from views.project.definition import definition_of
from views.project.spec import ViewSpec
from views.rebuild.local.kept import KeptView, UnfitError
from views.rebuild.one_view.delta import forward_sinks
from views.sinks.base import ForwardSink, rows_of

if TYPE_CHECKING:
    from views.rebuild.one_view.view_build import ViewBuild


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A view whose serving generation is going to go forward without Spark."""

    spec: ViewSpec  # its declaration
    generation: int  # the number that serves
    sinks: Mapping[str, ForwardSink]  # where
    schema: StructType  # of its rows
    columns: tuple[tuple[str, str], ...]  # their names and types
    declared: Mapping[str, Any]  # what the history says of how it is made
    recorded_at: datetime  # when the history was last told of it
    refused: Mapping[str, int]  # how many rows each sink goes without
    rows: int | None  # how many it has

    def kept(self) -> KeptView:
        """Return the facts of it that the next start needs."""
        positions = self.positions()
        return KeptView(
            generation=self.generation,
            definition=self.declared["definition"],
            declaration=self.declared["declaration"],
            schema=self.schema.json(),
            columns=self.columns,
            sinks={
                name: None if position is None else str(position)
                for name, position in positions.items()
            },
        )

    def positions(self) -> dict[str, Position | None]:
        """Return the position that each sink tells of."""
        return {name: sink.position(self.generation) for name, sink in self.sinks.items()}


def serving_of(build: ViewBuild) -> Serving | str:
    """Return a view as a round of Spark's has left it, or why its sinks do not go forward."""
    sinks = forward_sinks(build.served, build.number)
    if isinstance(sinks, str):
        return sinks
    assert build.schema is not None  # noqa: S101 - the round has looked
    return Serving(
        spec=build.spec,
        generation=build.number,
        sinks=sinks,
        schema=build.schema,
        columns=build.columns,
        declared={"definition": build.definition, "declaration": build.declaration},
        recorded_at=build.recorded_at or datetime.now(UTC),
        refused=build.refused,
        rows=build.rows,
    )


def left_by(
    spec: ViewSpec,
    kept: KeptView,
    schemas: Mapping[TableName, TopicSchemas],
    settings: RebuildSettings,
    make_served: MakeServed,
) -> Serving:
    """Return a view as an earlier follower has left it.

    `kept`: what that one has kept of it. `schemas`: of its tables, by which it would be read now.

    Raises UnfitError: what serves is something else; ChangelogError: a sink, or the history, cannot
    tell.
    """
    try:
        schema = StructType.fromJson(json.loads(kept.schema))
    except (ValueError, KeyError, TypeError) as error:
        raise UnfitError("it does not say what rows its views have") from error
    columns = tuple((name, kind) for name, kind in kept.columns)
    definition = definition_of(spec, columns, schemas, settings.spark.settings)
    if definition != kept.definition:
        raise UnfitError(f'view "{spec.name}", or a schema of its tables, was another')
    served = make_served(spec, settings.project, None)
    number = serving([*served.held_without_listing().values()])
    if number != kept.generation:
        raise UnfitError(f'another generation of view "{spec.name}" serves')
    rows = GenerationHistory(settings.warehouse).rows([spec.name], generation=number)
    if not rows or rows[-1].state == REFUTED:
        raise UnfitError(f'generation {number} of view "{spec.name}" is refuted, or not on record')
    sinks = forward_sinks(served, number)
    if isinstance(sinks, str):
        raise UnfitError(sinks)
    return Serving(
        spec=spec,
        generation=number,
        sinks=sinks,
        schema=schema,
        columns=columns,
        declared={"definition": definition, "declaration": kept.declaration},
        recorded_at=rows[-1].at,
        refused={},
        rows=rows_of(next(iter(sinks.values())), number),
    )
