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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from views.project.lineage import KeyLineage
from views.project.spec import TableReference
from views.rebuild.local.join_values import Value, class_of
from views.rebuild.local.table import LocalTable, RowRecord, Touched
from views.rebuild.plan.dialect import UnknownValueError

Rows = dict[bytes, RowRecord]
"""Records by their keys: each row once."""
FEW = 10_000
"""Rows of a place that are looked up; where more take part, all of them are taken as they are."""
MOST_WHOLE = 1_000_000
"""Rows of a table that are taken so: more would take seconds and gigabytes in each round."""


@dataclass(frozen=True, slots=True)
class Related:
    """Rows that are needed to compute the affected keys of a view again."""

    # the rows, old and new, of the place that the key comes from: their keys are those that may
    # differ
    affected: tuple[RowRecord, ...]
    # of each place, those of the new state that can take part; None where all are taken
    rows: Mapping[TableReference, tuple[RowRecord, ...] | None]


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

    `most`: rows that are looked up. `few`: those of one place; where more take part, all rows of
    the place are taken. None: all are looked up.

    Raises:
        UnknownValueError: a place is not joined to the others by equal columns.
    """

    def __init__(
        self,
        lineage: KeyLineage,
        tables: Mapping[TableName, LocalTable],
        touched: Mapping[TableName, Touched],
        most: int,
        few: int | None = None,
    ) -> None:
        if lineage.anchor is None:
            raise UnknownValueError("its key comes from several tables")
        self._lineage, self._anchor = lineage, lineage.anchor
        self._tables, self._touched, self._left, self._few = tables, touched, most, few
        self._way = self._ways(self._anchor)

    def related(self) -> Related:
        """Return the rows.

        Raises UnknownValueError: they are too many.
        """
        reached: list[RowRecord] = []
        for place in self._lineage.names:
            changes = self._touched[place.table]
            if changes.older or changes.newer:
                reached += self._to_anchor(place, (*changes.older, *changes.newer))
        affected = _each_once(reached)
        rows = {self._anchor: self._of_same_keys(affected)}
        for place, (near, own, column) in self._way.items():
            near_rows = rows[near]
            if near_rows is None:
                self._require_whole(place)
                rows[place] = None
            else:
                values = self._values(near, column, near_rows.values())
                rows[place] = self._taking_part(place, own, values)
        return Related(
            affected=affected,
            rows={
                place: None if place_rows is None else tuple(place_rows.values())
                for place, place_rows in rows.items()
            },
        )

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

    def _to_anchor(self, place: TableReference, rows: Sequence[RowRecord]) -> Iterable[RowRecord]:
        """Return the anchor's rows that may be joined with rows of a place."""
        reached: Iterable[RowRecord] = rows
        while place != self._anchor:
            near, own, column = self._way[place]
            values = self._values(place, own, reached)
            changes = self._touched[near.table]
            number = self._tables[near.table].columns.index(column)
            older = [record for record in changes.older if record.values[number] in values]
            reached = [*self._having(near, column, values).values(), *older]
            place = near
        return reached

    def _of_same_keys(self, affected: Sequence[RowRecord]) -> Rows | None:
        """Return all rows of the anchor now that may have one of the affected keys."""
        column = self._lineage.origins[0].column
        values = self._values(self._anchor, column, affected, nulls=True)
        rows = self._taking_part(self._anchor, column, values - {None})
        if rows is not None and None in values:
            # Rows whose key is null are found as they are: none of them may serve.
            rows |= {record.key: record for record in self._touched[self._anchor.table].newer}
        return rows

    def _values(
        self, place: TableReference, column: str, rows: Iterable[RowRecord], *, nulls: bool = False
    ) -> set[Value]:
        number = self._tables[place.table].columns.index(column)
        values: set[Value] = {record.values[number] for record in rows}
        return values if nulls else values - {None}

    def _taking_part(self, place: TableReference, column: str, values: set[Value]) -> Rows | None:
        """Return the rows of a place with one of some values, or None for all of its rows."""
        is_whole = self._few is not None and self._tables[place.table].count <= MOST_WHOLE
        rows: Rows = {}
        for record in self._tables[place.table].having(column, values):
            rows[record.key] = record
            self._charge()
            if is_whole and self._few is not None and len(rows) > self._few:
                return None
        return rows

    def _require_whole(self, place: TableReference) -> None:
        if self._tables[place.table].count > MOST_WHOLE:
            raise UnknownValueError(_MANY)

    def _charge(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise UnknownValueError(_MANY)

    def _having(self, place: TableReference, column: str, values: set[Value]) -> Rows:
        rows: Rows = {}
        for record in self._tables[place.table].having(column, values):
            rows[record.key] = record
            self._charge()
        return rows


_MANY = "too many rows take part"


def _each_once(records: Iterable[RowRecord]) -> tuple[RowRecord, ...]:
    """Return each record once; a key may have an old and a new one."""
    return tuple({(record.key, record.offset): record for record in records}.values())
