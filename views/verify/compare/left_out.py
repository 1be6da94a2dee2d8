"""Rows that a sink reports as left out, because its server refuses them.

They are removed from the expected rows, each by its key: so one that is served nevertheless is a
row too many, and any other missing row is still a mismatch. The sink's report counts only up to a
number of rows, and only for rows that the view has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from views.base.address import Address
from views.verify.processes.scratch import first_row
from views.verify.served.documents import FAULT_COLUMN, DocumentForm
from views.verify.values.types import Type, quoted

_LOCATION = "left_out"
_TABLE = "left out"
_THERE = "expected there"
EXPECTED = "expected"
"""The table, or the view, of the rows that follow from the log."""


@dataclass(frozen=True, slots=True)
class LeftOutRows:
    """The rows that a sink may lack because its server refused them."""

    expected: str = EXPECTED  # the relation of the rows that must be served
    keys: tuple[str, ...] = ()  # of the rows left out, as JSON objects
    false: int = 0  # how many of these the view does not have, or are named twice or cannot be read
    notes: tuple[str, ...] = ()  # for the readers of the verdict


def take_left_out(
    database: duckdb.DuckDBPyConnection,
    address: Address,
    columns: Sequence[tuple[str, Type]],
    key: Sequence[str],
    *,
    at_most: int,
) -> LeftOutRows:
    """Remove the rows that a sink has refused from the table of expected rows.

    `address`: of the sink, with its report. `key`: names of its key's columns. `at_most`: if more
    rows are reported, none is removed, so that all of them are mismatches.
    """
    stated = json.loads(address.location.get(_LOCATION, "[]"))
    if not stated:
        return LeftOutRows()
    note = f"{len(stated):,} rows that {address.sink} refuses are left out"
    if len(stated) > at_most:
        return LeftOutRows(notes=(f"{note}, where {at_most:,} may be",))
    of_key = [(name, kind) for name, kind in columns if name in key]
    read = DocumentForm(of_key, key).strictly([(name, text) for name, text in stated])
    database.register("stated", read)
    database.execute(f"CREATE OR REPLACE TABLE {quoted(_TABLE)} AS SELECT DISTINCT * FROM stated")
    database.unregister("stated")
    same = " AND ".join(f"e.{quoted(name)} = l.{quoted(name)}" for name, _ in of_key)
    true_count = first_row(
        database,
        f"SELECT count(*) FROM {quoted(_TABLE)} l WHERE l.{FAULT_COLUMN} IS NULL "
        f"AND EXISTS (FROM {quoted(EXPECTED)} e WHERE {same})",
    )
    database.execute(
        f"CREATE OR REPLACE TEMP VIEW {quoted(_THERE)} AS SELECT e.* FROM {quoted(EXPECTED)} e "
        f"WHERE NOT EXISTS (FROM {quoted(_TABLE)} l WHERE {same})"
    )
    false = len(stated) - (true_count[0] if true_count else 0)
    notes = [note, *([f"{false:,} of them the view has not"] if false else [])]
    return LeftOutRows(_THERE, tuple(text for _, text in stated), false, tuple(notes))
