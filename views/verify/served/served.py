"""What a sink serves, read back as its readers would read it, into one DuckDB table.

The table has the view's columns and two more: `__fault`, which says why a row is not in the form
that its sink promises, and `__id`, the document id or cache key under which it was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from changelog.contract.base.errors import SinkError
from views.base.address import Address
from views.verify.processes.scratch import fill
from views.verify.served.cache import cache_entries
from views.verify.served.delta import delta_batches
from views.verify.served.lines import line_documents
from views.verify.served.search import search_documents
from views.verify.values.jsonform import Reader, check_members, identifier, load, reader
from views.verify.values.types import Type, arrow_type, duckdb_type, quoted

FAULT_COLUMN = "__fault"
ID_COLUMN = "__id"
BATCH_ROWS = 10_000
Document = tuple[str, str | dict[str, Any]]
"""Id, and the row's JSON as text or parsed."""


def read_served(
    database: duckdb.DuckDBPyConnection,
    table: str,
    address: Address,
    columns: Sequence[tuple[str, Type]],
    key: Sequence[str],
) -> int:
    """Read all rows that a generation serves into a new table.

    Returns:
        How many rows the sink serves.

    Raises:
        SinkError: the address cannot be read, or has other columns than the view.
    """
    definitions = [
        *(f"{quoted(name)} {duckdb_type(kind)}" for name, kind in columns),
        f"{FAULT_COLUMN} VARCHAR",
        f"{ID_COLUMN} VARCHAR",
    ]
    database.execute(f"CREATE OR REPLACE TABLE {quoted(table)} ({', '.join(definitions)})")
    return fill(database, table, _batches(address, columns, key))


def _batches(
    address: Address, columns: Sequence[tuple[str, Type]], key: Sequence[str]
) -> Iterator[pa.Table]:
    match address.sink:
        case "delta":
            yield from delta_batches(address.location["path"], columns)
        case "memory":
            yield from documents_to_arrow(line_documents(address), columns, key)
        case "search":
            yield from documents_to_arrow(search_documents(address), columns, key)
        case "cache":
            yield from documents_to_arrow(cache_entries(address), columns, key)
        case _:
            raise SinkError(f'what sink "{address.sink}" serves cannot be read for verification')


def documents_to_arrow(
    documents: Iterable[Document], columns: Sequence[tuple[str, Type]], key: Sequence[str]
) -> Iterator[pa.Table]:
    """Return rows in JSON form as Arrow, each fault beside its row."""
    readers = [(name, reader(kind)) for name, kind in columns]
    kinds = dict(columns)
    keyed = [(name, kinds[name]) for name in key]
    schema = pa.schema(
        [
            *((name, arrow_type(kind)) for name, kind in columns),
            (FAULT_COLUMN, pa.string()),
            (ID_COLUMN, pa.string()),
        ]
    )
    rows: list[list[Any]] = []
    for id_, document in documents:
        rows.append(_row(id_, document, readers, kinds.keys(), keyed))
        if len(rows) >= BATCH_ROWS:
            yield _table(rows, schema)
            rows = []
    if rows:
        yield _table(rows, schema)


def _table(rows: list[list[Any]], schema: pa.Schema) -> pa.Table:
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.Table.from_arrays([pa.array(c, field.type) for c, field in columns], schema=schema)


def _row(
    id_: str,
    document: str | dict[str, Any],
    readers: Sequence[tuple[str, Reader]],
    names: Any,  # noqa: ANN401 - a dict's keys view
    key: Sequence[tuple[str, Type]],
) -> list[Any]:
    try:
        row = document if isinstance(document, dict) else load(document)
        check_members(row, names)
    except ValueError as error:
        return [*(None for _ in readers), f"malformed: {error}", id_]
    out: list[Any] = []
    fault = None
    for name, read in readers:
        try:
            out.append(read(row[name]))
        except ValueError as error:
            out.append(None)
            fault = fault or f"{name}: {error}"
    if fault is None and (wanted := identifier(row, key)) != id_:
        fault = f"stored under {id_!r}, its key says {wanted!r}"
    return [*out, fault, id_]
