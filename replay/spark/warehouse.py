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
"""For tables that get a commit with each run. Opening one lists all commits that are there, and
Delta's default, thirty days, makes 100,000 of them and more where views are followed."""

_WITHOUT_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""The types to use in place of those that much of Arrow does not support yet."""
# A table that needs no newer reader has no features at all.
_PLAIN_READER = 1
# The features that do not change which rows or columns the files have.
_PLAIN = frozenset({"timestampNtz"})


def tidy(table: DeltaTable, hours: int) -> None:
    """Remove the files that only older versions have, after some hours.

    A table that was created before `SETTINGS` existed gets them.
    """
    if not SETTINGS.items() <= table.metadata().configuration.items():
        table.alter.set_table_properties(SETTINGS)
    table.vacuum(hours, dry_run=False, enforce_retention_duration=False)


def read_rows(table: DeltaTable, columns: Sequence[str] = (), where: str = "") -> pa.Table:
    """Read a table of few rows in this process, without Spark.

    deltalake's own query engine reads it, not Arrow's datasets: a file of these is a Python object,
    which Arrow's threads may release at any later time; during the end of the process that aborts
    it.

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
        raise OSError(str(error)) from error  # deltalake raises a plain Exception for these
    rows = pa.table(result)
    fields = [field.with_type(_WITHOUT_VIEWS.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def text_literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def is_plain(table: DeltaTable) -> bool:
    """Tell whether a table is exactly the rows and columns that its files have.

    With column mapping deltalake's datasets silently return nulls, and readers that do not know
    deletion vectors return deleted rows. Neither is plain, nor is any feature that we do not know.
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
    """Return the action that adds a file to a table, with the count of its rows.

    Bounds are left out unless given: some writers cut bounds of timestamps to milliseconds, which
    others read exactly, and in files without an order they let readers skip nothing.

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
