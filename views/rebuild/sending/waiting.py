"""Deltas waiting for a sink, merged into one.

A delta says of some keys which row each has at a position, or that it has none. So two of them say
together what each key has that one of them names: by the later one, where both do. Sent at once in
the later one's position, that leaves a sink as the two of them would, one after the other; a reader
sees a frontier less, never a mixed one. Each of them was proved, so what is merged is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from changelog.contract.base.position import Position
from views.rebuild.one_view.forward import KEY, MOST_KEYS, Delta

MOST_BYTES = 256 << 20
"""Of rows that wait for one sink."""


class UnlikeError(Exception):
    """Two deltas have columns that are not the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A merged delta waiting for a sink.

    Attributes:
        delta: the row that each key has.
        position: the first that they say nothing of.
        since: when the oldest of it was proved, by the monotonic clock in seconds.
    """

    delta: Delta
    position: Position
    since: float

    @property
    def is_too_much(self) -> bool:
        """Tell whether more keys or bytes wait than are kept for a sink."""
        table = self.delta.table
        return bool(table.num_rows > MOST_KEYS or table.nbytes > MOST_BYTES)

    def then(self, later: Waiting) -> Waiting:
        """Return this delta merged with a later one.

        Raises:
            UnlikeError: their columns differ.
        """
        table = merged(self.delta.table, later.delta.table)
        return replace(self, delta=replace(self.delta, table=table), position=later.position)


def merged(earlier: pa.Table, later: pa.Table) -> pa.Table:
    """Return a row for each key of two tables of deltas: the later one's, if it has one.

    Raises:
        UnlikeError: their columns differ.
    """
    if set(earlier.column_names) != set(later.column_names):
        raise UnlikeError("two deltas of a view have different columns")
    again = pc.is_in(earlier[KEY], value_set=later[KEY].combine_chunks())
    # Whoever made the two tables, Spark or this process, may have said otherwise what can be null.
    schema = pa.schema([pa.field(field.name, field.type) for field in earlier.schema])
    try:
        parts = [
            earlier.filter(pc.invert(again)).cast(schema),
            later.select(schema.names).cast(schema),
        ]
        return pa.concat_tables(parts).combine_chunks()
    except pa.ArrowException as error:
        raise UnlikeError(str(error)) from error
