"""Records of a view's topic as JSON: as documents are elsewhere.

Decimals are texts with all their digits, bytes are base64, dates and moments ISO 8601, what is no
number is a text.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

import fastavro
import numpy as np
import orjson

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.codec import unframe

_EXACT = Context(prec=1000)
_UNITS = {"date": ("D", ""), "timestamp-micros": ("us", "Z"), "local-timestamp-micros": ("us", "")}


class Documents:
    """Makes JSON of keys and values.

    Args:
        schema_of: returns the text of a schema by its id; None where records are JSON already.
    """

    def __init__(self, schema_of: Callable[[int], str] | None) -> None:
        self._schema_of = schema_of
        self._known: dict[int, tuple[Any, Any]] = {}

    def json(self, raw: bytes | None) -> bytes:
        """Return the JSON of a key or a value; null of a tombstone.

        Raises:
            CorruptRecordError: it is no such record.
        """
        if raw is None:
            return b"null"
        if self._schema_of is None:
            return raw
        schema_id, body = unframe(raw)
        if schema_id not in self._known:
            said = json.loads(self._schema_of(schema_id))
            self._known[schema_id] = said, fastavro.parse_schema(_bare(said))
        said, parsed = self._known[schema_id]
        try:
            return orjson.dumps(
                plain(said, fastavro.schemaless_reader(io.BytesIO(body), parsed, None))
            )
        except (ValueError, IndexError, EOFError, TypeError) as error:
            raise CorruptRecordError(f"a record is none of schema {schema_id}: {error}") from error


def plain(schema: Any, value: Any) -> Any:  # noqa: ANN401, PLR0911 - any JSON; one for each type
    """Return a value of Avro, read without logical types, as JSON has it."""
    if isinstance(schema, list):
        inner = next(each for each in schema if each != "null")
        return None if value is None else plain(inner, value)
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
    if isinstance(kind, Mapping | list):
        return plain(kind, value)
    if logical == "decimal":
        number = Decimal(int.from_bytes(value, "big", signed=True))
        return f"{number.scaleb(-schema['scale'], _EXACT):f}"
    if logical in _UNITS:
        unit, zone = _UNITS[logical]
        return str(np.array(value).astype(f"datetime64[{unit}]")) + zone
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind in {"float", "double"} and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if kind == "array":
        return [plain(schema["items"], each) for each in value]
    if kind == "map":
        return {name: plain(schema["values"], each) for name, each in value.items()}
    if kind == "record":
        return {each["name"]: plain(each["type"], value[each["name"]]) for each in schema["fields"]}
    return value


def _bare(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a schema without logical types."""
    if isinstance(schema, Mapping):
        return {name: _bare(each) for name, each in schema.items() if name != "logicalType"}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema
