"""The work of a follower for a changed row of each table, for the plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from changelog.contract.rows.relation import TableName
from views.project.lineage import KeyLineage
from views.project.spec import TableReference, short_name

_MANY_READ = 6
"""Most columns that are listed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The work for a changed row of a table, at one place of a query."""

    table: TableName  # its name
    reads: tuple[str, ...]  # the columns whose changes count; empty if any change does
    # the lookups that lead from its row to rows of the table that the key comes from
    lookups: tuple[tuple[TableName, str], ...]
    is_one: bool  # whether they lead to at most one row
    all_rows: str = ""  # by what all rows are computed instead; empty if keys are

    def line(self) -> str:
        """Return the cost as a line for people."""
        reads = ", ".join(self.reads[:_MANY_READ]) + (", …" if len(self.reads) > _MANY_READ else "")
        which = f" ({reads})" if reads else ""
        return f"a changed row of {short_name(self.table)}{which}: {self._computed()}"

    def _computed(self) -> str:
        if self.all_rows:
            return f"all rows of the view, {self.all_rows}"
        where = ", then ".join(f"{short_name(table)} by {column}" for table, column in self.lookups)
        return f"{'one key' if self.is_one else 'the keys'}{f' of {where}' if where else ''}"

    def to_json(self) -> dict[str, object]:
        """Return the cost as plain values."""
        return {
            "table": short_name(self.table),
            "reads": list(self.reads),
            "computes": "all rows" if self.all_rows else "one key" if self.is_one else "keys",
            "by": [f"{short_name(table)}.{column}" for table, column in self.lookups],
        }


def costs_by_key(
    lineage: KeyLineage,
    used: Mapping[TableReference, Sequence[str]],
    keys: Mapping[TableName, Sequence[str]],
) -> tuple[Cost, ...]:
    """Return the costs of a view whose changed keys are computed, place by place.

    `used`: the columns that it reads at each place; at other places any change counts. `keys`: the
    primary key of each table.
    """
    anchor = lineage.anchor
    ways = {} if anchor is None else _ways(lineage, anchor)
    costs = []
    for place in lineage.names:
        lookups, is_one, here = list[tuple[TableName, str]](), True, place
        while here != anchor and here in ways:
            here, column = ways[here]
            lookups.append((here.table, column))
            is_one = is_one and tuple(keys[here.table]) == (column,)
        costs.append(
            Cost(place.table, tuple(used.get(place, ())), tuple(lookups), is_one and here == anchor)
        )
    return tuple(costs)


def costs_of_all(
    tables: Sequence[TableName], who: str, used: Mapping[TableName, Sequence[str]]
) -> tuple[Cost, ...]:
    """Return the costs of a view whose rows are all computed; `who` says by what, as a text."""
    return tuple(Cost(table, tuple(used.get(table, ())), (), False, who) for table in tables)


def _ways(
    lineage: KeyLineage, anchor: TableReference
) -> dict[TableReference, tuple[TableReference, str]]:
    """Return for each place the next one on the way to the anchor, and the column to look up by."""
    ways: dict[TableReference, tuple[TableReference, str]] = {}
    frontier = [anchor]
    while frontier:
        near = frontier.pop(0)
        for edge in lineage.edges:
            across = edge.across(near)
            if across is None:
                continue
            column, place, _ = across
            if place != anchor and place not in ways:
                ways[place] = near, column
                frontier.append(place)
    return ways
