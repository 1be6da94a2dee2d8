"""Key changes of Debezium's envelope: what a row's new key lacks, from the records of its old one.

A key change is a delete and a create with the same `source.lsn`, and headers that name the other
key. The create lacks the values that PostgreSQL did not send; the old key's records have them, as
long as they are on the log. Only the headers of a log are read for this, unless a key was changed
in a row with such a value: then the records are read a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from replay.base.failures import translated

_HEADERS = ("__debezium.newkey", "__debezium.oldkey")
_LSN = "carried_lsn"


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The source of a column's value: a statement's place, or the departure of a key."""

    place: int | None = None
    departure: int | None = None


Cells = dict[int, ValueOrigin]
"""The cells of a row, by the column's number."""


def carried(
    raw: DataFrame,
    statements: Callable[[DataFrame], DataFrame],
    columns: Sequence[int],
    types: Mapping[int, str],
    order: Sequence[str],
) -> DataFrame | None:
    """Return, by `carried_lsn`, the last values of rows under their old keys, or None.

    `raw`: the records of the log. `statements`: converts records to statements. `columns`: the
    numbers of the columns that a record may lack. `types`: Spark's names of their types. `order`:
    the columns that say which statement of a key is newer.
    """
    of_changes = raw.where(F.exists("headers", lambda header: header["key"].isin(*_HEADERS)))
    changed_rows = statements(of_changes).where("fault IS NULL AND NOT is_tombstone")
    lacks = F.col("begins") & (F.size("missing") > 0)
    with translated():
        rows = changed_rows.select("key", "lsn", F.col("row").isNull(), lacks).collect()
    # A delete and a create with the same LSN are one key change.
    arrivals = {lsn for _, lsn, _, lacking in rows if lacking}
    keys = {key for key, lsn, is_gone, _ in rows if is_gone and lsn in arrivals}
    if not keys:
        return None
    histories = statements(raw).where(F.col("key").isin(*keys) & F.col("fault").isNull())
    fields = ", ".join(f"{name(place)} struct<value: {types[place]}>" for place in columns)

    def resolve(statements_of_keys: pa.Table) -> pa.Table:
        return _departures(statements_of_keys, columns, order)

    return histories.groupBy(F.lit(True)).applyInArrow(resolve, f"{_LSN} bigint, {fields}")


def name(place: int) -> str:
    """Return the name of the column with the values carried for a place."""
    return f"carried_{place}"


def joined(groups: DataFrame, carried_values: DataFrame | None) -> DataFrame:
    """Join carried values to the keys that received them."""
    if carried_values is None:
        return groups
    arrived = F.col("began").getField("lsn")
    return groups.join(carried_values, arrived == F.col(_LSN), "left")


def _departures(statements: pa.Table, columns: Sequence[int], order: Sequence[str]) -> pa.Table:
    """Return the values that rows had when their keys were deleted, by the delete's LSN."""
    statements = statements.sort_by(
        [("key", "ascending"), *((column, "ascending") for column in order)]
    )
    facts = statements.select(["key", "lsn", "is_tombstone", "missing", "begins"]).to_pylist()
    has_row = statements.column("row").combine_chunks().is_valid().to_pylist()
    cells_of = dict(departures(zip(facts, has_row, strict=True), columns))
    rows = statements.column("row").combine_chunks()
    arrays: list[Any] = [pa.array(cells_of, pa.int64())]
    for column in columns:
        places = pa.array([resolved(cells_of, lsn, column) for lsn in cells_of], pa.int64())
        values = rows.field(column).take(places)
        # A struct tells a value that is null from a value that was not found.
        arrays.append(pa.StructArray.from_arrays([values], ["value"], mask=places.is_null()))
    return pa.table(arrays, names=[_LSN, *map(name, columns)])


def departures(
    statements: Iterator[tuple[Mapping[str, Any], bool]], columns: Sequence[int]
) -> Iterator[tuple[int, Cells]]:
    """Yield the LSN of each delete with the values of its row, from statements sorted by key."""
    key: str | None = None
    cells: Cells = {}
    for place, (statement, has_row) in enumerate(statements):
        if statement["key"] != key:
            key, cells = statement["key"], {}
        if not has_row:
            if cells and not statement["is_tombstone"] and statement["lsn"] is not None:
                yield statement["lsn"], cells
            cells = {}
            continue
        missing = {*statement["missing"]}
        before = (
            dict.fromkeys(columns, ValueOrigin(departure=statement["lsn"]))
            if statement["begins"]
            else cells
        )
        cells = {
            column: before.get(column, ValueOrigin()) if column in missing else ValueOrigin(place)
            for column in columns
        }


def resolved(cells_of: Mapping[int, Cells], lsn: int, column: int) -> int | None:
    """Follow a column's value from key to key; return the place of its statement, or None."""
    cell, departure, seen = ValueOrigin(departure=lsn), lsn, set[int]()
    while cell.place is None and cell.departure is not None:
        departure = cell.departure
        if departure in seen or departure not in cells_of:
            return None
        seen.add(departure)
        cell = cells_of[departure][column]
    return cell.place
