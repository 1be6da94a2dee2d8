"""Functions of the sinks that apply deltas to a generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from changelog.contract.base.position import Position
from views.sinks.base import GONE
from views.sinks.load import Entry, no_value
from views.sinks.rendering import document, identity
from views.sinks.unique import column
from views.sinks.values import documents, identities


def entry_columns(
    kind: str,
    schema: StructType,
    key: Sequence[str],
    form: Callable[[StructType], Column] = document,
) -> list[Column]:
    """Return a row's id and its text under names of a sink; the text is null if the row is gone.

    `key`: the columns of the key.
    """
    return [
        identity(schema, key).alias(f"__{kind}_id"),
        F.when(~column(GONE), form(schema)).alias(f"__{kind}_document"),
    ]


def entry_values(
    kind: str,
    key: Sequence[str],
    delta: pa.Table,
    form: Callable[[pa.Table], list[str]] = documents,
) -> dict[str, pa.Array]:
    """Return the columns of `entry_columns` for a delta computed without Spark.

    Raises NotRenderedError: a value is left to Spark.
    """
    is_gone = delta[GONE].to_pylist()
    rows = delta.filter(pc.invert(delta[GONE])).drop_columns([GONE])
    texts = iter(form(rows))
    return {
        f"__{kind}_id": pa.array(identities(delta, key), pa.string()),
        f"__{kind}_document": pa.array(
            [None if gone else next(texts) for gone in is_gone], pa.string()
        ),
    }


def entries_of(kind: str, delta: pa.Table) -> tuple[list[Entry], list[str]]:
    """Return the entries to write, and the ids to remove.

    Raises SinkError: a row has no text, so it would be taken for a missing one.
    """
    come: list[Entry] = []
    gone: list[str] = []
    columns = (delta[name].to_pylist() for name in (f"__{kind}_id", f"__{kind}_document", GONE))
    for name, text, is_gone in zip(*columns, strict=True):
        if is_gone:
            gone.append(name)
        elif text is None:
            raise no_value(name)
        else:
            come.append((name, text))
    return come, gone


def refuse_older(view: str, generation: int, reached: Position | None, position: Position) -> None:
    """Refuse a delta that ends before the position that a generation has reached."""
    if reached is not None and position < reached:
        raise SinkError(
            f'generation {generation} of view "{view}" is at {reached} already, and would go back '
            f"to {position}",
            hint="let one process follow a view",
        )
