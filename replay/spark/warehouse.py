"""Settings and paths that the Delta tables of a warehouse share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.transaction import AddAction

SETTINGS = {"delta.logRetentionDuration": "interval 1 days"}
"""Of the tables that get a commit with each run. Whoever opens one lists all the commits that are
there, and Delta's own thirty days of them are 100,000 and more where views are followed."""

_OWNED = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""For the types that much of Arrow does not know yet."""
_PLAIN_READER = 1
_PLAIN = frozenset({"timestampNtz"})


def tidy(table: DeltaTable, hours: int) -> None:
    """Remove the files that only older versions have, after some hours.

    A table that was made before there were settings gets them.
    """
    if not SETTINGS.items() <= table.metadata().configuration.items():
        table.alter.set_table_properties(SETTINGS)
    table.vacuum(hours, dry_run=False, enforce_retention_duration=False)


def read_rows(table: DeltaTable, columns: Sequence[str] = (), where: str = "") -> pa.Table:
    """Read a table of few rows here, without Spark.

    By deltalake alone. A file of its datasets is an object of Python's, which threads of Arrow let
    go of at any later time: at the end of the process that aborts it.

    `columns`: their names; none for all.

    Raises OSError: a file cannot be read; DeltaError: neither can the log.
    """
    listed = ", ".join(f'"{name}"' for name in columns) or "*"
    query = f"SELECT {listed} FROM t" + (f" WHERE {where}" if where else "")
    try:
        result = QueryBuilder().register("t", table).execute(query).read_all()
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise OSError(str(error)) from error  # what deltalake has no class of its own for
    rows = pa.table(result)
    fields = [field.with_type(_OWNED.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def text_literal(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def is_plain(table: DeltaTable) -> bool:
    """Tell whether the rows of a table are all that its files have, under the names that are there.

    Column mapping makes deltalake's datasets give nulls in silence, and deletion vectors hide rows
    from readers that do not know them. Neither is plain, nor is any feature that we do not know.
    """
    protocol = table.protocol()
    features = frozenset(protocol.reader_features or ())
    is_known = protocol.min_reader_version <= _PLAIN_READER or bool(features)
    return is_known and features <= _PLAIN


def paths_of(table: DeltaTable) -> list[str]:
    """List the files of a table, relative to it."""
    paths: list[str] = pa.table(table.get_add_actions()).column("path").to_pylist()
    return paths


def adding_counted(
    path: str,
    size: int,
    rows: int,
    *,
    modified_ms: int = 0,
    partition: Mapping[str, str | None] = MappingProxyType({}),
    bounds: Mapping[str, Any] = MappingProxyType({}),
) -> AddAction:
    """Return the action that makes a file part of a table, with the count of its rows.

    Without bounds it tells counts only: bounds of moments are cut to milliseconds by one writer
    and read exactly by another, and files in no order are not skipped by them.

    `path`: of the file, relative to the table. `partition`: the text of each partition column's
    value. `bounds`: of columns by which the files are in an order, in Delta's form.
    """
    return AddAction(
        path=path,
        size=size,
        partition_values=dict(partition),
        modification_time=modified_ms,
        data_change=True,
        stats=json.dumps({"numRecords": rows, **bounds}),
    )


def of_deltalake(place: str) -> str:
    """Return the URI of a place as deltalake names it, and everybody but Spark."""
    return place.replace("s3a://", "s3://", 1)
