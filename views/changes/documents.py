"""Records of a view's topic as JSON: as documents are elsewhere.

Decimals are texts with all their digits, bytes are base64, dates and moments ISO 8601, what is no
number is a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import orjson

from changelog.avro.bodies import MALFORMED, BodyReader
from changelog.avro.jsonforms import JsonForm, Writer, base64_text, decimal, number
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.codec import unframe


def _moment(unit: str, zone: str) -> Writer:
    return lambda value, *_: str(np.array(value).astype(f"datetime64[{unit}]")) + zone


# Not the log's form, but that of the documents in sinks: a moment has all six digits of its second,
# and Z. A float has the digits of the double that holds it.
_VIEW_FORM = JsonForm(
    "view",
    {
        ("bytes", "bytes"): base64_text,
        ("bytes", "decimal"): decimal,
        ("float", "float"): number,
        ("double", "double"): number,
        ("int", "date"): _moment("D", ""),
        ("long", "timestamp-micros"): _moment("us", "Z"),
        ("long", "local-timestamp-micros"): _moment("us", ""),
    },
)


class Documents:
    """Makes JSON of keys and values.

    Args:
        schema_of: returns the text of a schema by its id; None where records are JSON already.
    """

    def __init__(self, schema_of: Callable[[int], str] | None) -> None:
        self._schema_of = schema_of
        self._bodies: dict[int, BodyReader] = {}

    def json(self, raw: bytes | None) -> bytes:
        """Return the JSON of a key or a value; null of a tombstone."""
        if raw is None:
            return b"null"
        if self._schema_of is None:
            return raw
        schema_id, _ = unframe(raw)
        if schema_id not in self._bodies:
            schema = json.loads(self._schema_of(schema_id))
            self._bodies[schema_id] = _VIEW_FORM.reader(schema)
        try:
            value, _ = self._bodies[schema_id].read(raw)
            return orjson.dumps(value)
        except MALFORMED as error:
            raise CorruptRecordError(f"a record is none of schema {schema_id}: {error}") from error
