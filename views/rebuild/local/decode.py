"""Records of one table as a table of Arrow, in the types that Spark decodes them to.

fastavro reads the bodies without what their values mean, so that moments stay integers and
decimals bytes; the column's type says what these are. What has no place in its type, and what
cannot be read, is left to Spark, whose errors name the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from changelog.contract.rows.codec import unframe
from replay.decode.schemas import TopicSchemas
from replay.local.arrow import array_maker, bare
from views.rebuild.local.join_values import UnknownValueError
from views.rebuild.local.table import Record

_PLAIN_DEFAULTS = ("int", "long", "string", "boolean")


class RowDecoder:
    """Decodes some columns of a topic's records.

    Args:
        schemas: under which they were written; plain rows in Avro.
        columns: names of the table's columns, in any case.

    Raises:
        UnknownValueError: they cannot be read here.
    """

    def __init__(self, schemas: TopicSchemas, columns: Sequence[str]) -> None:
        logged = {each.column.lower(): each for each in schemas.logged(schemas.reader_id).columns}
        self._columns = [logged[name.lower()] for name in columns]
        # Each record is read as it was written: resolved to another schema, the text of a value
        # without a place in its type would be taken for the bytes of one that has it.
        self._writers = {
            number: fastavro.parse_schema(bare(json.loads(text)))
            for number, text in schemas.writers.items()
        }
        self._fields = [each.field for each in self._columns]
        self._missing = {
            number: _defaults(schemas.reader, self._fields, text)
            for number, text in schemas.writers.items()
        }
        self._arrays: list[Callable[[Sequence[Any]], pa.Array]] = [
            array_maker(each.type) for each in self._columns
        ]

    def table(self, records: Sequence[Record]) -> pa.Table:
        """Return the rows of records, none of them a tombstone; names are in lower case.

        Raises:
            UnknownValueError: one cannot be read, or holds a value without a place in its type.
        """
        try:
            rows: list[Any] = [self._row(each.value) for each in records]
            arrays = [
                make([row[field] for row in rows])
                for field, make in zip(self._fields, self._arrays, strict=True)
            ]
        except Exception as error:
            raise UnknownValueError("a record cannot be read here") from error
        names = [each.column.lower() for each in self._columns]
        return pa.Table.from_arrays(arrays, names=names)

    def _row(self, value: bytes) -> Any:  # noqa: ANN401 - fastavro's own
        number, body = unframe(value)
        row: Any = fastavro.schemaless_reader(BytesIO(body), self._writers[number])
        return {**row, **self._missing[number]} if self._missing[number] else row


def _defaults(reader: str, fields: Sequence[str], writer: str) -> dict[str, Any]:
    """Return what rows of an older schema hold in columns that came later.

    Raises:
        UnknownValueError: that is not plain.
    """
    there = {each["name"] for each in json.loads(writer)["fields"]}
    found = {}
    for each in json.loads(reader)["fields"]:
        if each["name"] in fields and each["name"] not in there:
            value = each.get("default")
            kind = each["type"][0] if isinstance(each["type"], list) else each["type"]
            if value is not None and kind not in _PLAIN_DEFAULTS:
                raise UnknownValueError(f'"{each["name"]}" came later, with a default')
            found[each["name"]] = value
    return found
