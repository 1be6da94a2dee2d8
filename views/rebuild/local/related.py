"""The rows that take part in a view's changes, place by place of its query.

A view's row is made of tuples, one row of each place that names a table (`views.project.lineage`).
In every tuple the columns that joins compare are equal. So from a row that changed one comes, by
these columns, to every row that can be in a tuple with it, and so to the rows that the view's key
comes from; from all rows of these keys one comes to all that their tuples can hold. What is found
on the way may be more than takes part, never less: to reduce tables by semi-joins before they are
joined is Bernstein and Chiu's (Using semi-joins to solve relational queries, 1981).

Changes are looked at in both states, the old and the new one: where a row was is where something
may be missing now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from views.project.lineage import KeyLineage
from views.project.spec import TableReference
from views.rebuild.local.join_values import class_of, distinct, is_one_of
from views.rebuild.local.table import LocalTable, RowRecord, Touched
from views.rebuild.plan.dialect import UnknownValueError


@dataclass(frozen=True, slots=True)
class Related:
    """Rows that are needed to compute the affected keys of a view again."""

    # the columns that are looked up, in lower case, of the rows, old and new, of the place that the
    # key comes from: their keys are those that may differ; a row may come twice
    affected: pa.Table
    # of each place, the wanted columns of the rows of the new state that can take part
    rows: Mapping[TableReference, pa.Table]


def columns_of(lineage: KeyLineage) -> dict[TableName, list[str]]:
    """Return the columns of each table by which its rows have to be found."""
    names: dict[TableName, dict[str, None]] = {place.table: {} for place in lineage.names}
    for edge in lineage.edges:
        for place, column in zip(edge.places, edge.columns, strict=True):
            names[place.table][column] = None
    for origin in lineage.origins:
        names[origin.reference.table][origin.column] = None
    return {table: list(columns) for table, columns in names.items()}


def check_classes(lineage: KeyLineage, schemas: Mapping[TableName, TopicSchemas]) -> None:
    """Make sure that equal values of columns that are compared are found as equal here."""
    logged = {
        table: table_schemas.logged(table_schemas.reader_id)
        for table, table_schemas in schemas.items()
    }
    for edge in lineage.edges:
        kinds = {
            class_of(logged[place.table], column)
            for place, column in zip(edge.places, edge.columns, strict=True)
        }
        if len(kinds) > 1:
            raise UnknownValueError(f"it joins columns of {' and '.join(sorted(kinds))}")
    for origin in lineage.origins:
        class_of(logged[origin.reference.table], origin.column)


class Walk:
    """Goes from row to row along the joins of one view.

    `used`: the columns that are wanted of the rows of each place, in lower case. `most`: rows of
    a place, where a table is not held in columns.

    Raises:
        UnknownValueError: a place is not joined to the others by equal columns.
    """

    def __init__(
        self,
        lineage: KeyLineage,
        tables: Mapping[TableName, LocalTable],
        touched: Mapping[TableName, Touched],
        used: Mapping[TableReference, Sequence[str]],
        most: int,
    ) -> None:
        if lineage.anchor is None:
            raise UnknownValueError("its key comes from several tables")
        self._lineage, self._anchor = lineage, lineage.anchor
        self._tables, self._touched, self._used, self._most = tables, touched, used, most
        self._way = self._ways(self._anchor)

    def related(self) -> Related:
        """Return the rows.

        Raises UnknownValueError: they are too many, or one cannot be read.
        """
        touched = [place for place in self._lineage.names if self._touched[place.table].is_any]
        reached = [self._to_anchor(place) for place in touched]
        affected = pa.concat_tables([self._joined(self._anchor, ()), *reached])
        rows = {self._anchor: self._of_same_keys(affected)}
        for place, (near, own, column) in self._way.items():
            rows[place] = self._having(place, own, distinct(rows[near][column.lower()]))
        return Related(affected=affected, rows=rows)

    def _ways(self, start: TableReference) -> dict[TableReference, tuple[TableReference, str, str]]:
        """Return for each other place the one before it, its own column and that one's."""
        ways: dict[TableReference, tuple[TableReference, str, str]] = {}
        frontier = [start]
        while frontier:
            near = frontier.pop(0)
            for edge in self._lineage.edges:
                across = edge.across(near)
                if across is None:
                    continue
                column, place, own = across
                if place is not start and place not in ways:
                    ways[place] = near, own, column
                    frontier.append(place)
        apart = [place for place in self._lineage.names if place not in ways and place != start]
        if apart:
            raise UnknownValueError(f'"{apart[0].table}" is not joined by equal columns')
        return ways

    def _to_anchor(self, place: TableReference) -> pa.Table:
        """Return the anchor's rows that may be joined with rows that changed at a place."""
        changes = self._touched[place.table]
        rows = self._joined(place, (*changes.older, *changes.newer))
        while place != self._anchor:
            near, own, column = self._way[place]
            values = distinct(rows[own.lower()])
            older = self._joined(near, self._touched[near.table].older)
            local = self._tables[near.table]
            rows = pa.concat_tables(
                [
                    local.having(column, values, older.column_names, most=self._most),
                    older.filter(is_one_of(older[column.lower()], values)),
                ]
            )
            place = near
        return rows

    def _joined(self, place: TableReference, records: Sequence[RowRecord]) -> pa.Table:
        """Return the columns that are looked up of records at a place."""
        return self._tables[place.table].join_columns(records)

    def _of_same_keys(self, affected: pa.Table) -> pa.Table:
        """Return all rows of the anchor now that may have one of the affected keys."""
        column = self._lineage.origins[0].column
        keys = affected[column.lower()]
        rows = self._having(self._anchor, column, distinct(keys))
        if keys.null_count:
            # Rows whose key is null are found as they are: none of them may serve.
            local = self._tables[self._anchor.table]
            number = local.columns.index(column)
            newer = self._touched[self._anchor.table].newer
            nulls = [record for record in newer if record.values[number] is None]
            rows = pa.concat_tables([rows, local.columns_of(nulls, rows.column_names)])
        return rows

    def _having(self, place: TableReference, column: str, values: pa.Array) -> pa.Table:
        """Return the rows of a place with one of some values."""
        local = self._tables[place.table]
        columns = dict.fromkeys((*self._used[place], *map(str.lower, local.columns)))
        return local.having(column, values, list(columns), most=self._most)
