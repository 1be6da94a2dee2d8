"""Compute the affected keys of a view from the rows that can take part in them, by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import Kind
from replay.store.stored import StoredRecords
from views.project.lineage import KeyLineage
from views.project.query import query
from views.project.sql import rewritten
from views.rebuild.local.join_values import UnknownValueError
from views.rebuild.local.related import Walk, check_classes, columns_of
from views.rebuild.local.table import LocalTable, Record, Touched
from views.rebuild.local.tables import LocalTables, frame_of
from views.sinks.unique import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARROW = {Kind.INT: pa.int32(), Kind.LONG: pa.int64(), Kind.STRING: pa.string()}
"""Of keys whose values are in Spark what they are on the log."""
MOST_ROWS = 300_000
"""That take part, of all tables of a view."""


def few_rows(
    local: LocalTables,
    spark: SparkSession,
    lineage: KeyLineage,
    records: Mapping[TableName, StoredRecords],
    between: tuple[Position, Position],
) -> tuple[DataFrame, DataFrame, int]:
    """Return the affected keys, rows of the view in which theirs are whole, and how many keys.

    Args:
        local: the tables of the follower.
        spark: the session of the run.
        lineage: of the view.
        records: the stored states of its tables.
        between: the positions of what serves and of the frontier.

    Raises:
        UnknownValueError: the rows that can take part cannot be told, or are too many.
    """
    session = local.session(spark)
    check_classes(lineage, {table: each.schemas for table, each in records.items()})
    tables, touched = _brought(local, lineage, records, between)
    if not all(each.follows(between[0]) for each in touched.values()):
        raise UnknownValueError("what serves is at another frontier")
    found = Walk(lineage, tables, touched, MOST_ROWS).related()
    frames = {
        place: records[place.table].decoded(frame_of(session, rows))
        for place, rows in found.rows.items()
    }
    rows = query(session, frames, partial(rewritten, lineage.source))
    anchor = lineage.origins[0].reference.table
    keys = _keys(session, lineage, records[anchor], tables[anchor].columns, found.affected)
    return keys, rows, len(found.affected)


def _keys(
    session: SparkSession,
    lineage: KeyLineage,
    stored: StoredRecords,
    looked_up: Sequence[str],
    affected: Sequence[Record],
) -> DataFrame:
    """Return the keys of rows of the place that the key comes from, each once."""
    by_name = {
        each.column: each.type.kind
        for each in stored.schemas.logged(stored.schemas.reader_id).columns
    }
    kinds = [_ARROW.get(by_name[origin.column]) for origin in lineage.origins]
    if None in kinds:
        decoded = stored.decoded(frame_of(session, affected))
        named = (column(each.column).alias(each.view_column) for each in lineage.origins)
        return decoded.select(*named).distinct()
    places = [looked_up.index(each.column) for each in lineage.origins]
    keys = list({tuple(each.values[place] for place in places) for each in affected})
    schema = pa.schema([(o.view_column, k) for o, k in zip(lineage.origins, kinds, strict=True)])
    columns = [[key[number] for key in keys] for number in range(len(places))]
    return session.createDataFrame(pa.table(columns, schema=schema))


def _brought(
    local: LocalTables,
    lineage: KeyLineage,
    records: Mapping[TableName, StoredRecords],
    between: tuple[Position, Position],
) -> tuple[dict[TableName, LocalTable], dict[TableName, Touched]]:
    """Bring all tables of a view to the frontier; refuse only then where one cannot be."""
    tables: dict[TableName, LocalTable] = {}
    touched: dict[TableName, Touched] = {}
    refused: UnknownValueError | None = None
    for table, columns in columns_of(lineage).items():
        try:
            tables[table], touched[table] = local.brought(table, records[table], columns, between)
        except UnknownValueError as error:
            refused = error
    if refused is not None:
        raise refused
    return tables, touched
