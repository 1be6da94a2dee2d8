"""Convert documents from a server, a page at a time, to Arrow tables with a column of faults.

A page is parsed by orjson and read by column. If that refuses anything, it is parsed again by
`json`, which accepts more (halves of surrogate pairs, NaN, integers of any size), and read row by
row by the strict readers: only they decide what is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa

from views.verify.values.jsoncolumns import UnusualError, columns_of
from views.verify.values.jsonform import Reader, check_members, identifier, load, reader
from views.verify.values.types import Type, arrow_type

FAULT_COLUMN = "__fault"
ID_COLUMN = "__id"
_TABLE_ROWS = 10_000
Document = tuple[str, str | dict[str, Any]]
"""Id, and the row's JSON as text or parsed."""


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Documents of one answer."""

    # their ids and rows as orjson parses them; None if it refuses one
    quick: tuple[list[str], list[Any]] | None
    documents: Callable[[], list[Document]]  # parses them by `json`


def text_page(ids: list[str], texts: list[bytes]) -> DocumentPage:
    """Return a page of documents that came as separate texts, in UTF-8 if they are sound."""

    def documents() -> list[Document]:
        read = (text.decode("utf-8", "replace") for text in texts)
        return list(zip(ids, read, strict=True))

    try:
        return DocumentPage((ids, list(map(orjson.loads, texts))), documents)
    except orjson.JSONDecodeError:
        return DocumentPage(None, documents)


class DocumentForm:
    """The JSON form of one view's rows."""

    def __init__(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> None:
        kinds = dict(columns)
        self._columns = list(columns)
        self._names = kinds.keys()
        self._key = [(name, kinds[name]) for name in key]
        self._readers = [(name, reader(kind)) for name, kind in columns]
        self._schema = pa.schema(
            [
                *((name, arrow_type(kind)) for name, kind in columns),
                (FAULT_COLUMN, pa.string()),
                (ID_COLUMN, pa.string()),
            ]
        )

    @property
    def columns(self) -> Sequence[tuple[str, Type]]:
        """Return the view's columns."""
        return self._columns

    @property
    def key(self) -> Sequence[tuple[str, Type]]:
        """Return the columns of its key."""
        return self._key

    def table(self, page: DocumentPage) -> pa.Table:
        """Return the rows of a page, with a column of faults."""
        if page.quick is not None:
            ids, rows = page.quick
            try:
                arrays = columns_of(ids, rows, self._columns, self._key)
            except UnusualError:
                return self.strictly(page.documents())
            faults, names = pa.nulls(len(ids), pa.string()), pa.array(ids, pa.string())
            return pa.Table.from_arrays([*arrays, faults, names], schema=self._schema)
        return self.strictly(page.documents())

    def strictly(self, documents: Iterable[Document]) -> pa.Table:
        """Read documents, at least one, row by row by the strict readers."""
        rows = [self._row(id_, document) for id_, document in documents]
        columns = zip(zip(*rows, strict=True), self._schema, strict=True)
        arrays = [pa.array(values, field.type) for values, field in columns]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def tables(self, documents: Iterable[Document]) -> Iterator[pa.Table]:
        """Read a stream of documents strictly, into tables of bounded length."""
        remaining = iter(documents)
        while some := list(islice(remaining, _TABLE_ROWS)):
            yield self.strictly(some)

    def _row(self, id_: str, document: str | dict[str, Any]) -> list[Any]:
        try:
            row = document if isinstance(document, dict) else load(document)
            check_members(row, self._names)
        except ValueError as error:
            return [*(None for _ in self._readers), f"malformed: {error}", id_]
        values, fault = self._values(row, self._readers)
        if fault is None and (expected_id := identifier(row, self._key)) != id_:
            fault = f"stored under {id_!r}, its key says {expected_id!r}"
        return [*values, fault, id_]

    @staticmethod
    def _values(
        row: dict[str, Any], readers: Sequence[tuple[str, Reader]]
    ) -> tuple[list[Any], str | None]:
        values: list[Any] = []
        fault = None
        for name, read in readers:
            try:
                values.append(read(row[name]))
            except ValueError as error:
                values.append(None)
                fault = fault or f"{name}: {error}"
        return values, fault
